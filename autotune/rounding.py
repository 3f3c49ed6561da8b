"""Rounding sizes up to whole units; knows nothing else of the project."""

from __future__ import annotations


def round_up(size: int, unit: int) -> int:
    """Return the least multiple of ``unit`` (1 or more) that is not below ``size``.

    >>> round_up(0, 64), round_up(65, 64), round_up(7, 1)
    (0, 128, 7)
    """
    return -(-size // unit) * unit


__all__ = ["round_up"]
