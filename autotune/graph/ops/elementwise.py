"""Unary elementwise operators. Input: x of any shape; output: the same shape.

Parameters are attributes: Clip(min, max: floats, each may be absent), LeakyRelu(alpha=0.01),
Elu(alpha=1), HardSigmoid(alpha=0.2, beta=0.5), Gelu(approximate="none"|"tanh"), Cast(to=dtype),
IsInf(detect_negative=1, detect_positive=1).
Dropout is the identity: graphs are for inference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array, Attrs, TensorType
from autotune.graph.ops.common import FLOATS, Expr, accumulated_in, at, float_attr, stage, str_attr
from autotune.graph.ops.definition import Arrays, Attribute, OpDef, Tensors, Types
from autotune.graph.ops.registry import define
from autotune.te.conversion import converted
from autotune.te.dtypes import DTYPES, STORAGE_DTYPES

ArrayRule: TypeAlias = Callable[[Array, Attrs], Array]
ExprRule: TypeAlias = Callable[[Expr, Attrs], Expr]

NUMERIC = tuple(d for d in DTYPES if d != "bool")
_SQRT_HALF = math.sqrt(0.5)
_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)


def define_unary(
    name: str,
    reference: ArrayRule,
    expression: ExprRule,
    attributes: Mapping[str, Attribute] | None = None,
    dtypes: tuple[str, ...] = FLOATS,
    result: str | None = None,
    wide: bool = False,
    **facts: Any,  # other fields of OpDef
) -> OpDef:
    """Define an operator of one operand; a ``wide`` one, of several steps, computes halves in float32."""

    def infer(types: Types, attrs: Attrs) -> list[TensorType]:
        x = at(types, 0)
        if x.dtype not in dtypes:
            raise GraphError(f"{name} does not take {x.dtype}; it takes {', '.join(dtypes)}")
        if "to" not in attrs:
            return [TensorType(x.shape, result or x.dtype)]
        to = str_attr(attrs, "to")
        if to not in STORAGE_DTYPES:
            raise GraphError(f"Cast: unknown dtype {to!r}; known: {', '.join(STORAGE_DTYPES)}")
        return [TensorType(x.shape, to)]

    def run(arrays: Arrays, attrs: Attrs) -> list[Array]:
        x = at(arrays, 0)
        with np.errstate(all="ignore"):
            value = np.asarray(reference(x.astype(accumulated_in(x.dtype.name)) if wide else x, attrs))
        return [converted(value, infer([TensorType.of(x)], attrs)[0].dtype)]

    def compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
        x = at(tensors, 0)

        def element(*index: Expr) -> Expr:
            if not wide:
                return expression(x(*index), attrs)
            return te.cast(expression(te.cast(x(*index), accumulated_in(x.dtype)), attrs), x.dtype)

        return [stage(x.shape, element, names[0])]

    return define(name, "elementwise", (1, 1), infer, run, compute, attributes or {}, **facts)


def _simple(
    name: str, reference: Callable[[Array], Array], expression: Callable[[Expr], Expr], **facts: Any
) -> OpDef:
    return define_unary(name, lambda x, _: reference(x), lambda x, _: expression(x), **facts)


def _erf(x: Array) -> Array:
    from scipy.special import erf

    return np.asarray(erf(x))


def _sigmoid(x: Array) -> Array:
    from scipy.special import expit

    return np.asarray(expit(x))


def _bound(attrs: Attrs, key: str, dtype: str) -> float | int:
    """Return a bound of Clip, brought into the range of an integer dtype."""
    value = float_attr(attrs, key)
    if dtype in FLOATS:
        return value
    limits = np.iinfo(dtype)
    return int(max(limits.min, min(limits.max, value)))


def _clip(x: Array, attrs: Attrs) -> Array:
    for key, bound in (("min", np.maximum), ("max", np.minimum)):
        if key in attrs:
            x = bound(x, x.dtype.type(_bound(attrs, key, str(x.dtype))))
    return x


def _clip_expr(x: Expr, attrs: Attrs) -> Expr:
    if "min" in attrs:
        x = te.maximum(x, te.const(_bound(attrs, "min", x.dtype), x.dtype))
    if "max" in attrs:
        x = te.minimum(x, te.const(_bound(attrs, "max", x.dtype), x.dtype))
    return x


def _sign_expr(x: Expr) -> Expr:
    zero, one = te.const(0, x.dtype), te.const(1, x.dtype)
    return te.if_then_else(x > zero, one, te.if_then_else(x < zero, zero - one, x))  # NaN stays


def _gelu(x: Array, attrs: Attrs) -> Array:
    if attrs["approximate"] == "tanh":
        bent = np.tanh(_SQRT_2_OVER_PI * (x + 0.044715 * x * x * x))
    else:
        bent = _erf(x * _SQRT_HALF)
    return np.asarray(0.5 * x * (1 + bent))


def _gelu_expr(x: Expr, attrs: Attrs) -> Expr:
    if attrs["approximate"] == "tanh":
        return x * 0.5 * (te.tanh((x + x * x * x * 0.044715) * _SQRT_2_OVER_PI) + 1.0)
    return x * 0.5 * (te.erf(x * _SQRT_HALF) + 1.0)


def _hard_sigmoid(x: Array, attrs: Attrs) -> Array:
    return np.asarray(np.clip(float_attr(attrs, "alpha") * x + float_attr(attrs, "beta"), 0, 1))


def _hard_sigmoid_expr(x: Expr, alpha: float, beta: float) -> Expr:
    return te.maximum(te.minimum(x * alpha + beta, 1.0), 0.0)


def _isinf(x: Array, attrs: Attrs) -> Array:
    above, below = bool(attrs["detect_positive"]), bool(attrs["detect_negative"])
    return np.asarray((np.isposinf(x) & above) | (np.isneginf(x) & below))


def _isinf_expr(x: Expr, attrs: Attrs) -> Expr:
    signs = [s for s, key in ((1, "detect_positive"), (-1, "detect_negative")) if attrs[key]]
    found = [x == te.const(sign * math.inf, x.dtype) for sign in signs]
    return te.any(*found) if found else x > te.const(math.inf, x.dtype)  # never; a program reads its inputs


def _cast_expr(x: Expr, attrs: Attrs) -> Expr:
    to = str_attr(attrs, "to")
    x = te.cast(x, "float32") if to == "bool" and x.dtype not in DTYPES else x
    return x != te.const(0, x.dtype) if to == "bool" != x.dtype else te.cast(x, to)


_simple("Sqrt", np.sqrt, te.sqrt, positive_inputs=(0,))
_simple("Exp", np.exp, te.exp)
_simple("Log", np.log, te.log, positive_inputs=(0,))
_simple("Erf", _erf, te.erf)
_simple("Sin", np.sin, te.sin)
_simple("Cos", np.cos, te.cos)
_simple("Tan", np.tan, te.tan)
_simple("Sinh", np.sinh, te.sinh)
_simple("Cosh", np.cosh, te.cosh)
_simple("Tanh", np.tanh, te.tanh)
_simple("Asin", np.arcsin, te.asin)
_simple("Acos", np.arccos, te.acos)
_simple("Atan", np.arctan, te.atan)
_simple("Asinh", np.arcsinh, te.asinh)
_simple("Acosh", np.arccosh, te.acosh)
_simple("Atanh", np.arctanh, te.atanh)
_simple("Sigmoid", _sigmoid, te.sigmoid)
_simple("Floor", np.floor, te.floor)
_simple("Ceil", np.ceil, te.ceil)
_simple("Round", np.rint, te.round)
_simple("Reciprocal", np.reciprocal, lambda x: 1.0 / x, positive_inputs=(0,))
_simple(  # log(1 + e^x), written so that large x does not overflow
    "Softplus",
    lambda x: np.logaddexp(x, 0),
    lambda x: te.maximum(x, 0.0) + te.log(te.exp_nonpositive(-te.abs(x)) + 1.0),
    wide=True,
)
_simple(
    "HardSwish",
    lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    lambda x: x * _hard_sigmoid_expr(x, 1 / 6, 0.5),
    wide=True,
)
define_unary("IsNaN", lambda x, _: np.isnan(x), lambda x, _: x != x, result="bool")
define_unary(
    "IsInf",
    _isinf,
    _isinf_expr,
    {"detect_negative": Attribute("int", 1), "detect_positive": Attribute("int", 1)},
    result="bool",
)
define_unary("Sign", lambda x, _: np.sign(x), lambda x, _: _sign_expr(x), dtypes=NUMERIC)
define_unary("Abs", lambda x, _: np.abs(x), lambda x, _: te.abs(x), dtypes=NUMERIC)
define_unary("Neg", lambda x, _: np.negative(x), lambda x, _: -x, dtypes=NUMERIC)
define_unary(
    "Relu",
    lambda x, _: np.maximum(x, 0),
    lambda x, _: te.maximum(x, te.const(0, x.dtype)),
    dtypes=NUMERIC,
)
define_unary(
    "Clip",
    _clip,
    _clip_expr,
    {"min": Attribute("float"), "max": Attribute("float")},
    dtypes=NUMERIC,
)
define_unary(
    "LeakyRelu",
    lambda x, a: np.where(x < 0, float_attr(a, "alpha") * x, x),
    lambda x, a: te.if_then_else(x < 0.0, x * float_attr(a, "alpha"), x),
    {"alpha": Attribute("float", 0.01)},
    wide=True,
)
define_unary(
    "Elu",
    lambda x, a: np.where(x < 0, float_attr(a, "alpha") * np.expm1(x), x),
    lambda x, a: te.if_then_else(x < 0.0, (te.exp(x) - 1.0) * float_attr(a, "alpha"), x),
    {"alpha": Attribute("float", 1.0)},
    wide=True,
)
define_unary(
    "HardSigmoid",
    _hard_sigmoid,
    lambda x, a: _hard_sigmoid_expr(x, float_attr(a, "alpha"), float_attr(a, "beta")),
    {"alpha": Attribute("float", 0.2), "beta": Attribute("float", 0.5)},
    wide=True,
)
define_unary(
    "Gelu",
    _gelu,
    _gelu_expr,
    {"approximate": Attribute("str", "none", choices=("none", "tanh"))},
    wide=True,
)
define_unary(
    "Cast",
    lambda x, a: converted(x, str_attr(a, "to")),
    _cast_expr,
    {"to": Attribute("str", required=True)},
    dtypes=STORAGE_DTYPES,
    is_copy_rule=lambda types, attrs: at(types, 0).dtype == attrs["to"],
)
for _name in ("Identity", "Dropout"):
    define_unary(
        _name, lambda x, _: x, lambda x, _: x, dtypes=STORAGE_DTYPES, is_copy_rule=lambda types, attrs: True
    )
define_unary(
    "Not",
    lambda x, _: np.logical_not(x),
    lambda x, _: x == te.const(False, "bool"),
    dtypes=("bool",),
)
