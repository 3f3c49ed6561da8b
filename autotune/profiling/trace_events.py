"""Recorded runs in the Trace Event Format, which Perfetto and chrome://tracing show.

A device is a process, its queue and its workers are threads: metadata events name them. Every command of a worker and
every step of a queue is a complete event ("X"). Counters ("C") are the workers that are busy, and the tiles stolen so
far. Times are in µs from the beginning of the first run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.runtime.cpu import layout
from autotune.runtime.recording import Recording, StepRecording

Event = dict[str, Any]
_QUEUE = 0
"""The row of a device's steps; its workers follow."""


def trace_of(recording: Recording, runs: Sequence[int] = (0,)) -> dict[str, Any]:
    """Return the trace of some of the recorded runs, on the same rows; each event says of which run it is."""
    steps = recording.steps
    origin = min((_begin(step, run) for step in steps for run in runs), default=0)
    devices = dict.fromkeys(step.device for step in steps)
    events = list[Event]()
    for process, device in enumerate(devices):
        own = [step for step in steps if step.device == device]
        events += _names(process, device, own)
        for run in runs:
            for step in own:
                events.append(_step(process, step, run, origin))
                events += _commands(process, step, run, origin)
        events += _counters(process, own, runs, origin)
    return {"displayTimeUnit": "ns", "traceEvents": events}


def _begin(step: StepRecording, run: int) -> int:
    """Return the begin of a run: a worker may begin before the caller has looked at the clock."""
    begins = [int(step.begin_ns[run])]
    if step.events is not None:
        rows = step.events[run]
        begins += [int(each) for each in rows[rows[..., layout.TILES_RUN] > 0][..., layout.BEGIN]]
    return min(begins)


def _workers(step: StepRecording) -> int:
    return 0 if step.events is None else int(step.events.shape[2])


def _names(process: int, device: str, steps: Sequence[StepRecording]) -> Iterator[Event]:
    workers = max(map(_workers, steps))
    known = all(step.known_workers for step in steps)
    rows = ["queue", *(f"worker {worker}" if known else "kernels" for worker in range(workers))]
    yield _metadata("process_name", process, _QUEUE, name=device)
    yield _metadata("process_sort_index", process, _QUEUE, sort_index=process)
    for thread, name in enumerate(rows):
        yield _metadata("thread_name", process, thread, name=name)
        yield _metadata("thread_sort_index", process, thread, sort_index=thread)


def _metadata(kind: str, process: int, thread: int, **values: Any) -> Event:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": values}


def _step(process: int, step: StepRecording, run: int, origin: int) -> Event:
    arguments = (
        {"bytes": step.moved_bytes} if step.image is None else {"dispatches": len(step.image.dispatches)}
    )
    begin, end = int(step.begin_ns[run]), int(step.end_ns[run])
    return _complete(step.label, process, _QUEUE, begin - origin, end - begin, arguments | {"request": run})


def _commands(process: int, step: StepRecording, run: int, origin: int) -> Iterator[Event]:
    """Yield one event a command and worker that ran tiles of it; those of commands that are repeated, by turns with
    others, one after another, each as long as it took in all."""
    if step.events is None or step.image is None:
        return
    for number, rows in zip(step.dispatch_of, laid_out(step.events[run]), strict=True):
        info = step.image.dispatches[number]
        for worker, row in enumerate(rows.tolist()):
            if row[layout.TILES_RUN]:
                arguments = {
                    "kind": info.kind,
                    "tiles": row[layout.TILES_RUN],
                    "stolen": row[layout.TILES_STOLEN],
                    "nodes": list(info.nodes),
                    "request": run,
                }
                begin, end = row[layout.BEGIN], row[layout.END]
                yield _complete(info.name, process, 1 + worker, begin - origin, end - begin, arguments)


def laid_out(events: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a run's event rows [commands, workers, EVENT_SLOTS] in which those of commands that are repeated follow
    each other."""
    found, free = events.copy(), np.zeros(events.shape[1], np.int64)
    for rows in found:
        begins, ends, busy = (rows[:, slot] for slot in (layout.BEGIN, layout.END, layout.BUSY))
        again = (rows[:, layout.TILES_RUN] > 0) & (busy < ends - begins)
        begins[again] = np.maximum(begins[again], free[again])
        ends[again] = free[again] = begins[again] + busy[again]
    return found


def _complete(
    name: str, process: int, thread: int, begin_ns: int, spent_ns: int, arguments: dict[str, Any]
) -> Event:
    return {
        "name": name,
        "ph": "X",
        "pid": process,
        "tid": thread,
        "ts": begin_ns / 1e3,
        "dur": spent_ns / 1e3,
        "args": arguments,
    }


def _counters(
    process: int, steps: Sequence[StepRecording], runs: Sequence[int], origin: int
) -> Iterator[Event]:
    """Yield the number of busy workers, wherever that changes, and of tiles stolen, wherever some were."""
    rows = [
        laid_out(step.events[run]).reshape(-1, layout.EVENT_SLOTS)
        for step in steps
        if step.events is not None and step.known_workers
        for run in runs
    ]
    if not rows:
        return
    ran = np.concatenate(rows)
    ran = ran[ran[:, layout.TILES_RUN] > 0]
    changes = dict[int, int]()
    for column, change in ((layout.BEGIN, 1), (layout.END, -1)):
        for at in ran[:, column].tolist():
            changes[at] = changes.get(at, 0) + change
    times = sorted(changes)
    busy = accumulate(changes[at] for at in times)
    yield from (_counter("busy workers", process, at - origin, n) for at, n in zip(times, busy, strict=True))
    thefts = ran[ran[:, layout.TILES_STOLEN] > 0]
    thefts = thefts[np.argsort(thefts[:, layout.END], kind="stable")]
    sums = np.cumsum(thefts[:, layout.TILES_STOLEN]).tolist()
    yield _counter("tiles stolen", process, 0, 0)
    for at, total in zip(thefts[:, layout.END].tolist(), sums, strict=True):
        yield _counter("tiles stolen", process, at - origin, total)


def _counter(name: str, process: int, at_ns: int, value: int) -> Event:
    return {"name": name, "ph": "C", "pid": process, "ts": at_ns / 1e3, "args": {name: value}}


__all__ = ["trace_of"]
