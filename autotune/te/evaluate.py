"""The unscheduled meaning of tensor expressions, by NumPy over whole index grids.

This is the first of the three executions that must agree (the others are the loop-IR interpreter and machine
code). It is written for independence and clarity; a stage is worked out in parts of 16 million points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autotune.te.accesses import checked
from autotune.te.depth import walks_deep
from autotune.te.dtypes import is_float
from autotune.te.expr import Expr, Reduce, Var
from autotune.te.reductions import shipped_name
from autotune.te.sequential import SequentialOp
from autotune.te.sequential_run import run_statements
from autotune.te.sizes import closed, open_sizes, solved
from autotune.te.tensor import ComputeOp, Epilogue, Operation, Tensor, post_order
from autotune.te.values import value_of

Array = np.ndarray[Any, Any]


@walks_deep
def evaluate(tensors: Sequence[Tensor], inputs: Mapping[Tensor, Array]) -> list[Array]:
    """Return values of ``tensors`` for the given placeholder arrays.

    Raises KeyError on a missing one, LoweringError for an index that leaves its tensor, and InputError for a wrong one
    among indices that are data.
    """
    if open_sizes(tensors):
        tensors, inputs = _closed(tensors, inputs)
    values: dict[tuple[Operation, int], Array] = {}
    for tensor, array in inputs.items():
        values[tensor.op, 0] = np.asarray(array)
    for op in post_order(list(tensors)):
        if isinstance(op, SequentialOp):
            with np.errstate(all="ignore"):
                found = run_statements(op, values, lambda e, env, memory: value_of(e, env, memory, {}))
            values |= {(op, index): array for index, array in enumerate(found)}
        elif isinstance(op, ComputeOp):
            for lookup in checked(op).lookups:
                lookup.check(values[lookup.indices.op, lookup.indices.value_index])
            for index, array in enumerate(_run(op, values)):
                values[op, index] = array
        elif (op, 0) not in values:
            raise KeyError(f"no array was given for placeholder {op.name}")
    return [values[t.op, t.value_index] for t in tensors]


def _closed(
    tensors: Sequence[Tensor], inputs: Mapping[Tensor, Array]
) -> tuple[list[Tensor], dict[Tensor, Array]]:
    """Return a program and its inputs with the sizes that the inputs have."""
    sizes = solved([(tensor, np.shape(array)) for tensor, array in inputs.items()])
    made = closed([t.op for t in tensors], sizes)
    given = {made.get(t.op, t.op).output(0): array for t, array in inputs.items()}
    return [made[t.op].output(t.value_index) for t in tensors], given


MOST_POINTS = 1 << 24
"""Points of an operation's loops that are worked out at once."""


def _run(op: ComputeOp, values: Mapping[tuple[Operation, int], Array]) -> list[Array]:
    extents = [axis.extent for axis in op.axis]
    points = math.prod(extents) * math.prod(axis.extent for axis in op.reduce_axis)
    if points <= MOST_POINTS or not extents:
        return _part(op, values, -1, range(0))
    longest = int(np.argmax(extents))
    step = max(1, extents[longest] * MOST_POINTS // points)
    cuts = range(0, extents[longest], step)
    parts = [_part(op, values, longest, range(cut, min(cut + step, extents[longest]))) for cut in cuts]
    return [np.concatenate(arrays, axis=longest) for arrays in zip(*parts, strict=True)]


def _part(
    op: ComputeOp, values: Mapping[tuple[Operation, int], Array], cut: int, places: range
) -> list[Array]:
    """Return the outputs, or for ``places`` of the axis ``cut`` only."""
    axes = op.axis + op.reduce_axis
    env: dict[Expr, Array] = {}
    full: tuple[int, ...] = ()
    for number, axis in enumerate(axes):
        mine = np.asarray(places if number == cut else range(axis.extent), dtype=np.int64)
        full += (len(mine),)
        shape = [1] * len(axes)
        shape[number] = len(mine)
        env[axis] = (axis.start + mine).reshape(shape)
    memo: dict[int, Array] = {}
    reduction = op.reduction
    with np.errstate(all="ignore"):
        if reduction is None:
            parts = [value_of(e, env, values, memo) for e in op.body]
            return [_filled(p, full, e.dtype) for p, e in zip(parts, op.body, strict=True)]
        sources = tuple(_filled(value_of(s, env, values, memo), full, s.dtype) for s in reduction.sources)
        found = _fold(reduction, sources, len(op.axis))
        return found if op.epilogue is None else [_finished(op, op.epilogue, found[0], env, values)]


def _finished(
    op: ComputeOp,
    epilogue: Epilogue,
    accumulated: Array,
    env: Mapping[Expr, Array],
    values: Mapping[tuple[Operation, int], Array],
) -> Array:
    """Return a reduction's value after its epilogue; ``env`` has the loops of the reduction too."""
    rank = len(op.axis)
    outer: dict[Expr, Array] = {axis: env[axis].reshape(env[axis].shape[:rank]) for axis in op.axis}
    value = value_of(epilogue.body, {**outer, epilogue.accumulator: accumulated}, values, {})
    return _filled(value, accumulated.shape, epilogue.body.dtype)


def _filled(array: Array, shape: tuple[int, ...], dtype: str) -> Array:
    return np.array(np.broadcast_to(array, shape), dtype=dtype, order="C")


def _fold(reduction: Reduce, sources: tuple[Array, ...], data_rank: int) -> list[Array]:
    """Fold flattened reduction axes one element at a time through the reducer's own expressions."""
    data_shape = sources[0].shape[:data_rank]
    flat = [s.reshape(*data_shape, math.prod(s.shape[data_rank:])) for s in sources]
    name = shipped_name(reduction.reducer)
    if len(flat) == 1 and name in ("sum", "prod", "max", "min") and flat[0].shape[-1]:
        dtype = flat[0].dtype
        wide = np.float64 if is_float(dtype.name) and name in ("sum", "prod") else dtype
        return [
            np.asarray(
                getattr(flat[0], name)(axis=-1, dtype=wide)
                if name in ("sum", "prod")
                else getattr(flat[0], name)(axis=-1)
            ).astype(dtype)
        ]
    dtypes = tuple(s.dtype for s in reduction.sources)
    start = reduction.reducer.identity(dtypes)
    acc = [np.full(data_shape, value_of(e, {}, {}, {}), dtype=d) for e, d in zip(start, dtypes, strict=True)]
    left = tuple(Var(f"a{i}", d) for i, d in enumerate(dtypes))
    right = tuple(Var(f"b{i}", d) for i, d in enumerate(dtypes))
    step = reduction.reducer.combine(left, right)
    for k in range(flat[0].shape[-1]):
        env: dict[Expr, Array] = dict(zip(left, acc, strict=True))
        env.update(zip(right, (f[..., k] for f in flat), strict=True))
        memo: dict[int, Array] = {}
        acc = [np.asarray(value_of(e, env, {}, memo)).astype(d) for e, d in zip(step, dtypes, strict=True)]
    return acc
