"""Results in the memory of operands that nobody reads any more: in machine code, in the plan, and in its proof."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from autotune.compiler import compile_in_detail
from autotune.compiler.dividing import distinct_workloads, divide
from autotune.compiler.explain import Compilation
from autotune.compiler.memory.chart import memory_svg
from autotune.compiler.memory.proof import prove_memory
from autotune.compiler.request import CompileRequest
from autotune.errors import InternalError
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.passes.memory.plan_memory import Lifetime, align, lower_bound, plan_memory
from autotune.passes.memory.taken_memory import chains, unfolded
from autotune.passes.partition import OF_A_MODEL
from autotune.runtime.module import Module
from autotune.schedule.trace import Trace
from tests.passes.exact_memory import least_bytes

SHAPE = (24, 40)
NBYTES = 24 * 40 * 4


def softmaxes(count: int = 4) -> Graph:
    b = GraphBuilder("softmaxes")
    value = b.input("x", SHAPE)
    for number in range(count):
        value = b.node("Softmax", value, axis=1, name=f"s{number}")
    return b.graph(value)


def plainly(graph: Graph, threads: int = 1) -> Compilation:
    """Compiled without any schedule: the same loops on each machine."""
    schedules = {w.key: Trace() for w in distinct_workloads(divide(graph))}
    return compile_in_detail(CompileRequest(graph, threads=threads, schedules=schedules))


def run_twice(done: Compilation, graph: Graph) -> None:
    """The results are those of the reference, again and again."""
    rng = np.random.default_rng(1)
    given = {v: rng.standard_normal(graph.types[v].shape).astype(np.float32) for v in graph.inputs}
    wanted = evaluate.run(graph, given)
    with Module(done.image) as module:
        for _ in range(2):
            for name, found in module.run(given).items():
                np.testing.assert_allclose(found, wanted[name], rtol=2e-4, atol=2e-5, err_msg=str(graph))


@pytest.mark.parametrize("threads", [1, 2])
def test_softmaxes_after_each_other_hold_one_buffer(threads: int) -> None:
    graph = softmaxes()
    done = plainly(graph, threads)
    plan = done.memory_plan
    workspaces = sum(align(v.nbytes) for v in plan.lifetimes if v.name.startswith("000_softmax/"))
    assert plan.arena_bytes == plan.lower_bound == NBYTES + workspaces
    assert plan.taken == {"s1": "s0", "s2": "s1"}
    assert str(prove_memory(done.partition, plan)) == (
        "memory: 4 reads and 4 writes, 0 of them in place, 2 over an operand, proven"
    )
    assert "s1, over s0" in plan.render()
    assert f"s1: 3840 bytes at {plan.offsets['s0']}\nin the memory of s0" in memory_svg(done.partition, plan)
    run_twice(done, graph)


def test_results_take_no_memory_where_that_is_switched_off() -> None:
    graph = softmaxes()
    done = compile_in_detail(
        CompileRequest(graph, threads=1, partition=replace(OF_A_MODEL, overwriting=False))
    )
    assert done.memory_plan.arena_bytes == done.memory_plan.lower_bound == 2 * NBYTES
    assert not done.memory_plan.taken


def test_what_is_read_later_keeps_its_memory_and_a_wrong_plan_is_found() -> None:
    b = GraphBuilder()
    first = b.node("Softmax", b.input("x", SHAPE), axis=1, name="first")
    second = b.node("Softmax", first, axis=1, name="second")
    third = b.node("Softmax", second, axis=1, name="third")
    graph = b.graph(b.node("Softmax", b.node("Add", first, third), axis=1, name="y"))
    done = plainly(graph)
    plan = done.memory_plan
    assert plan.arena_bytes == plan.lower_bound
    assert "second" not in plan.taken
    prove_memory(done.partition, plan)
    run_twice(done, graph)
    wrong = replace(
        plan, offsets={**plan.offsets, "second": plan.offsets["first"]}, taken={"second": "first"}
    )
    with pytest.raises(
        InternalError, match="reads 'first', of which a part was not written before, or overwritten"
    ):
        prove_memory(done.partition, wrong)


def test_a_result_without_leave_is_found_in_the_memory_of_an_operand() -> None:
    done = plainly(softmaxes())
    with pytest.raises(
        InternalError, match="reads 's0', of which a part is overwritten by the dispatch that reads"
    ):
        prove_memory(done.partition, replace(done.memory_plan, taken={}))


@pytest.mark.parametrize("seed", range(8))
def test_random_chains_compute_their_reference(seed: int) -> None:
    rng = random.Random(seed)
    b = GraphBuilder()
    values = [b.node("Softmax", b.input("x", SHAPE), axis=1)]
    for _ in range(rng.randint(3, 7)):
        last = values[-1]
        kind = rng.choice(("Softmax", "rows", "residual", "reversed", "Relu"))
        if kind == "Softmax":
            values.append(b.node("Softmax", last, axis=rng.choice((0, 1))))
        elif kind == "rows":
            values.append(b.node("Sub", last, b.node("ReduceMean", last, axes=(1,), keepdims=True)))
        elif kind == "residual":
            values.append(b.node("Add", last, rng.choice(values)))
        elif kind == "reversed":
            values.append(b.node("Transpose", b.node("Transpose", last, perm=(1, 0)), perm=(1, 0)))
        else:
            values.append(b.node("Relu", last))
    graph = b.graph(b.node("Softmax", values[-1], axis=1))
    done = (
        plainly(graph, 1 + seed % 2)
        if seed % 4 < 2
        else compile_in_detail(CompileRequest(graph, threads=1 + seed % 2))
    )
    prove_memory(done.partition, done.memory_plan)
    run_twice(done, graph)


@pytest.mark.parametrize("seed", range(20))
def test_plans_of_chains_are_as_small_as_can_be(seed: int) -> None:
    rng = random.Random(seed)
    values, taken = list[Lifetime](), dict[str, str]()
    for number in range(9):
        before = rng.choice(values) if values and rng.random() < 0.5 else None
        if before is None or before.name in taken.values():
            first, nbytes = rng.randint(0, 6), 64 * rng.randint(1, 9)
        else:
            first, nbytes = before.last, before.nbytes
            taken[f"v{number}"] = before.name
        values.append(Lifetime(f"v{number}", nbytes, first, first + rng.choice((0, 1, 2))))
    shared = chains(values, taken)
    plan = unfolded(plan_memory(shared), values, taken)
    assert plan.arena_bytes == least_bytes(shared)
    assert plan.lower_bound == lower_bound(shared) <= lower_bound(values)
    for name, before in taken.items():
        assert plan.offsets[name] == plan.offsets[before]
