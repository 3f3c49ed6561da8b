"""Which alternative is used: the newest contest decides, then sums of dispatches, then the estimate."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autotune.compiler import compile_in_detail, divide
from autotune.compiler.decision import alternative_key, decide
from autotune.compiler.standing import Source
from autotune.database.records import ContestRow, Key, Latency, Outcome, Run, WorkloadRow
from autotune.database.store import Database
from autotune.graph.build import GraphBuilder
from autotune.graph.region import Workload
from autotune.passes.alternatives import DIRECT, alternatives_of
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


def entry(alternative, ns: float | None) -> ContestRow:
    latency = None if ns is None else Latency(5, ns, ns, 0.0)
    return ContestRow(alternative.name, alternative_key(alternative, TARGET), latency)


def record(store: Database, region: Workload, ns: float) -> None:
    key = Key(region.key, TARGET.key, space_for(region, TARGET).key)
    store.add_workload(WorkloadRow(region.key, region.text, region.kind, 1, 1))
    store.add_space(key.space, region.key, "{}")
    store.record(Run(key, "t", "[]", "{}", Outcome.OK, Latency(5, ns, ns, 0.0)))


def test_the_newest_contest_decides(database, workload):
    direct, two, four, six, _ = alternatives_of(workload)
    database.record_contest(workload.key, TARGET.key, [entry(direct, 1.0), entry(two, 9.0)])
    database.record_contest(
        workload.key, TARGET.key, [entry(direct, 5e4), entry(four, 2e4), entry(six, None)]
    )
    decision = decide(workload, TARGET, database, ANY)
    assert decision is not None
    assert decision.chosen is four
    assert [(s.alternative.name, s.source) for s in decision.standings] == [
        ("winograd F(4x4)", Source.TOGETHER),
        (DIRECT, Source.TOGETHER),
    ]
    assert str(decision) == "winograd F(4x4): 20.0 µs measured (inputs to 3e+36), direct: 50.0 µs measured"
    exact = decide(workload, TARGET, database, Preference(1e-6))
    assert exact is None  # there is only one way


def test_what_a_contest_did_not_have_is_compared_once_it_is_known(database, workload):
    _, two, four, *_ = alternatives_of(workload)
    database.record_contest(workload.key, TARGET.key, [entry(two, 5e4), entry(four, None)])
    record(database, workload, 3e4)
    for region in four.regions:
        record(database, region, 1.0)
    decision = decide(workload, TARGET, database, ANY)
    assert decision is not None
    assert [(s.alternative.name, s.source) for s in decision.standings] == [
        (DIRECT, Source.APART),
        ("winograd F(2x2)", Source.TOGETHER),
    ]


def test_a_sum_of_another_hour_is_scaled_before_it_is_compared_with_a_contest(database, workload):
    direct, two, four, *_ = alternatives_of(workload)
    database.record_contest(workload.key, TARGET.key, [entry(direct, 5e4), entry(four, 3e4)])
    for alternative, ns in ((direct, 3e4), (four, 1e4), (two, 1.2e4)):
        for region in alternative.regions:
            record(database, region, ns / len(alternative.regions))
    decision = decide(workload, TARGET, database, ANY)
    assert decision is not None
    found = {s.alternative.name: s.latency_ns for s in decision.standings}
    assert decision.chosen is four
    assert 3e4 < found[two.name] <= 3.6e4  # the contest took three times as long as the sums


def test_a_contest_of_other_code_does_not_count(database, workload):
    two = alternatives_of(workload)[1]
    database.record_contest(workload.key, TARGET.key, [replace(entry(two, 1.0), key="old")])
    decision = decide(workload, TARGET, database, ANY)
    assert decision is not None
    assert {s.source for s in decision.standings} <= {Source.ESTIMATED, Source.AT_LEAST, Source.FLOOR}


def test_sums_of_dispatches_decide_once_all_are_known(database, workload):
    for alternative in alternatives_of(workload):
        ns = {DIRECT: 100.0, "winograd F(2x2)": 5.0}.get(alternative.name, 50.0)
        decision = decide(workload, TARGET, database, ANY)
        assert decision is not None
        assert decision.standings[0].source is Source.ESTIMATED
        for region in alternative.regions:
            record(database, region, ns)
    decision = decide(workload, TARGET, database, ANY)
    assert decision is not None
    assert [s.source for s in decision.standings] == [Source.APART] * 5
    assert decision.standings[0].alternative.name == "winograd F(2x2)"
    assert decision.standings[0].latency_ns == 5.0 * len(decision.chosen.regions)


def test_the_compiler_follows_and_says_so(database, workload):
    direct, _, four, *_ = alternatives_of(workload)
    database.record_contest(workload.key, TARGET.key, [entry(direct, 3e5), entry(four, 2e5)])
    done = compile_in_detail(graph(), target=TARGET, database=database)
    assert (
        "winograd F(4x4): 200.0 µs measured (inputs to 3e+36), direct: 300.0 µs measured"
        in done.coverage.details()
    )
    assert len(done.partition.dispatches) == len(four.regions) + 1  # the result is transposed
    exact = compile_in_detail(graph(), target=TARGET, database=database, tolerance=0.0)
    assert len(exact.partition.dispatches) == 2
