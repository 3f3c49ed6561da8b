"""The measurements of this machine as lines, which `autotune devices` shows below the devices."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cost_models.machine import Machine

if TYPE_CHECKING:
    from autotune.target import Target
    from cost_models.calibrated import Calibration

_GROUPS = {
    "one core": (
        ("clock under vector multiply-adds", "hertz", 1e-9, "GHz"),
        ("vector multiply-adds", "arithmetic_ports", 1.0, "a cycle"),
        ("latency of a multiply-add", "latency", 1.0, "cycles"),
        ("products of bfloat16 pairs", "pair_ports", 1.0, "a cycle"),
        ("vector loads", "load_ports", 1.0, "a cycle"),
        ("loads of one element", "scalar_load_ports", 1.0, "a cycle"),
        ("vector stores", "store_ports", 1.0, "a cycle"),
        ("instructions", "issue_width", 1.0, "a cycle"),
        ("adding up a vector's lanes", "fold_cycles", 1.0, "cycles"),
        ("product of two tiles, all cores at once", "tile_cycles", 1.0, "cycles"),
    ),
    "caches and memory": (
        ("latency of L2", "l2_latency", 1.0, "cycles"),
        ("latency of L3", "l3_latency", 1.0, "cycles"),
        ("latency of memory", "memory_latency", 1.0, "cycles"),
        ("from L2, one core", "l2_bytes_per_cycle", 1.0, "bytes a cycle"),
        ("from L3, one core", "l3_bytes_per_cycle", 1.0, "bytes a cycle"),
        ("from memory, one core", "core_stream", 1.0, "bytes a cycle"),
        ("from memory, all cores", "all_streams", 1.0, "bytes a cycle"),
        ("writing ÷ reading a byte", "write_cost", 1.0, "times"),
    ),
    "accesses that cost more": (
        ("load across two cache lines", "line_split_cycles", 1.0, "cycles more"),
        ("load whose page the TLB forgot", "page_cycles", 1.0, "cycles more"),
        ("line evicted by its own set", "conflict_cycles", 1.0, "cycles more"),
        ("each new piece of a row", "short_run", 1.0, "bytes more"),
        ("pieces pages apart, from memory", "scattered", 100.0, "% more a byte"),
        ("the same from L3, of that", "l3_lost", 100.0, "%"),
        ("small pages ÷ huge pages", "huge_page_gain", 1.0, "times"),
    ),
    "several workers": (
        ("waking all of them", "fork_seconds", 1e6, "µs"),
        ("barrier between kernels", "barrier_seconds", 1e6, "µs"),
        ("handing out a tile", "tile_seconds", 1e9, "ns"),
    ),
}
"""The shown fields of a calibration, by groups: name, field, factor to the unit."""
_WIDTH = max(len(label) for rows in _GROUPS.values() for label, *_ in rows)


def calibration_lines(target: Target, found: Calibration | None) -> Iterator[str]:
    """Yield the target, when it was measured, and the numbers by groups; of those that were not steady
    also what is used."""
    yield repr(target).strip("<>")
    if found is None:
        yield f"not measured: the table says of {target.cpu} (autotune devices --calibrate measures)"
    else:
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(found.created))
        yield f"measured {when} in {found.seconds:.1f} s"
    machine = Machine.of(target)
    for title, rows in _GROUPS.items():
        yield f"  {title}"
        for label, name, factor, unit in rows:
            used = getattr(machine, name, None)
            value = found.values.get(name) if found else used
            if value is None:
                continue
            steady = found is None or name in found.trusted
            instead = "" if used is None else f": {_number(used * factor)} of the table is used"
            note = "" if steady else f"  (not steady{instead})"
            yield f"    {label:<{_WIDTH}}  {_number(value * factor):>7} {unit}{note}"


def _number(value: float) -> str:
    """Return three digits, which is more than differs from one measurement to the next.

    >>> [_number(v) for v in (646.66, 9.7622, 0.039, 0.0)]
    ['647', '9.76', '0.039', '0']
    """
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


__all__ = ["calibration_lines"]
