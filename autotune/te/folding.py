"""Integer arithmetic that is done while an expression is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

_FOLDS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": min,
    "max": max,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
}

Outcome = Literal["operand", "constant", "zero"]
"""What an operation of an operand and a constant comes to."""


def folded(op: str, a: int, b: int) -> int:
    """``a op b`` of two constants; raises ZeroDivisionError that names the operation."""
    if op in ("//", "%") and b == 0:
        raise ZeroDivisionError(f"{a} {op} 0 in an index expression")
    return _FOLDS[op](a, b)


def by_constant(op: str, value: int) -> Outcome | None:
    """What ``operand op value`` comes to; None where it stays an operation.

    >>> by_constant("*", 1), by_constant("%", 1), by_constant("+", 3)
    ('operand', 'zero', None)
    """
    if (op in ("+", "-") and value == 0) or (op in ("*", "//") and value == 1):
        return "operand"
    if (op == "%" and value == 1) or (op == "*" and value == 0):
        return "zero"
    return _by_truth(op, value)


def of_constant(op: str, value: int) -> Outcome | None:
    """What ``value op operand`` comes to; None where it stays an operation.

    >>> of_constant("+", 0), of_constant("-", 0), of_constant("and", 0)
    ('operand', None, 'constant')
    """
    if (op == "+" and value == 0) or (op == "*" and value == 1):
        return "operand"
    if op == "*" and value == 0:
        return "zero"
    return _by_truth(op, value)


def _by_truth(op: str, value: int) -> Outcome | None:
    if op not in ("and", "or"):
        return None
    return "operand" if bool(value) == (op == "and") else "constant"


__all__ = ["by_constant", "folded", "of_constant"]
