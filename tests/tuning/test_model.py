"""A model as what its dispatches run in."""

from __future__ import annotations

import base64
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from autotune.codegen.llvm import compile_ir
from autotune.compiler import compile_in_detail, distinct_workloads, divide
from autotune.compiler.plan import OPTION, option_key, rank
from autotune.compiler.planned import schedule_for
from autotune.compiler.request import CompileRequest
from autotune.database import Comparison, Database, Latency, Origin, WorkloadRow
from autotune.database.records import SAME_CODE
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.passes.memory.dispatch_order import Aim
from autotune.passes.preference import Preference
from autotune.passes.substitute import substitute
from autotune.schedule.trace import Trace
from autotune.target import Target
from autotune.tuning.jobs.model import MeasuredModel, work_of
from autotune.tuning.measure.inside import InModelReader
from autotune.tuning.measure.interface import Candidate
from autotune.tuning.measure.turns import Rounds
from autotune.tuning.measure.whole_model import Version
from tests.database.examples import record, schedules
from tests.pools import Pools


def test_a_job_ends_with_the_model_that_a_compilation_makes(tmp_path: Path, pools: Pools) -> None:
    """Whatever process has built the code: the names of kernels are the workloads', and the plan is the same."""
    target, parts = Target.detect(1), divide("zoo:tiny_cnn")
    subjects, sites = work_of(parts, target, Preference())
    defaults = [Candidate(s.workload.text, target.to_json(), s.default) for s in subjects]
    with closing(pools.started(1)) as pool:
        keys = [subject.workload.key for subject in subjects]
        code = dict(zip(keys, pool.build(defaults), strict=True))
    with Database(tmp_path / "tuning.db") as database:
        untuned = compile_in_detail(CompileRequest("zoo:tiny_cnn", target=target)).image
        model = MeasuredModel(parts, sites, target, database, Preference(), 0)
        assert model.plan().options == {
            site.workload.key: site.default for site in sites if site.workload.key in model.plan().options
        }
        found = model.gain(code, code, lambda: False)
        assert found is not None
        assert found.ratio == SAME_CODE
        assert model._planned(model.plan(), code).same_code(untuned)
        first, *_ = model.plan().regions(parts.dispatches[0].workload)
        default = schedule_for(first, target, None, {}).trace.to_json()
        record(database, first, target, default, 100.0, "d", Origin.DEFAULT)
        record(database, first, target, Trace().to_json(), 50.0)
        both = schedules(*zip(database.records(), (100.0, 50.0), strict=True), won=64 * "t")
        database.compared(first.key, target.key, "schedule", both, "net")
        tuned = compile_in_detail(CompileRequest("zoo:tiny_cnn", target=target, database=database)).image
        assert model._planned(model.plan(), code).same_code(tuned)
        assert not tuned.same_code(untuned)


def test_a_kernel_that_ends_the_measuring_process_takes_no_other_reading_with_it(
    tmp_path: Path, pools: Pools
) -> None:
    target, parts = Target.detect(1), divide("zoo:tiny_cnn")
    subjects, sites = work_of(parts, target, Preference())
    used = {region.key for site in sites for region in site.default.regions}
    mine = [subject for subject in subjects if subject.workload.key in used]
    with closing(pools.started(1)) as pool:
        built = pool.build([Candidate(s.workload.text, target.to_json(), s.default) for s in mine])
    code = dict(zip((s.workload.key for s in mine), built, strict=True))
    first = next(key for key, b in code.items() if not any(k["hoisted"] for k in b.payload["kernels"]))
    symbols = [kernel["symbol"] for kernel in code[first].payload["kernels"]]
    traps = "".join(f"define void @{s}() {{\n call void @llvm.trap()\n ret void\n}}\n" for s in symbols)
    text = base64.b64encode(compile_ir(f"declare void @llvm.trap()\n{traps}", target)).decode()
    ending = replace(code[first], trace_key="ending", payload={**code[first].payload, "object": text})
    plain = SimpleNamespace(all=sites, several=[], task_of={}, uses=lambda options: dict.fromkeys(code, 1))
    with Database(tmp_path / "tuning.db") as database:
        model = MeasuredModel(parts, sites, target, database, Preference(), 0)
        found = InModelReader(cast(Any, plain), model).read(
            {key: [ending if key == first else b] for key, b in code.items()}, lambda: False
        )
    assert {key for key, readings in found.readings.items() if readings} == code.keys() - {first}
    ((trace, reason),) = found.crashed[first].items()
    assert (len(found.crashed), trace) == (1, ending.trace_key)
    assert reason.startswith("the worker died (SIG")


def test_a_version_has_the_options_that_it_names_whatever_another_job_decides(tmp_path: Path) -> None:
    target, parts = Target.detect(1), divide("zoo:tiny_cnn")
    _, sites = work_of(parts, target, Preference())
    site, other = next((s, o) for s in sites for o in s.options if len(o.regions) != len(s.default.regions))
    with Database(tmp_path / "tuning.db") as database:
        database.add_target(target)
        w = site.workload
        database.add_workload(WorkloadRow(w.key, w.text, w.kind, w.flops, w.bytes))
        model = MeasuredModel(parts, sites, target, database, Preference(), 0)
        told = {key: ranking.chosen for key, ranking in model.rankings().items()}
        row = Comparison(other.name, option_key(other, target), Latency(5, 1.0, 1.0, 0.0), won=True)
        database.compared(w.key, target.key, OPTION, [row], "net")
        (profile,) = model.read([Version(told, {})], Rounds(1), lambda: False)
        assert profile is not None
        assert profile.ns.shape == (1, len(profile.dispatches))
        steps = {name for name, _ in profile.dispatches if name.startswith(f"{site.names[0]}/")}
        assert len(steps) == (0 if site.default.steps is None else len(site.default.regions))
        assert model.rankings()[w.key].chosen is other


def branches(length: int = 3) -> Graph:
    """Two chains of convolutions, one after the other in the graph, that meet at its end."""
    b = GraphBuilder("branches")
    x = b.input("x", (1, 8, 12, 12))
    ends = []
    for side in "ab":
        ends.append(x)
        for number in range(length):
            w = b.constant(f"{side}{number}", np.ones((8, 8, 3, 3), np.float32))
            ends[-1] = b.node("Conv", ends[-1], w, pads=(1, 1, 1, 1), name=f"{side}{number}y")
            ends[-1] = b.node("Relu", ends[-1])
    return b.graph(b.node("Add", *ends, name="y"))


@pytest.mark.parametrize("order", ["concurrency", "memory"])
def test_times_are_those_of_the_dispatches_in_the_order_in_which_they_run(tmp_path: Path, order: Aim) -> None:
    target, graph = Target.detect(2), branches()
    request = CompileRequest(graph, target=target, order=order)
    parts = divide(graph)
    _, sites = work_of(parts, target, Preference())
    with Database(tmp_path / "tuning.db") as database:
        model = MeasuredModel(parts, sites, target, database, Preference(), 0, order=order)
        options = {site.workload.key: site.default for site in sites}
        (profile,) = model.read([Version(options, {})], Rounds(1), lambda: False)
        planned = model._planned(model.plan(), {})
    image = compile_in_detail(request).image
    assert profile is not None
    assert profile.dispatches == [(each.name, each.workload_key) for each in image.dispatches]
    assert planned.same_code(image)
    moved = [name for name, _ in profile.dispatches] != [
        d.name for d in substitute(parts, options).dispatches
    ]
    assert moved == (order == "concurrency")


def test_the_default_of_a_site_is_what_an_untuned_model_uses_whatever_speculative_options_promise() -> None:
    target, parts = Target.parse("x86-64-v4", threads=1), divide("zoo:tiny_cnn")
    _, sites = work_of(parts, target, Preference())
    untuned = rank(distinct_workloads(parts), target, None, Preference())
    several = [site for site in sites if site.workload.key in untuned]
    assert any(option.speculative for site in several for option in site.options)
    assert [site.default for site in several] == [untuned[s.workload.key].chosen for s in several]
