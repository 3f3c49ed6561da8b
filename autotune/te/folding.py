"""Integer arithmetic that is done while an expression is built, and what it comes to at the edges.

Results wrap to their type. A quotient by zero is 0 and so is the remainder, as in NumPy; the smallest number divided
by -1 wraps to itself.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Literal

from autotune.te.dtypes import wrapped

_FOLDS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b if b else 0,
    "%": lambda a, b: a % b if b else 0,
    "min": min,
    "max": max,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
}

_COMPARES: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}

Outcome = Literal["operand", "constant", "zero"]
"""The result of an operation of an operand and a constant, where it is known."""


def folded(op: str, a: int, b: int, dtype: str) -> int:
    """Return ``a op b`` of two constants of an integer type.

    >>> folded("+", 100, 100, "int8"), folded("//", 7, 0, "int64"), folded("//", -128, -1, "int8")
    (-56, 0, -128)
    """
    value = _FOLDS[op](a, b)
    return int(bool(value)) if dtype == "bool" else wrapped(value, dtype)


def holds(op: str, a: int, b: int) -> bool:
    """Return whether ``a op b`` is true of two constants.

    >>> holds("<=", 3, 3), holds("!=", 3, 3)
    (True, False)
    """
    return _COMPARES[op](a, b)


def by_constant(op: str, value: int) -> Outcome | None:
    """Return the result of ``operand op value``; None where it stays an operation.

    >>> by_constant("*", 1), by_constant("%", 1), by_constant("+", 3)
    ('operand', 'zero', None)
    """
    if (op in ("+", "-") and value == 0) or (op in ("*", "//") and value == 1):
        return "operand"
    if (op == "%" and value in (0, 1)) or (op in ("*", "//") and value == 0):
        return "zero"
    return _by_truth(op, value)


def of_constant(op: str, value: int) -> Outcome | None:
    """Return the result of ``value op operand``; None where it stays an operation.

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


__all__ = ["by_constant", "folded", "holds", "of_constant"]
