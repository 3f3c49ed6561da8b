"""Edges between anchors as options: what may be one dispatch is one site."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autotune.compiler import compile_in_detail, distinct_workloads, divide
from autotune.compiler.assemble import assemble
from autotune.compiler.build.build import Building
from autotune.compiler.plan import OPTION, option_key, plan_of, rank
from autotune.compiler.planned import schedule_for
from autotune.compiler.region import region_partition
from autotune.compiler.request import CompileRequest
from autotune.database import Comparison, Database, Latency, WorkloadRow
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.graph.region import Workload
from autotune.passes.fusion.fuse import FusionOptions
from autotune.passes.options import TOGETHER, Option, options_of
from autotune.passes.partition import PartitionOptions, partition
from autotune.passes.preference import Preference
from autotune.passes.substitute import substitute
from autotune.runtime.module import Module
from autotune.target import Target

pytestmark = pytest.mark.registers

CHAINED = PartitionOptions(FusionOptions(chained=0))
"""However little lies between two anchors."""


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def separable(*, twice: bool = False, kernel: int = 1, returned: bool = False) -> Graph:
    """A depthwise convolution with ReLU, then one of 1x1 with a residual."""
    b = GraphBuilder("separable")
    x = b.input("x", (1, 9, 11, 6))
    window = {"layout": "NHWC", "pads": (1,) * 4, "group": 6}
    y = b.node("Relu", b.node("Conv", x, b.constant("w", normal(3, 3, 1, 6)), **window), name="between")
    pads = {"pads": (kernel // 2,) * 4}
    z = b.node("Conv", y, b.constant("v", normal(kernel, kernel, 6, 5)), layout="NHWC", **pads)
    z = b.node("Add", z, b.input("r", (1, 9, 11, 5)), name="z")
    if twice:
        return b.graph(z, b.node("Sigmoid", y, name="s"))
    return b.graph(z, y) if returned else b.graph(z)


def option(workload: Workload, name: str) -> Option:
    return next(option for option in options_of(workload) if option.name == name)


def kinds(graph: Graph) -> list[str]:
    return [workload.kind for workload in distinct_workloads(divide(graph, options=CHAINED))]


def test_two_anchors_are_one_site_that_divides_again() -> None:
    (workload,) = distinct_workloads(divide(separable(), options=CHAINED))
    assert workload.kind == "chain"
    found = {o.name: [region.kind for region in o.regions] for o in options_of(workload)}
    assert found == {
        "apart": ["depthwise", "convolution"],
        "matrix product": ["depthwise", "contraction"],
        "together": ["chain"],
    }
    ops = [[node.op for node in region.region.graph.nodes] for region in option(workload, "apart").regions]
    assert ops == [["Conv", "Relu"], ["Conv", "Add"]]


@pytest.mark.parametrize("change", [{"twice": True}, {"returned": True}, {"kernel": 3}])
def test_no_chain_where_another_reads_what_lies_between_or_windows_overlap(change: dict[str, bool]) -> None:
    assert "chain" not in kinds(separable(**change))


def test_a_graph_by_itself_is_divided_into_single_anchors() -> None:
    found = partition(separable()).dispatches
    assert [dispatch.workload.kind for dispatch in found] == ["depthwise", "convolution"]


def test_anchors_are_computed_together_where_the_estimate_says_so() -> None:
    target = Target.parse("x86-64-v3", threads=2)
    chains = [w for w in distinct_workloads(divide("zoo:mobilenetv2")) if w.kind == "chain"]
    ranked = rank(chains, target, None, Preference())
    assert [ranked[chain.key].chosen.name for chain in chains] == [TOGETHER, "apart", "apart", "apart"]


@pytest.mark.parametrize(
    ("name", "dispatches"), [("apart", ["depthwise", "convolution"]), (TOGETHER, ["chain"])]
)
def test_a_comparison_counts_for_more_than_the_estimate(
    tmp_path: Path, name: str, dispatches: list[str]
) -> None:
    target = Target.parse("x86-64-v3", threads=1)
    (workload,) = distinct_workloads(divide(separable(), options=CHAINED))
    with Database(tmp_path / "tuning.db") as store:
        store.add_target(target)
        store.add_workload(WorkloadRow(workload.key, workload.text, workload.kind, 1, 1))
        found = option(workload, name)
        row = Comparison(found.name, option_key(found, target), Latency(5, 1e4, 1e4, 0.0), won=True)
        store.compared(workload.key, target.key, OPTION, [row], "net")
        plan = plan_of([workload], target, store, Preference())
        assert plan.options[workload.key].name == name
        done = compile_in_detail(
            CompileRequest(separable(), target=target, partition=CHAINED, database=store)
        )
    assert [d.workload.kind for d in done.partition.dispatches] == dispatches


def inverted() -> Graph:
    """A 1x1 convolution to more channels, a depthwise one, and a 1x1 one back."""
    b = GraphBuilder("inverted")
    y = b.node("Conv", b.input("x", (1, 9, 11, 3)), b.constant("u", normal(1, 1, 3, 6)), layout="NHWC")
    window = {"layout": "NHWC", "pads": (1,) * 4, "group": 6}
    y = b.node("Conv", b.node("Relu", y), b.constant("w", normal(3, 3, 1, 6)), **window)
    y = b.node("Conv", b.node("Relu", y), b.constant("v", normal(1, 1, 6, 5)), layout="NHWC")
    return b.graph(b.node("Identity", y, name="z"))


def test_a_longer_chain_is_cut_anywhere_and_an_algorithm_is_chosen_for_each_anchor() -> None:
    (workload,) = distinct_workloads(divide(inverted(), options=CHAINED))
    found = {o.name: [region.kind for region in o.regions] for o in options_of(workload)}
    assert found == {
        "apart": ["convolution", "depthwise", "convolution"],
        "matrix product": ["contraction", "depthwise", "contraction"],
        "matrix product of anchor 1": ["contraction", "depthwise", "convolution"],
        "matrix product of anchor 3": ["convolution", "depthwise", "contraction"],
        "together": ["chain"],
        "apart after 1": ["convolution", "chain"],
        "apart after 2": ["chain", "convolution"],
    }


def test_all_of_them_compute_the_same() -> None:
    parts = divide(inverted(), options=CHAINED)
    (workload,) = distinct_workloads(parts)
    arrays = workload.random_inputs(0)
    (expected,) = workload.reference(arrays)
    target = Target.detect(1)
    for found in options_of(workload):
        divided = substitute(region_partition(workload, arrays), {workload.key: found})
        planned = [schedule_for(w, target, None, {}) for w in distinct_workloads(divided)]
        image, _ = assemble(divided, Building(planned, target).finish(), target, {})
        (result,) = Module(image).run(dict(zip(divided.inputs, arrays[:1], strict=True))).values()
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5, err_msg=found.name)


@pytest.mark.parametrize(("window", "chained"), [({"kernel_shape": (3, 3)}, True), ({}, False)])
def test_a_pool_by_windows_takes_its_convolution_in(
    window: dict[str, tuple[int, int]], chained: bool
) -> None:
    b = GraphBuilder("pooled")
    y = b.node("Conv", b.input("x", (1, 9, 11, 3)), b.constant("w", normal(3, 3, 3, 6)), layout="NHWC")
    op, pads = ("MaxPool", {"pads": (1,) * 4}) if window else ("GlobalAveragePool", {})
    z = b.node(op, b.node("Relu", y), layout="NHWC", **window, **pads)
    assert kinds(b.graph(b.node("Identity", z, name="z"))) == (
        ["chain"] if chained else ["convolution", "pool"]
    )


def test_little_between_two_anchors_stays_in_a_cache_by_itself() -> None:
    assert [w.kind for w in distinct_workloads(divide(separable()))] == ["depthwise", "convolution"]


@pytest.mark.parametrize("name", ["apart", "matrix product", "together"])
def test_a_model_computes_the_same_by_any(name: str) -> None:
    graph, target = separable(), Target.detect(1)
    inputs = {"x": normal(1, 9, 11, 6), "r": normal(1, 9, 11, 5)}
    plain = compile_in_detail(CompileRequest(graph, target=target, partition=CHAINED, algorithm="apart"))
    other = compile_in_detail(CompileRequest(graph, target=target, partition=CHAINED, algorithm=name))
    assert len(other.partition.dispatches) == (1 if name == "together" else 2)
    one, two = (Module(done.image).run(inputs)["z"] for done in (plain, other))
    np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5)


def test_each_step_names_the_nodes_of_the_model_that_it_computes() -> None:
    parts = divide(separable(), options=CHAINED)
    (workload,) = distinct_workloads(parts)
    divided = substitute(parts, {workload.key: option(workload, "apart")})
    first, second = (dispatch.origins for dispatch in divided.dispatches)
    assert "between" in first
    assert "z" in second
    assert not set(first) & set(second)
