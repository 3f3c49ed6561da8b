"""Latencies as text."""

from __future__ import annotations


def nanoseconds(value: float | None) -> str:
    """A latency with a unit that fits.

    >>> nanoseconds(1234.0), nanoseconds(2.5e6), nanoseconds(None)
    ('1.2 µs', '2.50 ms', '-')
    """
    if value is None or value == float("inf"):
        return "-"
    if value < 1e3:
        return f"{value:.0f} ns"
    if value < 1e6:
        return f"{value / 1e3:.1f} µs"
    if value < 1e9:
        return f"{value / 1e6:.2f} ms"
    return f"{value / 1e9:.2f} s"


__all__ = ["nanoseconds"]
