"""Values of expressions over grids of indices, by NumPy: what each node means."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from autotune.te.conversion import converted
from autotune.te.dtypes import STORAGE_DTYPES
from autotune.te.expr import Binary, Call, Cast, Compare, Const, Expr, IterVar, Not, Read, Select, Var
from autotune.te.tensor import Operation

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
    "exp_nonpositive": np.exp,
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
    "overwritten": lambda x: np.zeros(np.shape(x), bool)[()],
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


def value_of(
    node: Expr,
    env: Mapping[Expr, Array],
    values: Mapping[tuple[Operation, int], Array],
    memo: dict[int, Array],
) -> Array:
    """Return the value of a node: ``env`` has those of variables, ``values`` the arrays of tensors,
    ``memo`` those known."""
    done = memo.get(id(node))
    if done is None:
        done = memo[id(node)] = _computed(node, env, values, memo)
    return done


def _computed(
    node: Expr,
    env: Mapping[Expr, Array],
    values: Mapping[tuple[Operation, int], Array],
    memo: dict[int, Array],
) -> Array:
    def go(child: Expr) -> Array:
        return value_of(child, env, values, memo)

    if isinstance(node, Var):
        known = env[node]
        return known if not isinstance(node, IterVar) else known.astype(node.dtype)
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
    index = tuple(places(go(i), d) for i, d in zip(node.indices, array.shape, strict=True))
    if 0 in array.shape:  # read where a condition does not hold, for every point
        return np.zeros(np.broadcast_shapes(*(i.shape for i in index)), array.dtype)
    return array[index] if index else array


def places(index: Array, extent: int) -> Array:
    """Return the elements that an index reads: negative ones count from the end, and a wrong one reads the
    nearest element.

    >>> places(np.array([2, -1, 7, -9]), 5).tolist()
    [2, 4, 4, 0]
    """
    wide = index.astype(np.int64)
    return np.asarray(np.clip(np.where(wide < 0, wide + extent, wide), 0, max(extent - 1, 0)))


__all__ = ["BINARY", "COMPARE", "FUNCTIONS", "places", "value_of"]
