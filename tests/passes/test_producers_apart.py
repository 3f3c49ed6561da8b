"""Fusion edges as options: what is fused before an anchor is a dispatch of its own, and the numbers stay the same."""

import numpy as np

from autotune.compiler import compile_in_detail, distinct_workloads, divide
from autotune.compiler.plan import OPTION, option_key, rank
from autotune.compiler.request import CompileRequest
from autotune.database import Comparison, Database, Latency, WorkloadRow
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.graph.region import Workload
from autotune.passes.options import Option, options_of
from autotune.passes.preference import Preference
from autotune.runtime.module import Module
from autotune.target import Target


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def preactivated() -> Graph:
    """Sigmoid, convolution, then a residual and ReLU: one dispatch where everything is fused."""
    b = GraphBuilder("preactivated")
    x, w = b.input("x", (1, 9, 11, 6)), b.constant("w", normal(3, 3, 6, 5))
    y = b.node("Conv", b.node("Sigmoid", x), w, layout="NHWC", pads=(1, 1, 1, 1))
    return b.graph(b.node("Relu", b.node("Add", y, b.input("r", (1, 9, 11, 5))), name="y"))


def apart(workload: Workload) -> list[Option]:
    return [option for option in options_of(workload) if option.name == "producers apart"]


def test_a_region_is_cut_before_its_anchor():
    (workload,) = distinct_workloads(divide(preactivated()))
    (option,) = apart(workload)
    found = [[node.op for node in region.region.graph.nodes] for region in option.regions]
    assert found == [["Sigmoid"], ["Conv", "Add", "Relu"]]


def test_so_is_a_reduction():
    b = GraphBuilder("variance")
    x = b.input("x", (4, 64))
    y = b.node("ReduceMean", b.node("Mul", x, x), axes=(1,), keepdims=1, name="y")
    (workload,) = distinct_workloads(divide(b.graph(y)))
    (option,) = apart(workload)
    assert [region.kind for region in option.regions] == ["elementwise", "reduction"]


def test_what_is_not_fused_has_no_edges():
    b = GraphBuilder("plain")
    x = b.node("MatMul", b.input("x", (4, 8)), b.constant("w", normal(8, 5)), name="y")
    (workload,) = distinct_workloads(divide(b.graph(x)))
    assert apart(workload) == []


def test_a_model_computes_the_same():
    graph, target = preactivated(), Target.detect(1)
    inputs = {"x": normal(1, 9, 11, 6), "r": normal(1, 9, 11, 5)}
    plain, cut = (
        compile_in_detail(CompileRequest(graph, target=target, algorithm=a))
        for a in (None, "producers apart")
    )
    assert len(cut.partition.dispatches) == len(plain.partition.dispatches) + 1
    one, other = (Module(done.image).run(inputs)["y"] for done in (plain, cut))
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_edges_are_cut_where_a_comparison_says_so(tmp_path):
    target = Target.parse("x86-64-v3", threads=1)
    (workload,) = distinct_workloads(divide(preactivated()))
    with Database(tmp_path / "tuning.db") as store:
        store.add_target(target)
        store.add_workload(WorkloadRow(workload.key, workload.text, workload.kind, 1, 1))
        before = rank([workload], target, store, Preference())
        assert not any("apart" in str(ranking) for ranking in before.values())
        (option,) = apart(workload)
        row = Comparison(option.name, option_key(option, target), Latency(5, 1e4, 1e4, 0.0), won=True)
        store.compared(workload.key, target.key, OPTION, [row], "net")
        done = compile_in_detail(CompileRequest(preactivated(), target=target, tolerance=0.0, database=store))
    assert [d.workload.kind for d in done.partition.dispatches] == ["elementwise", "convolution"]
    assert [str(ranking) for ranking in done.coverage.rankings] == ["producers apart: 10.0 µs measured"]
