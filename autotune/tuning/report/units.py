"""Latencies and sizes as text."""

from __future__ import annotations


def nanoseconds(value: float | None) -> str:
    """Return a latency with a unit that fits.

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


def size(nbytes: int) -> str:
    """Return bytes with a unit that fits; a kB is 1000 of them.

    >>> size(640), size(12_345), size(4_930_000)
    ('640 B', '12.3 kB', '4.93 MB')
    """
    if nbytes < 1000:
        return f"{nbytes} B"
    return f"{nbytes / 1e3:.1f} kB" if nbytes < 1_000_000 else f"{nbytes / 1e6:.2f} MB"


__all__ = ["nanoseconds", "size"]
