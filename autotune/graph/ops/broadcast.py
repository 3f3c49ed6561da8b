"""Elementwise operators of several inputs, with NumPy's multidirectional broadcasting.

Inputs: tensors whose shapes broadcast; output: the broadcast shape, the operands' common dtype
(bool for comparisons and logic, the condition's partner for Where, the base's for Pow).
Mod has fmod (0: sign of the divisor; 1: C's fmod). Integer Div rounds toward zero; by zero it
is 0, and so is Mod of integers.
PRelu's slope broadcasts to x only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attrs, TensorType
from autotune.graph.ops.common import (
    FLOATS,
    Expr,
    at,
    broadcast_shapes,
    broadcasts_to,
    int_attr,
    read_broadcast,
    require_same_dtype,
    stage,
)
from autotune.graph.ops.definition import Arrays, Attribute, OpDef, Tensors, Types
from autotune.graph.ops.registry import define
from autotune.te.conversion import converted
from autotune.te.dtypes import DTYPES, is_float

ArrayRule: TypeAlias = Callable[[Sequence[Array], Attrs], Array]
ExprRule: TypeAlias = Callable[[Sequence[Expr], Attrs], Expr]
TypeRule: TypeAlias = Callable[[str, Types, Attrs], str]  # the result's dtype

NUMERIC = tuple(d for d in DTYPES if d != "bool")
_MANY = 1 << 16


def _same(name: str, types: Types, _: Attrs) -> str:
    dtype = require_same_dtype(name, types)
    if dtype not in NUMERIC:
        raise GraphError(f"{name} does not take {dtype}")
    return dtype


def _compared(name: str, types: Types, _: Attrs) -> str:
    dtype = require_same_dtype(name, types)
    if dtype not in DTYPES:
        raise GraphError(f"{name} does not take {dtype}")
    return "bool"


def _logical(name: str, types: Types, _: Attrs) -> str:
    if require_same_dtype(name, types) != "bool":
        raise GraphError(f"{name} takes bool, got {at(types, 0).dtype}")
    return "bool"


def define_nary(
    name: str,
    arity: tuple[int, int],
    reference: ArrayRule,
    expression: ExprRule,
    dtype_rule: TypeRule = _same,
    attributes: Mapping[str, Attribute] | None = None,
    **facts: Any,  # other fields of OpDef
) -> OpDef:
    def infer(types: Types, attrs: Attrs) -> list[TensorType]:
        present = [at(types, i) for i in range(len(types))]
        dtype = dtype_rule(name, types, attrs)
        return [TensorType(broadcast_shapes(*(t.shape for t in present)), dtype)]

    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        types = [None if a is None else TensorType.of(a) for a in arrays]
        result = infer(types, attrs)[0]
        with np.errstate(all="ignore"):
            value = reference([a for a in arrays if a is not None], attrs)
        return [np.array(converted(np.broadcast_to(value, result.shape), result.dtype))]

    def compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
        operands = [t for t in tensors if t is not None]
        shape = broadcast_shapes(*(t.shape for t in operands))

        def element(*index: Expr) -> Expr:
            return expression([read_broadcast(t, index) for t in operands], attrs)

        return [stage(shape, element, names[0])]

    return define(name, "elementwise", arity, infer, run, compute, attributes or {}, **facts)


def define_binary(
    name: str,
    reference: Callable[[Array, Array], Array],
    expression: Callable[[Expr, Expr], Expr],
    dtype_rule: TypeRule = _same,
    **facts: Any,
) -> OpDef:
    return define_nary(
        name,
        (2, 2),
        lambda xs, _: reference(xs[0], xs[1]),
        lambda xs, _: expression(xs[0], xs[1]),
        dtype_rule,
        **facts,
    )


def _folded(
    name: str,
    reference: Callable[[Array, Array], Array],
    expression: Callable[[Expr, Expr], Expr],
) -> OpDef:
    return define_nary(
        name,
        (1, _MANY),
        lambda xs, _: reduce(reference, xs),
        lambda xs, _: reduce(expression, xs),
        commutative=True,
        is_copy_rule=_is_alone,
    )


def _is_alone(types: Types, _: Attrs) -> bool:
    return len(types) == 1


def _divide(a: Array, b: Array) -> Array:
    if is_float(a.dtype.name):
        return np.asarray(np.divide(a, b))
    return np.asarray((a - np.fmod(a, b)) // b)  # toward zero: what is left over is taken off before


def _divide_expr(a: Expr, b: Expr) -> Expr:
    return a / b if a.dtype in FLOATS else te.truncdiv(a, b)


def _mod(xs: Sequence[Array], attrs: Attrs) -> Array:
    return np.asarray((np.fmod if int_attr(attrs, "fmod") else np.mod)(xs[0], xs[1]))


def _mod_expr(xs: Sequence[Expr], attrs: Attrs) -> Expr:
    a, b = xs
    if not int_attr(attrs, "fmod"):
        return a % b
    return te.fmod(a, b)


def _pow_dtype(name: str, types: Types, _: Attrs) -> str:
    for t in types:
        if t is not None and t.dtype == "bool":
            raise GraphError(f"{name} does not take bool")
    return at(types, 0).dtype


def _pow(xs: Sequence[Array], _: Attrs) -> Array:
    base, exponent = xs
    if is_float(base.dtype.name):
        return np.asarray(np.power(base, exponent.astype(base.dtype)))
    return np.asarray(np.power(base.astype(np.float64), exponent))


def _pow_expr(xs: Sequence[Expr], _: Attrs) -> Expr:
    base, exponent = xs
    if base.dtype in FLOATS:
        return te.pow(base, te.cast(exponent, base.dtype))
    return te.cast(te.pow(te.cast(base, "float64"), te.cast(exponent, "float64")), base.dtype)


def _where_dtype(name: str, types: Types, _: Attrs) -> str:
    if at(types, 0).dtype != "bool":
        raise GraphError(f"{name}: the condition is {at(types, 0).dtype}, not bool")
    return require_same_dtype(name, types[1:])


def _prelu_dtype(name: str, types: Types, attrs: Attrs) -> str:
    x, slope = at(types, 0), at(types, 1)
    if not broadcasts_to(slope.shape, x.shape):
        raise GraphError(f"PRelu: slope of shape {slope.shape} does not broadcast to {x.shape}")
    return _same(name, types, attrs)


def _mean_dtype(name: str, types: Types, attrs: Attrs) -> str:
    dtype = _same(name, types, attrs)
    if dtype not in FLOATS:
        raise GraphError(f"{name} takes floats, got {dtype}")
    return dtype


define_binary("Add", np.add, lambda a, b: a + b, commutative=True, neutral=0)
define_binary("Sub", np.subtract, lambda a, b: a - b, neutral=0)
define_binary("Mul", np.multiply, lambda a, b: a * b, commutative=True, neutral=1)
define_binary("Div", _divide, _divide_expr, neutral=1, positive_inputs=(1,))
define_nary("Pow", (2, 2), _pow, _pow_expr, _pow_dtype, positive_inputs=(0, 1))
define_nary("Mod", (2, 2), _mod, _mod_expr, _same, {"fmod": Attribute("int", 0)}, positive_inputs=(1,))

_folded("Sum", np.add, lambda a, b: a + b)
_folded("Max", np.maximum, te.maximum)
_folded("Min", np.minimum, te.minimum)
define_nary(
    "Mean",
    (1, _MANY),
    lambda xs, _: reduce(np.add, xs) * (1 / len(xs)),
    lambda xs, _: reduce(lambda a, b: a + b, xs) * (1 / len(xs)),
    _mean_dtype,
    commutative=True,
    is_copy_rule=_is_alone,
)

define_binary("Equal", np.equal, lambda a, b: a == b, _compared, commutative=True)
define_binary("Less", np.less, lambda a, b: a < b, _compared)
define_binary("LessOrEqual", np.less_equal, lambda a, b: a <= b, _compared)
define_binary("Greater", np.greater, lambda a, b: a > b, _compared)
define_binary("GreaterOrEqual", np.greater_equal, lambda a, b: a >= b, _compared)
define_binary("And", np.logical_and, te.all, _logical, commutative=True)
define_binary("Or", np.logical_or, te.any, _logical, commutative=True)
define_binary("Xor", np.logical_xor, lambda a, b: a != b, _logical, commutative=True)

define_nary(
    "Where",
    (3, 3),
    lambda xs, _: np.where(xs[0], xs[1], xs[2]),
    lambda xs, _: te.if_then_else(xs[0], xs[1], xs[2]),
    _where_dtype,
)
define_nary(
    "PRelu",
    (2, 2),
    lambda xs, _: np.where(xs[0] < 0, xs[0] * xs[1], xs[0]),
    lambda xs, _: te.if_then_else(xs[0] < te.const(0, xs[0].dtype), xs[0] * xs[1], xs[0]),
    _prelu_dtype,
)
