"""Loop nests of candidates without a register tile: rows of vectors, several passes over each row."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.te.tensor import ComputeOp, PlaceholderOp
from search_spaces.analysis import ReadForm, operations, read_forms
from search_spaces.nest import CACHE_LINE, Access, Body, Loop, LoopNest, Numbers
from search_spaces.tile_common import item_bytes
from search_spaces.tile_knobs import ceil_div

ROW, COLUMN = "row", "column"


def flat_nest(
    family: str,
    flops: int,
    lanes: int,
    stages: Sequence[ComputeOp],
    rows: int,
    columns: int,
    block: Numbers,
    vectors: Numbers,
    parallel: NDArray[np.bool_],
    *,
    chains: Numbers | None = None,
    recomputed: Numbers | None = None,
    row_operations: Numbers | None = None,
    parts: Numbers | None = None,
    ahead: Numbers | None = None,
    far: frozenset[str] = frozenset(),
    tags: dict[str, Numbers] | None = None,
) -> LoopNest:
    """``rows`` rows of ``columns`` elements; each of ``stages`` passes over a row once.

    ``chains`` [n] is the number of independent accumulations where a stage reduces; ``recomputed`` [n] are
    extra vector instructions a vector of elements; ``row_operations`` [n] are those at the end of a row;
    ``parts`` [n] are pieces of a row that run apart; ``ahead`` [n] is the share of the way that fetching the
    inputs in ``far`` ahead hides.
    """
    n = len(vectors)
    one = np.ones(n)
    width = min(lanes, columns)
    row_block = np.where(block == 0, float(rows), np.minimum(block, rows))
    pieces = one if parts is None else parts
    steps = ceil_div(columns / pieces, vectors * width)
    loops = (
        Loop(COLUMN, pieces, "parallel"),
        Loop(ROW, ceil_div(rows, row_block), "parallel"),
        Loop(ROW, row_block),
        Loop(COLUMN, steps),
        Loop(COLUMN, vectors, "unrolled"),
        Loop(COLUMN, one * width, "vectorized"),
    )
    work = float(sum(max(1, operations(op)) for op in stages))
    extra = np.zeros(n) if recomputed is None else recomputed
    loads = vectors * float(sum(_load_cost(op, lanes) for op in stages))
    if ahead is not None:
        loads = loads + np.where(ahead > 0, _fetches(stages, far, vectors * width), 0.0)
    arithmetic = vectors * (work + extra)
    return LoopNest(
        family=family,
        lanes=lanes,
        flops=float(flops),
        extents={ROW: rows, COLUMN: columns},
        loops=loops,
        accesses=tuple(_accesses(stages, rows, columns, far, ahead)),
        body=Body(
            steps=rows * pieces * steps,
            arithmetic=arithmetic,
            loads=loads,
            stores=vectors,
            chains=arithmetic if chains is None else chains * work,
            registers=vectors * 2 + 2,
            instructions=arithmetic + loads + vectors,
        ),
        tail_operations=None if row_operations is None else rows * pieces * row_operations,
        serial=~parallel,
        tags=tags or {},
    )


def _load_cost(op: ComputeOp, lanes: int) -> float:
    """Load instructions for a vector of elements: 1 contiguous, 1 broadcast, ``lanes`` for a gather."""
    moving = {axis.name for axis in (*op.axis[-1:], *op.reduce_axis[-1:])}
    cost = 0.0
    for read in read_forms(op):
        steps = [axis for axis in read.axes if axis in moving]
        contiguous = not steps or (read.contiguous in steps and read.affine)
        cost += 1.0 if contiguous else float(lanes)
    return cost


def _fetches(stages: Sequence[ComputeOp], far: frozenset[str], elements: Numbers) -> Numbers:
    """Cache lines of the inputs in ``far`` that ``elements`` [n] of a row are [n]."""
    tensors = {read.tensor for op in stages for read in read_forms(op) if read.tensor.name in far}
    lines = (ceil_div(elements * item_bytes(tensor), CACHE_LINE) for tensor in tensors)
    return sum(lines, np.zeros(len(elements)))


def _accesses(
    stages: Sequence[ComputeOp],
    rows: int,
    columns: int,
    far: frozenset[str],
    ahead: Numbers | None,
) -> list[Access]:
    last = stages[-1]
    identity = (((ROW, 1),), ((COLUMN, 1),))
    found = [Access(last.name, item_bytes(last.output(0)), identity, (rows, columns), write=True)]
    for op in stages:
        for read in read_forms(op):
            if isinstance(read.tensor.op, PlaceholderOp):
                fetched = ahead if read.tensor.name in far else None
                found.append(_input(read, op, rows, columns, fetched))
    return found


def _input(read: ReadForm, op: ComputeOp, rows: int, columns: int, ahead: Numbers | None) -> Access:
    """An input as a matrix of what each row touches; its axes only tell which loops move it."""
    size = max(1, math.prod(read.tensor.shape))
    inner = {axis.name for axis in (*op.axis[-1:], *op.reduce_axis[-1:])}
    moves_column = bool(read.axes & inner)
    moves_row = bool((read.axes | read.looked_up) - inner)
    width = min(size, columns) if moves_column else 1
    height = max(1, min(rows, size // width)) if moves_row else 1
    dims = (((ROW, 1),) if moves_row else (), ((COLUMN, 1),) if moves_column else ())
    item, scattered = item_bytes(read.tensor), bool(read.looked_up)
    return Access(read.tensor.name, item, dims, (height, width), ahead=ahead, looked_up=scattered)


__all__ = ["COLUMN", "ROW", "flat_nest"]
