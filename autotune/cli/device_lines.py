"""Devices as lines of a table and as values: what `autotune devices` shows of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.runtime.hal.cpu.cores import ranges

if TYPE_CHECKING:
    from autotune.runtime.hal.device import DeviceInfo

_LEVELS = (1, 2, 3)
_COLUMNS = (
    "device",
    "kind",
    "cores",
    *(f"L{level}" for level in _LEVELS),
    "memory",
    "bandwidth",
    "processor",
)


def device_values(info: DeviceInfo) -> dict[str, Any]:
    """Return a device as JSON. ``bandwidth_bytes_per_second`` is of all its cores together; null where nothing says."""
    rate, measured = _bandwidth(info)
    return {
        "name": info.name,
        "driver": info.driver,
        "kind": info.kind,
        "description": info.description,
        "cores": info.cores,
        "core_ids": list(info.core_ids),
        "caches": {f"L{level}": nbytes for level, nbytes in sorted(info.caches.items())},
        "memory_bytes": info.memory_bytes,
        "memory_space": info.space,
        "bandwidth_bytes_per_second": rate,
        "bandwidth_measured": measured,
        "target": None if info.target is None else repr(info.target),
        "target_key": None if info.target is None else info.target.key,
    }


def device_table(infos: list[DeviceInfo]) -> list[str]:
    """Return a line a device under a header, and below which of them share cores.

    Caches: of a core, but the last one, which cores share. Bandwidth: from memory, of all its cores together; in
    brackets where it was not measured.
    """
    rows = [_COLUMNS, *map(_row, infos)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return lines + _notes(infos)


def _notes(infos: list[DeviceInfo]) -> list[str]:
    """Return notes on what the columns do not say."""
    sharing = [
        info.name for info in infos if any(_share(info, other) for other in infos if other is not info)
    ]
    found = (
        [f"{', '.join(sharing)} share cores: only one of them computes on a core at a time"]
        if sharing
        else []
    )
    if any(_bandwidth(info) != (None, False) and not _bandwidth(info)[1] for info in infos):
        found.append("bandwidth in brackets is the table's: autotune devices --calibrate measures it")
    return found


def _share(one: DeviceInfo, other: DeviceInfo) -> bool:
    return not {*one.core_ids}.isdisjoint(other.core_ids)


def _row(info: DeviceInfo) -> tuple[str, ...]:
    rate, measured = _bandwidth(info)
    memory = "-" if rate is None else f"{rate / 1e9:.1f} GB/s" if measured else f"({rate / 1e9:.1f} GB/s)"
    return (
        info.name,
        info.kind,
        f"{info.cores} ({ranges(info.core_ids)})" if info.core_ids else str(info.cores),
        *(_size(info.caches[level]) if level in info.caches else "-" for level in _LEVELS),
        _size(info.memory_bytes),
        memory,
        info.description,
    )


def _bandwidth(info: DeviceInfo) -> tuple[float | None, bool]:
    """Return bytes a second from memory as calibrated, else as the table of processors says; and whether
    it was measured.

    A driver that runs its kernels on this machine's cores has their memory.
    """
    from autotune.target import Target
    from cost_models import calibrated
    from cost_models.machine import Machine

    if not info.core_ids:
        return None, False
    target = Target.detect(info.cores)
    machine, found = Machine.of(target), calibrated.find(target)
    measured = found is not None and {"hertz", "all_streams"} <= found.trusted.keys()
    return machine.all_streams * machine.hertz, measured


def _size(nbytes: int) -> str:
    if nbytes >= 1 << 30:
        return f"{nbytes / 2**30:.1f} GiB"
    return f"{nbytes >> 20} MiB" if nbytes >= 1 << 20 and not nbytes % (1 << 20) else f"{nbytes >> 10} KiB"


__all__ = ["device_table", "device_values"]
