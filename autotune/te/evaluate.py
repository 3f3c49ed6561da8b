"""The unscheduled meaning of tensor expressions, by NumPy over whole index grids.

This is the first of the three executions that must agree (the others are the loop-IR interpreter and machine
code). It is written for independence and clarity; a stage is worked out in parts of 16 million points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from autotune.te.conversion import converted
from autotune.te.depth import walks_deep
from autotune.te.dtypes import STORAGE_DTYPES, is_float
from autotune.te.expr import Binary, Call, Cast, Compare, Const, Expr, IterVar, Not, Read, Reduce, Select, Var
from autotune.te.sequential import SequentialOp
from autotune.te.sequential_run import run_statements
from autotune.te.tensor import ComputeOp, Operation, Tensor, post_order

Array = np.ndarray[Any, Any]


def _erf(x: Array) -> Array:
    from scipy.special import erf

    return erf(x)  # type: ignore[no-any-return]


def _sigmoid(x: Array) -> Array:
    from scipy.special import expit

    return expit(x)  # type: ignore[no-any-return]


def _order_key(x: Array) -> Array:
    x = np.asarray(x)
    bits = x.view(f"int{8 * x.itemsize}")
    limits = np.iinfo(bits.dtype)
    numbers = np.where(bits < 0, limits.min - bits, bits)
    return np.asarray(np.where(np.isnan(x), limits.max, numbers), bits.dtype)


def _reinterpreted(dtype: str, x: Array) -> Array:
    return np.asarray(x).view(dtype)[()]


FUNCTIONS: dict[str, Any] = {
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
    "log2": np.log2,
    "log10": np.log10,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: np.reciprocal(np.sqrt(x)),
    "erf": _erf,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "pow": np.power,
    "fmod": np.fmod,
    "trunc": np.trunc,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "abs": np.abs,
    "order_key": _order_key,
    "atan": np.arctan,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift,
    "right_shift": np.right_shift,
    **{f"bitcast_{dtype}": partial(_reinterpreted, dtype) for dtype in STORAGE_DTYPES},
}
"""NumPy meaning of the elementary functions."""

BINARY: dict[str, Any] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "//": np.floor_divide,
    "%": np.mod,
    "min": np.minimum,
    "max": np.maximum,
    "max_number": np.fmax,
    "and": np.logical_and,
    "or": np.logical_or,
}
"""NumPy meaning of the binary operators."""

COMPARE: dict[str, Any] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
"""NumPy meaning of the comparisons."""


@walks_deep
def evaluate(tensors: Sequence[Tensor], inputs: Mapping[Tensor, Array]) -> list[Array]:
    """Values of ``tensors`` for the given placeholder arrays; raises KeyError on a missing one."""
    values: dict[tuple[Operation, int], Array] = {}
    for tensor, array in inputs.items():
        values[tensor.op, 0] = np.asarray(array)
    for op in post_order(list(tensors)):
        if isinstance(op, SequentialOp):
            with np.errstate(all="ignore"):
                found = run_statements(op, values, lambda e, env, memory: _value(e, env, memory, {}))
            values |= {(op, index): array for index, array in enumerate(found)}
        elif isinstance(op, ComputeOp):
            for index, array in enumerate(_run(op, values)):
                values[op, index] = array
        elif (op, 0) not in values:
            raise KeyError(f"no array was given for placeholder {op.name}")
    return [values[t.op, t.value_index] for t in tensors]


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
    """The outputs, or for ``places`` of the axis ``cut`` only."""
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
            parts = [_value(e, env, values, memo) for e in op.body]
            return [_filled(p, full, e.dtype) for p, e in zip(parts, op.body, strict=True)]
        sources = tuple(_filled(_value(s, env, values, memo), full, s.dtype) for s in reduction.sources)
        return _fold(reduction, sources, len(op.axis))


def _filled(array: Array, shape: tuple[int, ...], dtype: str) -> Array:
    return np.array(np.broadcast_to(array, shape), dtype=dtype, order="C")


def _fold(reduction: Reduce, sources: tuple[Array, ...], data_rank: int) -> list[Array]:
    """Fold flattened reduction axes one element at a time through the reducer's own expressions."""
    data_shape = sources[0].shape[:data_rank]
    flat = [s.reshape(*data_shape, -1) for s in sources]
    name = reduction.reducer.name
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
    acc = [np.full(data_shape, _value(e, {}, {}, {}), dtype=d) for e, d in zip(start, dtypes, strict=True)]
    left = tuple(Var(f"a{i}", d) for i, d in enumerate(dtypes))
    right = tuple(Var(f"b{i}", d) for i, d in enumerate(dtypes))
    step = reduction.reducer.combine(left, right)
    for k in range(flat[0].shape[-1]):
        env: dict[Expr, Array] = dict(zip(left, acc, strict=True))
        env.update(zip(right, (f[..., k] for f in flat), strict=True))
        memo: dict[int, Array] = {}
        acc = [np.asarray(_value(e, env, {}, memo)).astype(d) for e, d in zip(step, dtypes, strict=True)]
    return acc


def _value(
    node: Expr,
    env: Mapping[Expr, Array],
    values: Mapping[tuple[Operation, int], Array],
    memo: dict[int, Array],
) -> Array:
    done = memo.get(id(node))
    if done is None:
        done = memo[id(node)] = _value_of(node, env, values, memo)
    return done


def _value_of(
    node: Expr,
    env: Mapping[Expr, Array],
    values: Mapping[tuple[Operation, int], Array],
    memo: dict[int, Array],
) -> Array:
    def go(child: Expr) -> Array:
        return _value(child, env, values, memo)

    if isinstance(node, Var):
        value = env[node]
        return value if not isinstance(node, IterVar) else value.astype(node.dtype)
    if isinstance(node, Const):
        return np.asarray(node.value, dtype=node.dtype)
    if isinstance(node, Binary):
        return BINARY[node.op](go(node.a), go(node.b))  # type: ignore[no-any-return]
    if isinstance(node, Compare):
        return COMPARE[node.op](go(node.a), go(node.b))  # type: ignore[no-any-return]
    if isinstance(node, Not):
        return np.logical_not(go(node.a))
    if isinstance(node, Select):
        return np.where(go(node.cond), go(node.a), go(node.b))
    if isinstance(node, Cast):
        return converted(go(node.a), node.dtype)
    if isinstance(node, Call):
        return FUNCTIONS[node.name](*[go(a) for a in node.args])  # type: ignore[no-any-return]
    assert isinstance(node, Read), type(node)
    array = values[node.tensor.op, node.tensor.value_index]
    # The side of an if_then_else that is not taken may index out of bounds: any element will do there.
    index = tuple(np.clip(go(i), 0, max(d - 1, 0)) for i, d in zip(node.indices, array.shape, strict=True))
    return array[index] if index else array
