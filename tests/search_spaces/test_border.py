"""Windows that read padding as it is, not stored: tiles at the border have code of their own."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph.build import GraphBuilder
from autotune.lower import lower_schedule
from autotune.lower.ir import For, If, Stmt, expressions, nodes, sub_statements, walk
from autotune.target import Target
from autotune.te.expr import Expr, Select
from search_spaces import spaces
from search_spaces.analysis import structure
from search_spaces.space import Space
from search_spaces.tile.border import clean
from search_spaces.tile.shape import tile_shape
from tests.search_spaces import workloads as make


def depthwise(size: int, kernel: int = 3, stride: int = 1, pad: int = 1) -> Space:
    """The space of a depthwise convolution of 32 channels."""
    workload = make.conv((1, size, size, 32), 32, kernel, stride=stride, pad=pad, group=32)
    return spaces.space_for(workload, make.AVX512)


def asks(stmt: Stmt) -> list[Expr]:
    """The conditions of a statement without those of what is inside of it."""
    found = [stmt.cond] if isinstance(stmt, If) else []
    return [*found, *(node.cond for node in nodes(*expressions(stmt)) if isinstance(node, Select))]


def conditions(stmt: Stmt) -> int:
    """Return the number of conditions in a statement."""
    return sum(len(asks(part)) for part in walk(stmt))


def within(stmt: Stmt, loops: int = 2) -> list[Stmt]:
    """Return the statements inside of so many loops that repeat and are not written out."""
    if isinstance(stmt, For) and stmt.kind == "serial":
        loops -= 1
    return [stmt] if not loops else [found for part in sub_statements(stmt) for found in within(part, loops)]


@pytest.mark.parametrize(("size", "kernel", "stride", "pad"), [(28, 3, 1, 1), (28, 3, 2, 1), (31, 5, 1, 2)])
@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_tiles_inside_the_border_have_no_conditions(
    size: int, kernel: int, stride: int, pad: int, rows: int
) -> None:
    space = depthwise(size, kernel, stride, pad)
    config = space.default() | {
        "stage": "inline",
        "rows": rows,
        "outer_rows": 1,
        "vectors": 1,
        "tail": "overlap",
    }
    config |= {"unroll": kernel, "unroll_window": True, "row_block": 0, "vector_block": 1}
    program = space.workload.program()
    (lowered,) = lower_schedule(space.apply(program, config), list(program.args)).kernels
    assert conditions(lowered.body)
    assert [conditions(loop) for loop in within(lowered.body)] == [0]


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pad"),
    [(9, 3, 1, 1), (10, 3, 2, 1), (11, 5, 1, 2), (12, 5, 3, 2), (7, 7, 1, 3), (5, 3, 1, 0), (3, 7, 1, 3)],
)
def test_rows_that_reach_no_padding(size: int, kernel: int, stride: int, pad: int) -> None:
    workload = make.conv((1, size, size, 32), 32, kernel, stride=stride, pad=pad, group=32)
    shape = tile_shape(structure(workload.program()), make.AVX512)
    assert shape is not None
    rows = np.arange((size + 2 * pad - kernel) // stride + 1)
    reached = (rows * stride >= pad) & (rows * stride + kernel <= pad + size)
    for axis in shape.spatial:
        begin, end = clean(shape).get(axis, (0, len(rows)))
        assert [begin <= row < end for row in rows] == reached.tolist()


@pytest.mark.parametrize(("size", "tile"), [(14, 4), (28, 4), (28, 2), (31, 6)])
@pytest.mark.parametrize("order", ["tile", "row"])
def test_windows_of_transforms_inside_the_border_do_not_ask_for_their_column(
    size: int, tile: int, order: str
) -> None:
    space = spaces.space_for(make.winograd_input((1, size, size, 64), tile), make.AVX512)
    program = space.workload.program()
    schedule = space.apply(program, space.default() | {"walk": order})
    (lowered,) = lower_schedule(schedule, list(program.args)).kernels
    along = [part for part in walk(lowered.body) if isinstance(part, For) and part.var.name == "w"]
    along = [loop for loop in along if loop.kind == "serial"]
    assert along
    for loop in along:
        asked = [condition for part in walk(loop.body) for condition in asks(part)]
        assert not any(node is loop.var for node in nodes(*asked))


def test_few_channels_are_shared_by_rows() -> None:
    """One worker takes all rows at once; several have as many vectors of channels to share, or blocks of rows."""
    for threads, channels, legal in ((1, 32, False), (2, 32, True), (2, 96, False), (8, 96, True)):
        workload = make.conv((1, 56, 56, channels), channels, 3, pad=1, group=channels)
        space = spaces.space_for(workload, Target.parse("x86-64-v4", threads=threads))
        config = space.default() | {"stage": "inline", "rows": 4, "outer_rows": 1, "vectors": 1}
        config |= {"unroll_window": True, "tail": "overlap", "row_block": 8}
        (rule,) = (rule for rule in space.constraints if rule.name == "inline")
        assert rule.mask({name: np.asarray([value]) for name, value in config.items()}).tolist() == [legal]


def test_pools_of_padded_images_have_tiles_of_both_axes() -> None:
    """Those of others have tiles of one: longer ones would gain nothing."""
    for pads, names in (((1,) * 4, True), ((0,) * 4, False)):
        workload = make.pool((1, 28, 28, 32), kernel_shape=(3, 3), strides=(1, 1), pads=pads)
        space = spaces.space_for(workload, Target.parse("x86-64-v4", threads=1))
        assert ("outer_rows" in space.names) == ("stage" in space.names) == names


def test_what_is_computed_before_the_padding_may_be_stored() -> None:
    for activation, places in ((None, ("inline",)), ("Gelu", ("block", "inline"))):
        b = GraphBuilder("pool")
        x = b.input("x", (1, 28, 28, 32))
        x = x if activation is None else b.node(activation, x)
        window = {"kernel_shape": (3, 3), "strides": (1, 1), "pads": (1,) * 4, "layout": "NHWC"}
        space = spaces.space_for(
            make.of(b, b.node("MaxPool", x, **window), set()), Target.parse("x86-64-v4", 1)
        )
        (stage,) = (knob for knob in space.knobs if knob.name == "stage")
        assert stage.values == places


def test_windows_without_padding_have_nothing_to_store() -> None:
    assert "stage" not in depthwise(9, pad=0).names
