"""Timings belong to code: what was measured with other code is never an exact answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import autotune
from autotune.codegen.backend import backend_for, compile_schedule, manifest_of
from autotune.compiler import CompileRequest, compile_in_detail
from autotune.compiler.estimate import TimeSource
from autotune.compiler.plan import OPTION, option_key, plan_of
from autotune.compiler.planned import schedule_for
from autotune.compiler.stale import CodeCheck
from autotune.compiler.tiers import Tier
from autotune.database import Comparison, Database, Hit, Latency, Origin, Ratio, Run, WorkloadRow
from autotune.errors import MissError
from autotune.frontends.model_builder import ModelBuilder
from autotune.graph.region import Workload
from autotune.lower.program import lower_schedule
from autotune.passes.options import options_of
from autotune.passes.preference import Preference
from autotune.schedule.knob import config_to_json
from autotune.target import Target
from cost_models import analytic
from search_spaces.spaces import space_for
from tests.database.examples import record, schedules
from tests.database.stale_mutants import ROOT, Mutant, judged, stored
from tests.search_spaces import workloads as make

TARGETS = ("x86-64-v3", "opencl-generic", "cuda:sm_90")
MLP = "zoo:mlp"


def planned(workload: Workload, target: Target) -> Any:
    return schedule_for(workload, target, None, {}).scheduled


@pytest.mark.parametrize("target", TARGETS)
def test_the_key_is_that_of_the_text_and_not_of_names(target: str) -> None:
    chosen, workload = Target.parse(target), make.matmul(30, 40, 50)
    applied = planned(workload, chosen)
    own = applied.program
    keys = {
        compile_schedule(
            applied.schedule, own.args, chosen, name=name, constants=own.constants, strides=own.strides
        ).key
        for name in ("", "k", "matmul")
    }
    manifest = manifest_of(applied.schedule, own.args, chosen, constants=own.constants, strides=own.strides)
    assert keys == {manifest.key}
    other = planned(make.matmul(30, 40, 52), chosen)
    program = lower_schedule(other.schedule, other.program.args, constants=other.program.constants)
    assert backend_for(chosen.arch).manifest(program, chosen).key not in keys


_KEYS = """
from tests.compiler.test_stale import TARGETS, keys
print(" ".join(keys()))
"""


def keys() -> list[str]:
    found = []
    for name in TARGETS:
        target = Target.parse(name)
        for workload in (make.conv((1, 9, 11, 8), 24, 3, pad=1), make.unary("Softmax", (20, 50), axis=1)):
            applied = planned(workload, target)
            own = applied.program
            found.append(
                manifest_of(
                    applied.schedule, own.args, target, constants=own.constants, strides=own.strides
                ).key
            )
    return found


def test_another_process_gives_the_same_keys() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _KEYS],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == keys()


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    """A database in which the schedules of all workloads of a model were confirmed twice as fast as the default."""
    path, target, rng = tmp_path / "tuning.db", Target.parse("host", threads=1), np.random.default_rng(0)
    parts = autotune.compiler.divide(MLP)
    with Database(path) as database:
        for dispatch in parts.dispatches:
            workload = dispatch.workload
            space = space_for(workload, target)
            default, *others = [analytic.default_config(space), *space.random(rng, 4)]
            other = next(config for config in others if config != default)
            for config, ns, name, origin in (
                (default, 100.0, "d", Origin.DEFAULT),
                (other, 50.0, "t", Origin.SEARCH),
            ):
                trace, text = space.schedule(config).trace.to_json(), config_to_json(config)
                record(database, workload, target, trace, ns, name, origin, text)
            runs = database.records(workload=workload.key)
            both = schedules(*zip(runs, (100.0, 50.0), strict=True), won=64 * "t")
            database.compared(workload.key, target.key, "schedule", both, "net")
    return path


def request(path: Path) -> CompileRequest:
    return CompileRequest(MLP, target="host", threads=1, database=path)


def test_what_is_measured_is_exact_until_its_code_changes(
    tuned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = compile_in_detail(request(tuned))
    assert {one.tier for one in before.plan.schedules.values()} == {Tier.EXACT}
    assert not before.coverage.missed
    with Database(tuned) as database:
        database.session.write(
            lambda connection: connection.exec_driver_sql(f"UPDATE runs SET code = '{64 * '0'}'")
        )
    after = compile_in_detail(request(tuned))
    assert {one.tier for one in after.plan.schedules.values()} == {Tier.STALE}
    assert len(after.coverage.missed) == len(after.coverage.dispatches)
    for key, one in after.plan.schedules.items():
        assert one.trace == before.plan.schedules[key].trace  # it is expected to be as fast
        assert "code: this version's here, that of another version there" in one.reason
        assert one.reason.startswith("expected 2.00× ")
    with pytest.raises(MissError, match="nothing was searched"):
        autotune.compile(MLP, database=tuned, threads=1, require_hit=True)


def test_a_run_without_a_key_is_stale(tuned: Path) -> None:
    with Database(tuned) as database:
        database.session.write(lambda connection: connection.exec_driver_sql("UPDATE runs SET code = ''"))
    done = compile_in_detail(request(tuned))
    assert {one.tier for one in done.plan.schedules.values()} == {Tier.STALE}


def test_a_query_says_whether_it_has_checked(tuned: Path) -> None:
    def codes(**options: bool) -> set[str | None]:
        return {a.code for a in autotune.query(MLP, database=tuned, threads=1, **options)}

    assert (codes(), codes(check_code=True)) == ({"not checked"}, {"checked"})
    with Database(tuned) as database:
        database.session.write(lambda connection: connection.exec_driver_sql("UPDATE runs SET code = 'x'"))
    assert (codes(), codes(check_code=True)) == ({"not checked"}, {"stale"})


def test_a_schedule_that_was_measured_again_replaces_its_stale_run(tmp_path: Path) -> None:
    target, workload = Target.parse("x86-64-v3", threads=1), make.matmul(30, 40, 50)
    default = schedule_for(workload, target, None, {}).trace.to_json()
    with Database(tmp_path / "tuning.db") as database:
        record(database, workload, target, default, 100.0, "d", Origin.DEFAULT)
        database.session.write(lambda connection: connection.exec_driver_sql("UPDATE runs SET code = 'x'"))
        record(database, workload, target, default, 90.0, "d", Origin.DEFAULT)
        old, new = database.records()
        assert (old.code, old.latency_ns, new.latency_ns) == ("x", 100.0, 90.0)
        found = database.lookup(workload.key, target.key, space_for(workload, target).key)
        assert isinstance(found, Hit)
        assert found.best == found.default == new
        plan = CodeCheck(target).plan(
            lambda stale: plan_of([workload], target, database, Preference(), stale=stale)
        )
        assert [one.tier for one in plan.schedules.values()] == [Tier.EXACT]


def test_a_comparison_of_algorithms_is_stale_with_a_schedule_of_its_winner(tmp_path: Path) -> None:
    target = Target.parse("x86-64-v3", threads=1)
    workload = make.attention((2, 20, 16), 24, 16)
    direct, other = options_of(workload)
    with Database(tmp_path / "tuning.db") as database:
        for region in other.regions:
            trace = schedule_for(region, target, None, {}).trace.to_json()
            record(database, region, target, trace, 100.0, "d", Origin.DEFAULT)
        database.add_workload(WorkloadRow.of(workload))
        rows = [
            Comparison(direct.name, option_key(direct, target), Latency(5, 2e3, 2e3, 1.0)),
            Comparison(
                other.name,
                option_key(other, target),
                Latency(5, 1e3, 1e3, 1.0),
                won=True,
                ratio=Ratio(0.5, (0.4, 0.6)),
            ),
        ]
        database.compared(workload.key, target.key, OPTION, rows, "net")

        def first() -> Any:
            plan = CodeCheck(target).plan(
                lambda stale: plan_of([workload], target, database, Preference(), stale=stale)
            )
            return plan.rankings[workload.key].times[0]

        assert (first().option.name, first().source) == (other.name, TimeSource.MEASURED)
        database.session.write(lambda connection: connection.exec_driver_sql("UPDATE runs SET code = 'x'"))
        assert (first().option.name, first().source, first().ratio) == (other.name, TimeSource.STALE, None)
        for region in other.regions:  # its default is measured again, after the comparison
            trace = schedule_for(region, target, None, {}).trace.to_json()
            record(database, region, target, trace, 100.0, "d", Origin.DEFAULT)
        assert first().source is TimeSource.STALE


def test_what_a_mutant_generates_otherwise_is_stale_and_nothing_else(tmp_path: Path) -> None:
    """Another bound of erf, which Gelu alone has, by LLVM and PTX.

    `python -m tests.database.stale_mutants 40` judges mutants that it draws.
    """
    file, database = "autotune/codegen/llvm/vector_math/functions.py", tmp_path / "tuning.db"
    source = (ROOT / file).read_text(encoding="utf-8")
    mutant = Mutant(file, 0, "4.0 → 5.0", source.replace("4.0", "5.0"))
    before = stored(database)
    unchanged, changed = judged(None, database, before), judged(mutant, database, before)
    assert (unchanged.changed, unchanged.failed) == (0, "")
    assert (changed.changed, changed.missed, changed.failed) == (3, (), "")


def two_products() -> onnx.ModelProto:
    b = ModelBuilder("two")
    first = b.node("MatMul", [b.input("x", (8, 16)), b.normal("w", (16, 24), 0.2)], "first")
    b.node("MatMul", [b.node("Softmax", [first], "shares"), b.normal("v", (24, 40), 0.2)], "y")
    return b.finish(["y"])


@pytest.mark.usefixtures("shared_pools")
def test_a_job_measures_what_is_stale_first_and_forgets_nothing(tmp_path: Path) -> None:
    """The default, then the fastest of before; lookups see the new runs alone, the database has both."""
    path, model = tmp_path / "tuning.db", tmp_path / "two.onnx"
    model.write_bytes(two_products().SerializeToString())

    def tuned(trials: int) -> list[Run]:
        budget = autotune.Budget(trials=trials)
        options = {"threads": 1, "time_model": False, "quiet": True}
        autotune.tune(str(model), budget=budget, database=path, **options)
        with Database(path) as database:
            return database.records()

    before = tuned(5)
    assert all(run.code for run in before if run.latency)
    with Database(path) as database:
        database.session.write(lambda connection: connection.exec_driver_sql("UPDATE runs SET code = 'x'"))
    both = tuned(7)
    first, again = both[: len(before)], both[len(before) :]
    assert {run.code for run in first} == {"x"}
    stale = {(run.key, run.trace_key) for run in first}
    # Of the workloads that both jobs came to: which options one opens depends on what it measured.
    known = {run.key for run in first}
    defaults = [run for run in again if run.origin is Origin.DEFAULT and run.key in known]
    assert 2 <= len(defaults) == len({run.key for run in defaults})
    assert {(run.key, run.trace_key) for run in defaults} <= stale
    begun = {run.key: run for run in reversed(again) if run.key in known}  # the first of each
    assert {(run.key, run.trace_key) for run in begun.values()} <= stale
    with Database(path) as database:
        for run in defaults:
            found = database.lookup(run.key.workload, run.key.target, run.key.space)
            assert isinstance(found, Hit)
            assert found.default is not None
            assert found.default.code == run.code
