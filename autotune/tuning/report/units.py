"""Latencies, times, sizes and names as text."""

from __future__ import annotations

from collections.abc import Sequence


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


def listed(names: Sequence[str], most: int = 6) -> str:
    """Return the first names, and how many more there are.

    >>> listed(["conv1", "relu1", "pool1"], most=2)
    'conv1, relu1 and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def duration(seconds: float) -> str:
    """Return a time to wait.

    >>> duration(7), duration(75), duration(4000)
    ('7s', '1m15s', '1h06m')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def cut(name: str, width: int | None, head: int | None = None) -> str:
    """Return a name in not more than so many characters; its end says more than its middle. ``head`` of them are from
    its beginning, half unless given.

    >>> cut("resnet50-v1.5-int8.onnx", 16)
    'resnet50…t8.onnx'
    """
    if width is None or len(name) <= width:
        return name
    first = width // 2 if head is None else head
    return f"{name[:first]}…{name[len(name) - (width - first - 1) :]}"


def error_in_words(error: float) -> str:
    """Return a line for users.

    >>> error_in_words(0.00208)
    'error from end to end 0.21 % of the largest result, against float32 and for random inputs'
    """
    return f"error from end to end {100 * error:.2g} % of the largest result, against float32 and for random inputs"


def cut_apart(names: Sequence[str], width: int) -> list[str]:
    """Return names of not more than so many characters; those that would look the same are numbered.

    >>> cut_apart(["block.1.attention.query", "block.1.attended.query", "pool"], 12)
    ['block…uery~1', 'block…uery~2', 'pool']
    """
    found = [cut(name, width) for name in names]
    same: dict[str, list[int]] = {}
    for at, text in enumerate(found):
        same.setdefault(text, []).append(at)
    for places in same.values():
        if len({names[at] for at in places}) > 1:
            for number, at in enumerate(places, 1):
                tail = f"~{number}"
                found[at] = (cut(names[at], max(1, width - len(tail))) + tail)[-width:]
    return found


__all__ = ["cut", "cut_apart", "duration", "error_in_words", "listed", "nanoseconds", "size"]
