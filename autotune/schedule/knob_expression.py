"""Expressions of knobs: plain data that a step holds in place of a number, evaluated for one or many configurations.

``("knob", name)`` is the value of a knob, ``("knob", operator, a, b)`` an operation; other leaves are plain values.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from autotune.errors import KnobError
from autotune.schedule.arithmetic import ceil_div, least, most

Expression: TypeAlias = Any
"""A nested tuple as above, or a plain value."""


OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "ceil_div": ceil_div,
    "min": least,
    "max": most,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "&": operator.and_,
    "|": operator.or_,
}
"""The operations of an expression, of single values and of arrays alike."""

_ARITHMETIC = frozenset({"+", "-", "*", "//", "%"})


def is_expression(value: Any) -> bool:
    """Return whether an encoded argument is an expression of knobs."""
    return isinstance(value, tuple) and bool(value) and value[0] == "knob"


def evaluate(expression: Expression, values: Mapping[str, Any]) -> Any:
    """Return the value for the ``values`` of the knobs: single ones, or one array [n] a knob; raises KnobError."""
    if not isinstance(expression, tuple):
        return expression
    if len(expression) == 2:
        name = expression[1]
        if name not in values:
            raise KnobError(
                f"the knob {name!r} has no value in {', '.join(values) or 'an empty configuration'}"
            )
        return values[name]
    _, symbol, a, b = expression
    if symbol not in OPERATORS:
        raise KnobError(
            f"unknown operator {symbol!r} in an expression of knobs; known: {' '.join(OPERATORS)}"
        )
    return OPERATORS[symbol](evaluate(a, values), evaluate(b, values))


def combined_expression(symbol: str, a: Expression, b: Expression) -> Expression:
    """Return ``a symbol b``: a plain value where both are."""
    known = not is_expression(a) and not is_expression(b)
    return OPERATORS[symbol](a, b) if known else ("knob", symbol, a, b)


def knobs_in(value: Any) -> Iterator[str]:
    """Yield names of the knobs in an expression, or in any encoded argument, as often as they occur."""
    if not isinstance(value, tuple):
        return
    if is_expression(value) and len(value) == 2:
        yield value[1]
        return
    for part in value[2:] if is_expression(value) else value:
        yield from knobs_in(part)


def is_arithmetic(expression: Expression) -> bool:
    """Return whether an expression has integers, knobs and ``+ - * // %`` only, as an index map may."""
    if not isinstance(expression, tuple):
        return type(expression) is int
    return len(expression) == 2 or (
        expression[1] in _ARITHMETIC and is_arithmetic(expression[2]) and is_arithmetic(expression[3])
    )


def expression_text(expression: Expression) -> str:
    """Return the expression as Python."""
    if not isinstance(expression, tuple):
        return repr(expression)
    if len(expression) == 2:
        return str(expression[1])
    _, symbol, a, b = expression
    left, right = expression_text(a), expression_text(b)
    if symbol in ("min", "max"):
        return f"{symbol}({left}, {right})"
    return f"-(-{left} // {right})" if symbol == "ceil_div" else f"({left} {symbol} {right})"


__all__ = [
    "OPERATORS",
    "Expression",
    "combined_expression",
    "evaluate",
    "expression_text",
    "is_arithmetic",
    "is_expression",
    "knobs_in",
]
