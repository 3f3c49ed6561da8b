"""Regions row by row: what the loops of a softmax look like, and that picked rows are copied in vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autotune
from autotune.codegen.backend import compile_schedule
from autotune.compiler.dividing import distinct_workloads, divide
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.region import Workload
from autotune.lower import lower_schedule, program_text
from autotune.target import Target
from cost_models import analytic
from search_spaces.rows.interleaved import InterleavedRecipe
from search_spaces.spaces import space_for

TARGET = Target.parse("x86-64-v4", threads=1)


def softmax(rows: int, width: int) -> Workload:
    b = GraphBuilder("softmax")
    (workload,) = distinct_workloads(divide(b.graph(b.node("Softmax", b.input("x", (rows, width))))))
    return workload


def loops(workload: Workload, **knobs: int | str) -> str:
    space = space_for(workload, TARGET)
    program = workload.program()
    schedule = space.apply(program, {**space.default(), **knobs})
    return program_text(lower_schedule(schedule, program.args))


def test_the_next_row_is_fetched_while_exponentials_are_computed() -> None:
    text = loops(softmax(8, 256), vectors=4)
    assert "prefetch i0[i0.outer, i1.outer * 64 + p1 * 16 + 256]" in text


def test_exponentials_that_are_recomputed_fetch_nothing() -> None:
    assert "prefetch" not in loops(softmax(8, 256), store="inline")


def test_vectors_of_partial_results_are_added_up_in_registers() -> None:
    text = loops(softmax(8, 256), vectors=4)
    assert "unrolled (rk.inner.v.outer, 0, 4)" in text


@pytest.mark.parametrize("op", ["ArgMax", "ReduceMax", "ReduceSum"])
def test_only_the_last_step_of_a_row_has_idle_lanes(op: str) -> None:
    b = GraphBuilder("row")
    along: dict[str, Any] = {"axis": 1} if op == "ArgMax" else {"axes": (1,)}
    (workload,) = distinct_workloads(divide(b.graph(b.node(op, b.input("x", (8, 1007)), **along))))
    before, last = loops(workload, vectors=4).split("for (rk.outer")[1].split("unrolled (rk.inner.outer")[1:3]
    assert "if_then_else" not in before
    assert "if_then_else" in last


def test_rows_picked_by_a_number_are_copied_in_vectors() -> None:
    b = GraphBuilder("gather")
    picked = b.node("Gather", b.input("table", (50, 64)), b.input("index", (7,), "int64"), axis=0)
    (workload,) = distinct_workloads(divide(b.graph(picked)))
    program = workload.program()
    space = space_for(workload, TARGET)
    code = compile_schedule(space.apply(program, space.default()), program.args, TARGET)
    assert "masked.gather" not in code.ir


def gather(rows: int, width: int, count: int) -> Workload:
    b = GraphBuilder("gather")
    taken = b.node("Gather", b.input("x", (rows, width)), b.input("index", (count,), "int64"), axis=0)
    (workload,) = distinct_workloads(divide(b.graph(taken)))
    return workload


def test_looked_up_rows_are_fetched_through_the_index() -> None:
    workload = gather(65536, 256, 65536)
    assert analytic.default_config(space_for(workload, TARGET))["ahead"] == 2048
    assert "i1[min(i0 + 2, 65535)]" in loops(workload, ahead=2048, row_block=1)


def test_what_a_core_keeps_is_not_fetched_ahead() -> None:
    assert "ahead" not in space_for(gather(100, 256, 65536), TARGET).names


def test_far_inputs_are_fetched_through_inlined_stages() -> None:
    b = GraphBuilder("silu")
    out = b.node("Relu", b.node("Sigmoid", b.input("x", (1 << 24,))))
    (workload,) = distinct_workloads(divide(b.graph(out)))
    assert analytic.default_config(space_for(workload, TARGET))["ahead"] == 2048
    assert "prefetch i0[i0.outer * 32 + p0 * 16 + 512]" in loops(workload, ahead=2048, vectors=2)


@pytest.mark.parametrize(("height", "width", "channels"), [(4, 96, 3), (3, 37, 3), (2, 32, 2), (1, 40, 3)])
def test_planes_become_pixels_in_steps_of_whole_vectors(height: int, width: int, channels: int) -> None:
    """Lanes read known places then, also of a row that whole steps do not divide."""
    b = GraphBuilder("planes")
    x = b.node("Cast", b.input("x", (2, channels, height, width)), to="bfloat16")
    graph = b.graph(b.node("Transpose", x, perm=(0, 2, 3, 1)))
    (workload,) = distinct_workloads(divide(graph))
    space = space_for(workload, TARGET)
    assert isinstance(space.recipe, InterleavedRecipe)
    feed = {"x": np.random.default_rng(0).standard_normal((2, channels, height, width)).astype(np.float32)}
    (wanted,), (found,) = evaluate.run(graph, feed).values(), autotune.compile(graph).run(feed).values()
    assert np.array_equal(wanted, found)


def test_channels_of_whole_blocks_are_transposed_in_registers() -> None:
    b = GraphBuilder("planes")
    (workload,) = distinct_workloads(
        divide(b.graph(b.node("Transpose", b.input("x", (1, 4, 8, 64)), perm=(0, 2, 3, 1))))
    )
    assert not isinstance(space_for(workload, TARGET).recipe, InterleavedRecipe)
