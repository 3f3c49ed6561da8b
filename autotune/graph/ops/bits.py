"""Elementwise operators on the bits of integers, with NumPy's broadcasting, and on those of any number.

BitwiseAnd, BitwiseOr, BitwiseXor (a, b), BitwiseNot (x): of one integer type. BitShift(x, amount): direction "LEFT" or
"RIGHT", where copies of the sign come in; by a negative amount, or by the type's width or more, it is 0 or -1.
BitCast(x): to, a dtype of the same size; bool is a byte.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attrs, TensorType
from autotune.graph.ops.broadcast import define_binary, define_nary
from autotune.graph.ops.common import Expr, at, require_same_dtype, stage, str_attr
from autotune.graph.ops.definition import Arrays, Attribute, Tensors, Types
from autotune.graph.ops.elementwise import define_unary
from autotune.graph.ops.registry import define
from autotune.target import ITEM_BYTES
from autotune.te.dtypes import DTYPES, STORAGE_DTYPES, is_float

INTEGERS = tuple(d for d in DTYPES if not is_float(d) and d != "bool")


def _integer(name: str, types: Types, _: Attrs) -> str:
    dtype = require_same_dtype(name, types)
    if dtype not in INTEGERS:
        raise GraphError(f"{name} does not take {dtype}; it takes {', '.join(INTEGERS)}")
    return dtype


def _shift(xs: Sequence[Array], attrs: Attrs) -> Array:
    return np.asarray((np.left_shift if attrs["direction"] == "LEFT" else np.right_shift)(xs[0], xs[1]))


def _shift_expr(xs: Sequence[Expr], attrs: Attrs) -> Expr:
    return (te.left_shift if attrs["direction"] == "LEFT" else te.right_shift)(xs[0], xs[1])


def _cast_infer(types: Types, attrs: Attrs) -> list[TensorType]:
    x, to = at(types, 0), str_attr(attrs, "to")
    if to not in STORAGE_DTYPES or ITEM_BYTES[to] != ITEM_BYTES[x.dtype]:
        raise GraphError(f"BitCast: {x.dtype} and {to} are not of one size")
    return [TensorType(x.shape, to)]


def _cast(arrays: Arrays, attrs: Attrs) -> list[Array]:
    return [np.ascontiguousarray(at(arrays, 0)).view(str_attr(attrs, "to")).reshape(at(arrays, 0).shape)]


def _cast_expr(x: Expr, to: str) -> Expr:
    if x.dtype == "bool":
        x = te.cast(x, "uint8")
    return te.bitcast(x, "uint8") != te.const(0, "uint8") if to == "bool" else te.bitcast(x, to)


def _cast_compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
    x, to = at(tensors, 0), str_attr(attrs, "to")
    return [stage(x.shape, lambda *i: _cast_expr(x(*i), to), names[0])]


define_binary("BitwiseAnd", np.bitwise_and, te.bitwise_and, _integer, commutative=True)
define_binary("BitwiseOr", np.bitwise_or, te.bitwise_or, _integer, commutative=True)
define_binary("BitwiseXor", np.bitwise_xor, te.bitwise_xor, _integer, commutative=True)
define_unary("BitwiseNot", lambda x, _: np.bitwise_not(x), lambda x, _: te.bitwise_not(x), dtypes=INTEGERS)
define_nary(
    "BitShift",
    (2, 2),
    _shift,
    _shift_expr,
    _integer,
    {"direction": Attribute("str", required=True, choices=("LEFT", "RIGHT"))},
)
define(
    "BitCast",
    "elementwise",
    (1, 1),
    _cast_infer,
    _cast,
    _cast_compute,
    {"to": Attribute("str", required=True)},
    is_copy_rule=lambda types, attrs: at(types, 0).dtype == attrs["to"],
)
