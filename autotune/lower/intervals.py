"""Intervals of integers that are no index arithmetic: of data that a minimum, maximum or division bounds.

An independent judge of what lowering leaves out: it knows only operators that do not wrap around.
"""

from __future__ import annotations

from autotune.te.dtypes import integer_limits, is_float
from autotune.te.expr import Binary, Compare, Const, Expr

Interval = tuple[int, int]


def interval(expr: Expr) -> Interval | None:
    """Return an interval that holds all values of an integer; None for other types."""
    if is_float(expr.dtype) or expr.dtype == "bool":
        return None
    whole = integer_limits(expr.dtype)
    if isinstance(expr, Const):
        return int(expr.value), int(expr.value)
    if not isinstance(expr, Binary) or expr.op not in ("min", "max", "//", "%"):
        return whole
    a, b = interval(expr.a), interval(expr.b)
    if a is None or b is None:
        return whole
    if expr.op in ("min", "max"):
        pick = min if expr.op == "min" else max
        return pick(a[0], b[0]), pick(a[1], b[1])
    if b[0] < 1:
        return whole
    if expr.op == "%":
        return 0, b[1] - 1
    quotients = [end // divisor for end in a for divisor in b]
    return min(quotients), max(quotients)


def decided(node: Compare) -> bool | None:
    """Return the value of a comparison that the intervals of its sides decide; None where they do not."""
    a, b = interval(node.a), interval(node.b)
    if a is None or b is None:
        return None
    always = {
        "<": a[1] < b[0],
        "<=": a[1] <= b[0],
        ">": a[0] > b[1],
        ">=": a[0] >= b[1],
        "==": a[0] == a[1] == b[0] == b[1],
        "!=": a[1] < b[0] or b[1] < a[0],
    }
    opposite = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
    if always[node.op]:
        return True
    return False if always[opposite[node.op]] else None


__all__ = ["Interval", "decided", "interval"]
