"""Interval arithmetic: bounds of integers and truth values from those of the variables that they depend on.

Arithmetic that may leave its type wraps, so that nothing is known of it but the type (Moore, Interval Analysis, 1966).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

from autotune.te.dtypes import integer_limits, is_float
from autotune.te.expr import Binary, Cast, Compare, Const, Expr, Not, Select, Var
from autotune.te.folding import holds
from autotune.te.narrow import NARROW_FLOATS
from autotune.te.traversal import children, ordered

Interval = tuple[int, int]
"""Smallest and largest value, both included; of a condition 0 and 1."""

Boxes = Mapping[Expr, Interval]
"""The interval of each variable; of one that is not there only the type is known."""

_UNKNOWN: Interval = (0, 1)


def interval(expr: Expr, boxes: Boxes, memo: dict[int, Interval] | None = None) -> Interval:
    """Return bounds of an integer expression or a condition; ``memo`` keeps those of its parts.

    >>> from autotune.te.expr import IterVar
    >>> i = IterVar("i", 10, "data")
    >>> interval(i * 2 - 3, {i: (0, 9)}), interval(i < 12, {i: (0, 9)}), interval(i // 4, {i: (0, 9)})
    ((-3, 15), (1, 1), (0, 2))
    """
    known = {} if memo is None else memo
    if isinstance(expr, Var):
        return boxes.get(expr) or integer_limits(expr.dtype)
    for node in ordered([expr], lambda n: () if id(n) in known else children(n)):
        if id(node) not in known:
            known[id(node)] = _bounds(node, boxes, known)
    return known[id(expr)]


def _bounds(node: Expr, boxes: Boxes, known: dict[int, Interval]) -> Interval:
    if is_float(node.dtype) or node.dtype in NARROW_FLOATS:
        return _UNKNOWN  # never looked at: what depends on it takes the bounds of its type
    found: Interval | None = None
    if isinstance(node, Const):
        found = int(node.value), int(node.value)
    elif isinstance(node, Var):
        found = boxes.get(node)
    elif isinstance(node, Not):
        low, high = known[id(node.a)]
        found = 1 - high, 1 - low
    elif isinstance(node, Select):
        found = _either(known[id(node.cond)], known[id(node.a)], known[id(node.b)])
    elif isinstance(node, Binary | Compare | Cast) and _is_integer(node.a):
        found = _combined(node, known)
    least, most = integer_limits(node.dtype)
    return found if found is not None and least <= found[0] and found[1] <= most else (least, most)


def _is_integer(node: Expr) -> bool:
    return not is_float(node.dtype) and node.dtype not in NARROW_FLOATS


def _combined(node: Binary | Compare | Cast, known: Mapping[int, Interval]) -> Interval | None:
    a = known[id(node.a)]
    if isinstance(node, Cast):
        return a if node.dtype != "bool" else None
    b = known[id(node.b)]
    return _compared(node.op, a, b) if isinstance(node, Compare) else _BINARY[node.op](a, b)


def _either(cond: Interval, a: Interval, b: Interval) -> Interval:
    if cond[0] == cond[1]:
        return a if cond[0] else b
    return min(a[0], b[0]), max(a[1], b[1])


def _compared(op: str, a: Interval, b: Interval) -> Interval:
    """Return whether a comparison holds for none, some or all of the values."""
    if op in ("==", "!="):
        if a[1] < b[0] or b[1] < a[0]:
            return (int(op == "!="),) * 2
        return (int(op == "=="),) * 2 if a[0] == a[1] == b[0] == b[1] else _UNKNOWN
    least, most = ((a[1], b[0]), (a[0], b[1])) if op[0] == "<" else ((a[0], b[1]), (a[1], b[0]))
    return int(holds(op, *least)), int(holds(op, *most))


def _corners(operation: Callable[[int, int], int]) -> Callable[[Interval, Interval], Interval]:
    """Return the bounds of an operation that is smallest and largest where its operands are."""

    def combine(a: Interval, b: Interval) -> Interval:
        values = [operation(x, y) for x, y in product(a, b)]
        return min(values), max(values)

    return combine


def _quotient(a: Interval, b: Interval) -> Interval | None:
    return _corners(int.__floordiv__)(a, b) if b[0] > 0 else None


def _remainder(a: Interval, b: Interval) -> Interval | None:
    if b[0] < 1:
        return None
    same = b[0] == b[1] and a[0] // b[0] == a[1] // b[0]
    return (a[0] % b[0], a[1] % b[0]) if same else (0, b[1] - 1)


_BINARY: Mapping[str, Callable[[Interval, Interval], Interval | None]] = {
    "+": _corners(int.__add__),
    "-": _corners(int.__sub__),
    "*": _corners(int.__mul__),
    "min": _corners(min),
    "max": _corners(max),
    "and": _corners(min),
    "or": _corners(max),
    "//": _quotient,
    "%": _remainder,
}


__all__ = ["Boxes", "Interval", "interval"]
