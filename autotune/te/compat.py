"""Names of TVM 0.18's ``te`` that mean the same here under another name, or that are refused with the reason."""

from __future__ import annotations

from typing import Any, NoReturn

from autotune.errors import ScheduleError
from autotune.te.expr import Expr, ExprLike, as_expr, binary, select
from autotune.te.operations import pow as power
from autotune.te.operations import round as nearbyint


def var(name: str = "tindex", dtype: str = "int32") -> NoReturn:
    """Raises ScheduleError: shapes are static.

    >>> var("n")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    autotune.errors.ScheduleError: te.var: shapes are static here: pass the number itself ... (a trace replays on each)
    """
    raise ScheduleError(
        f"te.var: shapes are static here: pass the number itself for {name!r} and build one schedule a shape "
        f"(a trace replays on each)"
    )


size_var = var


def extern(*_: Any, **__: Any) -> NoReturn:
    """Raises ScheduleError: external calls are operators of a graph."""
    raise ScheduleError(
        "te.extern: a tensor expression has no calls of other libraries; write it as te.compute, or use a graph "
        "operator whose dispatch a library serves"
    )


def scan(*_: Any, **__: Any) -> NoReturn:
    """Raises ScheduleError: there are no loops that carry a state."""
    raise ScheduleError(
        "te.scan: loops that carry a state are not supported; unfold the steps into stages, or reduce with "
        "te.comm_reducer"
    )


def hybrid(*_: Any, **__: Any) -> NoReturn:
    """Raises ScheduleError: there is no hybrid script."""
    raise ScheduleError("te.hybrid: hybrid script is not supported; write te.compute with te.if_then_else")


def gradient(*_: Any, **__: Any) -> NoReturn:
    """Raises ScheduleError: nothing is differentiated here."""
    raise ScheduleError(
        "te.gradient: not supported; export the training graph with its backward pass instead"
    )


def truncdiv(a: ExprLike, b: ExprLike) -> Expr:
    """Integer division toward zero (C's); ``floordiv`` is cheaper for indices, which are not negative."""
    x, y = as_expr(a), as_expr(b)
    quotient = binary("//", x, y)
    rounded_down = binary("and", quotient < 0, binary("*", quotient, y) != x)
    return select(rounded_down, quotient + 1, quotient)


def truncmod(a: ExprLike, b: ExprLike) -> Expr:
    """Remainder of the division toward zero; it has the sign of the dividend."""
    x, y = as_expr(a), as_expr(b)
    return binary("-", x, binary("*", truncdiv(x, y), y))


__all__ = [
    "extern",
    "gradient",
    "hybrid",
    "nearbyint",
    "power",
    "scan",
    "size_var",
    "truncdiv",
    "truncmod",
    "var",
]
