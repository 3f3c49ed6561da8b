"""Texts of cells that several experiments share."""

from __future__ import annotations

from autotune.bench.tables import NOTHING, ratio


def interval(ends: tuple[float, float] | None) -> str:
    """Return both ends of an interval of ratios, or a dash.

    >>> interval((0.9, 1.012)), interval(None)
    ('0.90 to 1.01', '–')
    """
    return NOTHING if ends is None else " to ".join(map(ratio, ends))


__all__ = ["interval"]
