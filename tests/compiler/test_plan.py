"""The option in use: all comparisons decide, else the estimate."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autotune.compiler import compile_in_detail, divide
from autotune.compiler.estimate import TimeSource
from autotune.compiler.plan import OPTION, Ranking, option_key, plan_of, rank
from autotune.compiler.request import CompileRequest
from autotune.database.evidence import State
from autotune.database.goal import Goal, Objective
from autotune.database.records import Comparison, Key, Latency, Outcome, Ratio, Run, WorkloadRow
from autotune.database.store import Database
from autotune.graph.build import GraphBuilder
from autotune.graph.region import Workload
from autotune.passes import options
from autotune.passes.options import DIRECT, options_of
from autotune.passes.preference import Preference
from autotune.target import Target
from search_spaces.spaces import space_for

TARGET = Target.parse("x86-64-v3", threads=1)
ANY = Preference()


def graph():
    b = GraphBuilder("one")
    w = np.random.default_rng(0).standard_normal((8, 8, 3, 3)).astype(np.float32)
    x = b.node("Conv", b.input("x", (1, 8, 12, 12)), b.constant("w", w), pads=(1, 1, 1, 1))
    return b.graph(b.node("Relu", x, name="y"))


@pytest.fixture(scope="module")
def workload() -> Workload:
    return divide(graph()).dispatches[0].workload


@pytest.fixture
def database(tmp_path: Path, workload: Workload):
    with Database(tmp_path / "tuning.db") as store:
        store.add_target(TARGET)
        store.add_workload(WorkloadRow(workload.key, workload.text, workload.kind, 1, 1))
        yield store


def row(option, ns: float | None, *, won: bool = False) -> Comparison:
    latency = None if ns is None else Latency(60, ns, ns, 0.0)
    return Comparison(option.name, option_key(option, TARGET), latency, won)


def ranking(database: Database, workload: Workload, preference: Preference = ANY) -> Ranking:
    return rank([workload], TARGET, database, preference)[workload.key]


def compared(database: Database, workload: Workload, *rows: Comparison) -> None:
    database.compared(workload.key, TARGET.key, OPTION, rows, "net")


def record(store: Database, region: Workload, ns: float) -> None:
    key = Key(region.key, TARGET.key, space_for(region, TARGET).key)
    store.add_workload(WorkloadRow(region.key, region.text, region.kind, 1, 1))
    store.add_space(key.space, region.key, "{}")
    store.record(Run(key, "t", "[]", "{}", Outcome.OK, Latency(5, ns, ns, 0.0)))


def test_all_comparisons_decide(database, workload):
    direct, two, four, six, *_ = options_of(workload)
    compared(database, workload, row(direct, 5e4, won=True), row(two, 9e4))
    compared(database, workload, row(direct, 5e4), row(four, 2e4, won=True), row(six, None))
    found = ranking(database, workload)
    assert found.chosen is four
    assert [(time.option.name, time.source) for time in found.times] == [
        ("winograd F(4x4)", TimeSource.MEASURED),
        (DIRECT, TimeSource.MEASURED),
        ("winograd F(2x2)", TimeSource.MEASURED),
    ]
    assert "direct: 50.0 µs measured" in str(found)
    assert ranking(database, workload, Preference(1e-6)).chosen is direct
    for _ in range(9):  # it was lucky: nothing is replaced, all of it counts
        compared(database, workload, row(direct, 5e4, won=True), row(four, 6e4))
    assert ranking(database, workload).chosen is direct


def test_where_a_comparison_decides_nothing_else_is_put_together(database, workload, monkeypatch):
    direct, two, four, *_ = options_of(workload)
    compared(database, workload, row(direct, 5e4), row(two, None), row(four, 2e4, won=True))
    before, tried = options._options, list[str]()

    def spied(workload, rule):
        tried.append(rule.label)
        return before(workload, rule)

    monkeypatch.setattr(options, "_options", spied)
    found = ranking(database, workload)
    assert found.chosen is found.times[0].option is four
    assert tried == [four.name]
    assert [time.option for time in found.times] == [four, direct]  # now somebody looks
    assert tried == [four.name, two.name, four.name]


def test_where_the_plain_one_has_won_one_more_is_put_together(database, workload, monkeypatch):
    direct, two, four, *_ = options_of(workload)
    compared(database, workload, row(direct, 2e4, won=True), row(four, 3e4), row(two, 5e4))
    before, tried = options._options, list[str]()

    def spied(workload, rule):
        tried.append(rule.label)
        return before(workload, rule)

    monkeypatch.setattr(options, "_options", spied)
    found = ranking(database, workload)
    assert found.chosen is direct
    assert tried == [four.name]
    assert [time.option for time in found.times] == [direct, four, two]


def test_what_is_expected_to_be_faster_is_used_where_that_is_worth_a_change(database, workload):
    direct, two, *_ = options_of(workload)
    compared(database, workload, row(direct, 5e4, won=True), row(two, 4.98e4))
    assert ranking(database, workload).chosen is direct
    compared(database, workload, row(direct, 5e4, won=True), row(two, 4.5e4))
    assert ranking(database, workload).chosen is two


def test_the_fastest_of_those_that_are_exact_enough_stands_in_for_a_winner_that_is_not(database, workload):
    direct, two, four, *_ = options_of(workload)
    compared(database, workload, row(direct, 5e4), row(two, 3e4), row(four, 2e4, won=True))
    assert ranking(database, workload, Preference(two.error)).chosen is two


def test_a_speculative_option_is_used_once_a_comparison_says_so(database, workload):
    direct, *_, speculative, _ = options_of(workload)
    assert speculative.name not in str(ranking(database, workload))
    compared(database, workload, row(direct, 5e4), row(speculative, 2e4, won=True))
    assert ranking(database, workload).chosen is speculative


def test_a_comparison_of_other_code_does_not_count(database, workload):
    two = options_of(workload)[1]
    compared(database, workload, replace(row(two, 1.0, won=True), key="old"))
    assert {time.source for time in ranking(database, workload).times} <= {
        TimeSource.ESTIMATED,
        TimeSource.AT_LEAST,
    }


def test_what_failed_is_not_estimated_again(database, workload):
    direct, *others = options_of(workload)
    stale = replace(row(direct, 1.0, won=True), key="old")
    failed = [row(option, None) for option in others if option.name.startswith("winograd")]
    compared(database, workload, stale, *failed)
    assert "winograd" not in str(ranking(database, workload))


def test_readings_of_dispatches_alone_decide_nothing(database, workload):
    before = ranking(database, workload)
    for option in options_of(workload):
        for region in option.regions:
            record(database, region, 5.0 if option.name == "winograd F(2x2)" else 1e6)
    after = ranking(database, workload)
    assert after.chosen is before.chosen
    assert {time.source for time in after.times} <= {TimeSource.ESTIMATED, TimeSource.AT_LEAST}


def test_a_smaller_option_within_the_slowdown_is_used_and_its_schedules_get_the_rest(database, workload):
    direct, _, four, *_ = options_of(workload)
    slower = replace(row(direct, 5e4), ratio=None)
    faster = replace(row(four, 4e4, won=True), ratio=Ratio(0.8, (0.79, 0.81)))
    compared(database, workload, slower, faster)
    for slowdown, chosen in ((1.1, four), (1.35, direct)):
        goal = Goal(Objective.SIZE, slowdown)
        plan = plan_of([workload], TARGET, database, Preference(goal=goal))
        assert plan.options[workload.key].name == chosen.name
    found = plan.rankings[workload.key]
    ratio = found.saving.ratio.median
    assert ratio == pytest.approx(1.25, rel=0.01)
    assert found.saving.confirmed
    assert found.saving.nbytes < found.saving.before
    assert plan.goals[workload.key].max_slowdown == pytest.approx(1.35 / ratio)
    evidence, reason = plan.evidence(workload.key)
    assert evidence.state is State.SMALLER
    assert str(evidence) in str(found)
    assert reason.startswith("as an algorithm")
    direct_code, four_code = (
        compile_in_detail(
            CompileRequest(graph(), target=TARGET, objective="size", max_slowdown=slowdown, database=database)
        )
        for slowdown in (1.35, 1.1)
    )
    assert direct_code.image.stored_bytes < four_code.image.stored_bytes


def test_estimates_choose_a_smaller_option_where_nothing_was_compared():
    b = GraphBuilder("one")
    w = np.zeros((64, 64, 3, 3), np.float32)
    x = b.node("Conv", b.input("x", (1, 64, 28, 28)), b.constant("w", w), pads=(1, 1, 1, 1))
    large = divide(b.graph(b.node("Relu", x, name="y"))).dispatches[0].workload
    plain = rank([large], TARGET, None, ANY)[large.key]
    assert "winograd" in plain.chosen.name
    found = rank([large], TARGET, None, Preference(goal=Goal(Objective.SIZE, 100.0)))[large.key]
    assert found.chosen.error == 0
    assert not found.chosen.speculative
    assert found.saving is not None
    assert not found.saving.confirmed
    assert plain.saving is None


def test_the_compiler_follows_and_says_so(database, workload):
    direct, _, four, *_ = options_of(workload)
    compared(database, workload, row(direct, 3e5), row(four, 2e5, won=True))
    done = compile_in_detail(CompileRequest(graph(), target=TARGET, database=database))
    assert f"{ranking(database, workload)}" in done.coverage.details()
    assert len(done.partition.dispatches) == len(four.regions) + 1  # the result is transposed
    exact = compile_in_detail(CompileRequest(graph(), target=TARGET, tolerance=0.0, database=database))
    assert len(exact.partition.dispatches) == 2
