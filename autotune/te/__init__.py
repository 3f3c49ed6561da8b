"""Tensor expressions: what is computed, without a word on how.

The names are those of TVM 0.18's ``te``; ``create_schedule`` opens the schedule language of
``autotune.schedule``.
"""

from __future__ import annotations

from typing import Any

from autotune.te.compat import (
    extern,
    gradient,
    hybrid,
    nearbyint,
    power,
    scan,
    size_var,
    var,
)
from autotune.te.evaluate import evaluate
from autotune.te.expr import Expr, IterVar, Var, cast, const
from autotune.te.functions import (
    abs,
    ceil,
    cos,
    cosh,
    erf,
    exp,
    floor,
    floordiv,
    floormod,
    fmod,
    indexdiv,
    indexmod,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    pow,
    round,
    rsqrt,
    sigmoid,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
    truncdiv,
    truncmod,
)
from autotune.te.instructions import call_llvm_pure_intrin, reinterpret, splat
from autotune.te.intrinsic import TensorIntrin, decl_buffer, decl_tensor_intrin, intrinsic_named
from autotune.te.operations import (
    all,
    any,
    argmax,
    argmin,
    comm_reducer,
    compute,
    if_then_else,
    max,
    max_number,
    max_value,
    maximum,
    min,
    min_value,
    minimum,
    placeholder,
    prod,
    reduce_axis,
    sum,
    thread_axis,
)
from autotune.te.tensor import ComputeOp, Operation, PlaceholderOp, Tensor


def create_schedule(ops: Any) -> Any:
    """A fresh ``autotune.schedule.Schedule`` for an operation, a tensor, or a list of them."""
    from autotune.schedule import create_schedule as create  # the one look ahead in the pipeline

    return create(ops)


__all__ = [
    "ComputeOp",
    "Expr",
    "IterVar",
    "Operation",
    "PlaceholderOp",
    "Tensor",
    "TensorIntrin",
    "Var",
    "abs",
    "all",
    "any",
    "argmax",
    "argmin",
    "call_llvm_pure_intrin",
    "cast",
    "ceil",
    "comm_reducer",
    "compute",
    "const",
    "cos",
    "cosh",
    "create_schedule",
    "decl_buffer",
    "decl_tensor_intrin",
    "erf",
    "evaluate",
    "exp",
    "extern",
    "floor",
    "floordiv",
    "floormod",
    "fmod",
    "gradient",
    "hybrid",
    "if_then_else",
    "indexdiv",
    "indexmod",
    "intrinsic_named",
    "isinf",
    "isnan",
    "log",
    "log1p",
    "log2",
    "log10",
    "max",
    "max_number",
    "max_value",
    "maximum",
    "min",
    "min_value",
    "minimum",
    "nearbyint",
    "placeholder",
    "pow",
    "power",
    "prod",
    "reduce_axis",
    "reinterpret",
    "round",
    "rsqrt",
    "scan",
    "sigmoid",
    "sin",
    "sinh",
    "size_var",
    "splat",
    "sqrt",
    "sum",
    "tan",
    "tanh",
    "thread_axis",
    "trunc",
    "truncdiv",
    "truncmod",
    "var",
]
