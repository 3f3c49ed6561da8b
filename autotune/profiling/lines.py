"""Profiles as text: a line a dispatch, the longest first, then totals and workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotune.suggest import counted
from autotune.tuning.report.units import nanoseconds
from autotune.tuning.report.width import cut_apart

if TYPE_CHECKING:
    from autotune.profiling.profile import DeviceProfile, DispatchProfile, ModelProfile, WorkerProfile

COLUMNS = (
    "share",
    "time",
    "GFLOP/s",
    "GB/s",
    "of roof",
    "bound",
    "busy",
    "idle",
    "stolen",
    "device",
    "dispatch",
    "nodes",
)
WORDS = frozenset({"bound", "device", "dispatch", "nodes"})
"""Columns of words; numbers stand to the right."""
_FIRST_TO_GO = ("nodes", "idle", "stolen", "busy", "GB/s", "GFLOP/s", "of roof", "bound")
"""Columns that a narrow terminal has no room for."""
_LEAST_NAME = 24
_GAP = 2
_SHOWN = 3
_NOTHING = "-"
_NAME = COLUMNS.index("dispatch")


def lines_of(found: ModelProfile, columns: int | None = None) -> list[str]:
    """Return the whole profile; in ``columns`` without the figures that there is no room for, and names cut."""
    several = len(found.devices) > 1
    rows = [COLUMNS, *map(cells, found.dispatches)]
    totals = [row for device in found.devices for row in _totals(device, found, several)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[:2] = [max(width, *(len(row[n]) for row in totals)) for n, width in enumerate(widths[:2])]
    kept = [n for n, name in enumerate(COLUMNS) if several or name != "device"]
    if columns is not None:
        kept, widths[_NAME] = _fitting(kept, widths, columns)
        names = cut_apart([row[_NAME] for row in rows], widths[_NAME])
        rows = [(*row[:_NAME], name, *row[_NAME + 1 :]) for row, name in zip(rows, names, strict=True)]
    return [
        f"profile of {found.model}: median {nanoseconds(found.latency_ns)} of {counted(found.runs, 'run')}",
        *map(roofs_line, found.devices),
        *(_line(row, widths, kept) for row in rows),
        *(_line(row, (*widths[:2], 0), range(3)) for row in totals),
        *map(worker_line, found.workers),
    ]


def _fitting(kept: Sequence[int], widths: Sequence[int], columns: int) -> tuple[list[int], int]:
    """Return the columns that there is room for, and the width of the dispatches' names."""
    left = [n for n in kept if COLUMNS[n] not in _FIRST_TO_GO]
    room = columns - sum(widths[n] + _GAP for n in left if n != _NAME) - _GAP
    for name in reversed(_FIRST_TO_GO):
        n = COLUMNS.index(name)
        if widths[n] + _GAP > room - min(widths[_NAME], _LEAST_NAME):
            break
        room -= widths[n] + _GAP
        left.append(n)
    return sorted(left), min(widths[_NAME], max(room, _LEAST_NAME))


def cells(each: DispatchProfile) -> tuple[str, ...]:
    """Return a dispatch as texts of all columns."""
    hidden = len(each.nodes) - _SHOWN
    stolen = _NOTHING if each.stolen is None else f"{each.stolen:.3g} of {each.tiles:.0f}"
    return (
        f"{each.share:.1%}",
        nanoseconds(each.time_ns),
        f"{each.gflops:.1f}",
        f"{each.gbytes:.1f}",
        _percent(each.of_roof),
        each.bound or _NOTHING,
        _percent(each.busy),
        _percent(None if each.busy is None else 1.0 - each.busy),
        stolen,
        each.device,
        f"{each.name} ({each.kind})",
        ", ".join(each.nodes[:_SHOWN]) + (f" and {hidden} more" if hidden > 0 else ""),
    )


def _totals(device: DeviceProfile, found: ModelProfile, several: bool) -> list[tuple[str, str, str]]:
    """Return the sums over the dispatches of a device, and the rest of the run."""
    on = f" on {device.name}" if several else ""
    rest = "waking workers, and the call itself"
    if several or device.threads is None:
        rest = "waiting for other devices, and queues" if several else "its queue, and inputs and outputs"
    wall = found.latency_ns or 1.0
    sign = "-" * (device.rest_ns < 0)
    return [
        (f"{device.time_ns / wall:.1%}", nanoseconds(device.time_ns), f"total{on}"),
        (
            f"{device.rest_ns / wall:.1%}",
            sign + nanoseconds(abs(device.rest_ns)),
            f"unaccounted{on}: {rest}",
        ),
    ]


def roofs_line(device: DeviceProfile) -> str:
    """Return a device, and what it can do."""
    threads = "" if device.threads is None else f" with {counted(device.threads, 'worker')}"
    roofs = device.roofs
    if roofs is None:
        return f"{device.name}{threads}: its rates are not known"
    source = "as calibrated" if roofs.calibrated else "by the table of processors"
    return (
        f"{device.name}{threads}: at most {roofs.flops('float32') / 1e9:.1f} GFLOP/s in float32; "
        f"L2 {roofs.l2 / 1e9:.1f}, L3 {roofs.l3 / 1e9:.1f}, memory {roofs.memory / 1e9:.1f} GB/s, {source}"
    )


def worker_line(each: WorkerProfile) -> str:
    """Return how a worker was used."""
    share = "" if each.share is None else f"; begins with {each.share:.1%} of the tiles"
    return (
        f"{each.device} worker {each.worker}: busy {each.busy:.1%}, idle {1.0 - each.busy:.1%}; "
        f"{counted(round(each.tiles), 'tile')} a run, {each.stolen:.3g} stolen{share}"
    )


def _line(row: Sequence[str], widths: Sequence[int], kept: Sequence[int]) -> str:
    texts = (
        row[n].ljust(widths[n])
        if len(row) == len(COLUMNS) and COLUMNS[n] in WORDS
        else row[n].rjust(widths[n])
        for n in kept
    )
    return ("  " + "  ".join(texts)).rstrip()


def _percent(share: float | None) -> str:
    return _NOTHING if share is None else f"{share:.0%}"


__all__ = ["COLUMNS", "WORDS", "cells", "lines_of", "roofs_line", "worker_line"]
