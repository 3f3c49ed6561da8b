"""Orders of dispatches: each after what it needs, branches in turns, and memory that is not used again too early."""

from __future__ import annotations

import random

import numpy as np
import pytest

import autotune
from autotune.compiler import compile_in_detail
from autotune.compiler.explain import beside
from autotune.compiler.memory.proof import prove_memory
from autotune.compiler.request import CompileRequest
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.passes.memory.dispatch_order import extended, in_order
from autotune.passes.memory.plan_memory import lower_bound, plan_memory, value_lifetimes
from autotune.passes.partition import OF_A_MODEL, Partition, partition
from tests.passes.random_joins import random_joins


def branches(joined: bool) -> Graph:
    """Two chains of three products each, which begin with one input and end in a sum, or a join."""
    b = GraphBuilder("branches")
    x = b.input("x", (32, 48))
    ends = []
    for side in "ab":
        value = x
        for step in range(3):
            weights = np.random.default_rng(step).standard_normal((48, 48), np.float32)
            value = b.node("MatMul", value, b.constant(f"{side}{step}w", weights), name=f"{side}{step}")
        ends.append(b.node("Softmax", value, name=f"{side}s"))
    return b.graph(b.node("Concat", *ends, axis=1, name="y") if joined else b.node("Add", *ends, name="y"))


def parts_of(graph: Graph) -> Partition:
    return partition(graph, OF_A_MODEL)


def written_before_read(parts: Partition) -> bool:
    known = {*parts.inputs, *parts.constants}
    for dispatch in parts.dispatches:
        if not {parts.placements[v].root for v in dispatch.inputs} <= known:
            return False
        known |= {parts.placements[v].root for v in dispatch.outputs}
    return True


@pytest.mark.parametrize("joined", [False, True])
def test_branches_take_turns(joined: bool) -> None:
    parts = parts_of(branches(joined))
    ordered = in_order(parts, threads=2)
    sides = "".join(d.outputs[0][0] for d in ordered.dispatches if d.outputs[0] != "y")
    assert sides == ("ab" * 9)[: len(sides)]
    assert written_before_read(ordered)
    assert sorted(d.name for d in ordered.dispatches) == sorted(d.name for d in parts.dispatches)
    assert in_order(ordered, threads=2) is ordered


def test_one_worker_or_little_memory_keep_the_order() -> None:
    parts = parts_of(branches(False))
    for kept in (in_order(parts, threads=1), in_order(parts, 2, "memory")):
        assert kept.dispatches == parts.dispatches
        assert kept.order == "memory"


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_stay_in_an_order_that_can_run(seed: int) -> None:
    parts = in_order(parts_of(random_joins(random.Random(seed))), threads=2)
    plan = plan_memory(extended(parts, value_lifetimes(parts)))
    prove_memory(parts, plan)
    assert plan.lower_bound >= lower_bound(value_lifetimes(parts))


@pytest.mark.parametrize("joined", [False, True])
def test_what_runs_beside_what_is_right_and_explained(joined: bool) -> None:
    graph, x = branches(joined), np.random.default_rng(0).standard_normal((32, 48)).astype(np.float32)
    done = compile_in_detail(CompileRequest(graph, threads=2, verify=True))
    found = beside(done.image)
    assert any(
        name.split("_")[0] != other.split("_")[0] for name, others in found.items() for other in others
    )
    with autotune.compile(graph, threads=1) as alone, autotune.compile(graph, threads=2) as module:
        expected = alone(x)
        for _ in range(50):
            assert all(np.array_equal(a, b) for a, b in zip(expected, module(x), strict=True))


def test_the_goal_memory_takes_the_models_order() -> None:
    graph = branches(False)
    least = compile_in_detail(CompileRequest(graph, threads=2, objective="memory"))
    assert least.partition.order == "memory"
    assert least.image.arena_bytes <= compile_in_detail(CompileRequest(graph, threads=2)).image.arena_bytes
