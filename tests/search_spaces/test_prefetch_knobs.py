"""Prefetched inputs and streamed outputs: the same numbers, and no knob where a core keeps what it reads or writes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from autotune.codegen.backend import compile_schedule
from autotune.graph.build import GraphBuilder
from autotune.graph.region import Region, Workload
from autotune.lower import lower_schedule, program_text
from autotune.target import Target
from search_spaces.families.elementwise import RowsRecipe
from search_spaces.spaces import space_for
from tests.search_spaces import workloads as make
from tests.search_spaces.test_integer_windows import run

SMALL = replace(make.host(), l1_bytes=256, l2_bytes=512, l3_bytes=1024)
"""This machine with caches that hold nothing."""
SMALL_AVX512 = replace(make.AVX512, l1_bytes=256, l2_bytes=512, l3_bytes=1024)


def chain(*shape: int) -> Workload:
    b = GraphBuilder("chain")
    return make.of(
        b, b.node("Relu", b.node("Add", b.node("Sigmoid", b.input("x", shape)), b.input("y", shape)))
    )


def two_outputs(*shape: int) -> Workload:
    """The first result is stored, and only the second reads the other input."""
    b = GraphBuilder("two")
    first = b.node("Sigmoid", b.input("x", shape))
    graph = b.graph(first, b.node("Mul", first, b.input("y", shape)))
    return Workload.from_region(Region(graph, frozenset()))


def permuted(dtype: str, perm: tuple[int, ...], *shape: int) -> Workload:
    b = GraphBuilder("permuted")
    return make.of(b, b.node("Transpose", b.input("x", shape, dtype), perm=perm))


CASES: dict[str, Callable[[], Workload]] = {
    "line": lambda: chain(1999),
    "two outputs": lambda: two_outputs(40, 64),
    "rows": lambda: chain(37, 101),
    "rows of vectors": lambda: chain(37, 112),
    "matrix": lambda: permuted("float32", (1, 0), 45, 70),
    "bytes": lambda: permuted("uint8", (1, 0), 130, 67),
    "image": lambda: permuted("float32", (0, 2, 3, 1), 2, 19, 6, 9),
    "heads": lambda: permuted("float32", (0, 2, 1, 3), 1, 13, 4, 24),
    "pool": lambda: make.pool((1, 11, 14, 40), "AveragePool", kernel_shape=(3, 3)),
    "strided pool": lambda: make.pool((2, 9, 12, 24), kernel_shape=(2, 2), strides=(2, 2)),
    "depthwise": lambda: make.conv((1, 10, 13, 24), 24, 3, group=24),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_the_numbers_stay(case: str) -> None:
    space = space_for(CASES[case](), SMALL)
    assert "ahead" in space.names
    for config in space.random(np.random.default_rng(0), 6):
        for computed, expected in zip(*make.run(space, config), strict=True):
            np.testing.assert_allclose(computed, expected, rtol=1e-5, atol=1e-6, err_msg=str(config))


def taken(op: str, axis: int, *index_shape: int) -> Workload:
    b = GraphBuilder("taken")
    return make.of(
        b, b.node(op, b.input("x", (30, 20_000)), b.input("index", index_shape, "int64"), axis=axis)
    )


@pytest.mark.parametrize(
    ("workload", "fetched"),
    [
        (taken("Gather", 0, 50), True),
        (taken("Gather", 1, 50), False),
        (taken("GatherElements", 0, 9, 20_000), False),
        (taken("GatherElements", 1, 30, 50), False),
    ],
)
def test_only_whole_rows_are_looked_up(workload: Workload, fetched: bool) -> None:
    """Elements that are looked up one by one lie anywhere: an iteration would fetch the whole input."""
    space = space_for(workload, SMALL)
    assert isinstance(space.recipe, RowsRecipe)
    assert ("i0" in [read.tensor.name for read in space.recipe.far_reads]) == fetched
    for config in space.random(np.random.default_rng(0), 3):
        program = workload.program()
        compile_schedule(space.apply(program, config), program.args, SMALL)


@pytest.mark.parametrize("case", sorted(CASES))
def test_what_the_caches_hold_is_not_fetched(case: str) -> None:
    assert "ahead" not in space_for(CASES[case](), make.host()).names


def test_a_padded_image_is_a_copy_that_is_not_fetched() -> None:
    padded = make.pool((1, 11, 14, 40), "AveragePool", kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    assert "ahead" not in space_for(padded, SMALL).names


def test_windows_are_fetched_some_tiles_ahead() -> None:
    """512 bytes are two tiles of two pixels of two vectors; the loop over tiles fetches what the tile's sums read."""
    space = space_for(make.pool((1, 11, 14, 32), kernel_shape=(2, 2)), SMALL_AVX512)
    config = space.check({**space.default(), "rows": 2, "vectors": 2, "row_block": 0, "ahead": 512})
    program = space.workload.program()
    text = program_text(lower_schedule(space.apply(program, config), program.args))
    assert "prefetch i0[0, n.h.fused + p1, min(w.outer * 2 + 4, 11) + p2, p3 * 16]" in text


def test_what_a_stored_reduction_reads_is_not_fetched_by_its_reader() -> None:
    b = GraphBuilder("reduction")
    workload = make.of(b, b.node("Softmax", b.input("x", (40, 64)), axis=0))
    space = space_for(workload, SMALL)
    for config in space.random(np.random.default_rng(0), 4):
        for computed, expected in zip(*make.run(space, config), strict=True):
            np.testing.assert_allclose(computed, expected, rtol=1e-5, atol=1e-6, err_msg=str(config))


@pytest.mark.parametrize("case", ["line", "rows of vectors", "two outputs"])
def test_stores_past_the_caches_leave_the_numbers_as_they_are(case: str) -> None:
    """Memory larger than a core's own cache may be stored past it, and is where no cache holds it."""
    space = space_for(CASES[case](), SMALL)
    default = space.default()
    assert default["stream"]
    for stream in (False, True):
        for computed, expected in zip(*make.run(space, {**default, "stream": stream}), strict=True):
            np.testing.assert_allclose(computed, expected, rtol=1e-5, atol=1e-6)
    assert "stream" not in space_for(CASES[case](), make.host()).names


@pytest.mark.parametrize("store", ["row", "inline"])
@pytest.mark.parametrize("row_block", [1, 2])
def test_rows_are_stored_past_the_caches(store: str, row_block: int) -> None:
    space = space_for(make.unary("Softmax", (20, 96)), SMALL)
    config = space.check({**space.default(), "store": store, "row_block": row_block, "stream": True})
    program = space.workload.program()
    code = compile_schedule(space.apply(program, config), program.args, SMALL)
    assert "!nontemporal" in code.ir
    for computed, expected in zip(*make.run(space, config), strict=True):
        np.testing.assert_allclose(computed, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("columns", "streams"), [(200, False), (192, True)])
def test_rows_that_vectors_do_not_divide_are_not_stored_past_the_caches(columns: int, streams: bool) -> None:
    """Every other row of 200 columns is aligned for such stores: half of the lines would be stored so."""
    b = GraphBuilder("transpose")
    crossed = make.of(b, b.node("Transpose", b.input("x", (columns, 160)), perm=(1, 0)))
    for workload in (crossed, make.unary("Softmax", (160, columns))):
        assert ("stream" in space_for(workload, SMALL_AVX512).names) == streams


def test_one_number_of_each_row_is_not_stored_past_the_caches() -> None:
    space = space_for(make.unary("ReduceSum", (20000, 16), axes=(1,), keepdims=0), SMALL)
    assert "stream" not in space.names


SMALL_VNNI = replace(Target.parse("x86-64-v4-vnni", threads=2), l2_bytes=512)


def row_of_bytes(inner: int, columns: int, *, constant: bool = True) -> Workload:
    b = GraphBuilder("row")
    y = b.node("IntegerMatMul", b.input("x", (1, inner), "uint8"), b.input("w", (inner, columns), "int8"))
    return make.of(b, y, {"w"} if constant else set())


@pytest.mark.registers
@pytest.mark.parametrize("seed", range(8))
def test_weights_that_are_read_once_are_fetched_ahead(seed: int) -> None:
    rng = random.Random(seed)
    workload = row_of_bytes(rng.randrange(8, 90), rng.randrange(64, 200))
    run(workload, SMALL_VNNI, rng, {"ahead": rng.choice((1024, 4096))})


def test_weights_that_a_core_keeps_or_that_vary_are_not_fetched() -> None:
    assert "ahead" not in space_for(row_of_bytes(64, 128), Target.parse("x86-64-v4-vnni", threads=2)).names
    assert "ahead" not in space_for(row_of_bytes(64, 128, constant=False), SMALL_VNNI).names
