"""Costs of devices beside their kernels, measured in some milliseconds: submitting, handing over, and copies.

All as it occurs in a run: the thread of a queue sleeps while another device works, and is woken.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from autotune.runtime.hal.buffer import host_buffer
from autotune.runtime.hal.command_buffer import CommandBuffer
from autotune.runtime.hal.device import Device
from autotune.runtime.hal.queue import Queue, Submission
from autotune.runtime.hal.semaphore import Timeline

_CHAIN = 8
_TIMES = 5
_FILLED_BYTES = (
    4 << 20
)  # some 0.2 ms of work between two submissions: the other thread has gone to sleep by then
_REST_S = 2e-3  # so long nothing runs before a chain: the caller comes from work of its own
_COPIED_BYTES = 4 << 20


@dataclass(frozen=True)
class DeviceRates:
    """Seconds of the caller a submission; from the end of work elsewhere to the beginning of what waits for it; of
    copying a byte; and of the caller before a request's first submission and after its last step, where they were read.
    """

    submission_seconds: float
    handover_seconds: float
    copy_seconds_per_byte: float
    start_seconds: float = 0.0
    answer_seconds: float = 0.0


def measure_rates(device: Device, other: Device | None = None) -> DeviceRates:
    """Read them, each the least of a few turns, which other work does not touch; raises as submissions do.

    ``other`` is a device that hands work over to this one; without any it does so itself.
    """
    other = device if other is None else other
    with ExitStack() as open_:
        queues = (other.compute, device.compute if other is not device else device.transfers)
        fills = [_fill(each, open_) for each in (other, device)]
        chains = [_chain(queues, fills) for _ in range(_TIMES)]
    submission, handover = (min(each) for each in zip(*chains, strict=True))
    return DeviceRates(submission, handover, min(_copy(device) for _ in range(_TIMES)))


def _fill(device: Device, open_: ExitStack) -> CommandBuffer:
    """Record some work of a device."""
    buffer = device.allocate(_FILLED_BYTES, "rates")
    open_.callback(buffer.free)
    recorder = device.record("a fill")
    recorder.fill(buffer, b"\0")
    return recorder.finish()


def _chain(queues: tuple[Queue, Queue], fills: Sequence[CommandBuffer]) -> tuple[float, float]:
    """Return the work that passes back and forth between two queues: seconds a submission, and a
    handover to the second."""
    gate = Timeline("a gate")
    lines = [Timeline("a link") for _ in range(_CHAIN)]
    made: list[Submission] = []
    time.sleep(_REST_S)
    begin = time.perf_counter()
    for number, line in enumerate(lines):
        before, to = lines[number - 1] if number else gate, number % 2
        made.append(queues[to].submit(fills[to], wait=[(before, 1)], signal=[(line, 1)], new=False))
    submission = (time.perf_counter() - begin) / _CHAIN
    gate.signal(1)
    made[-1].wait()
    gaps = [made[n].begin_ns - made[n - 1].end_ns for n in range(1, _CHAIN, 2)]
    return submission, 1e-9 * statistics.median(gaps)


def _copy(device: Device) -> float:
    source, target = host_buffer(np.ones(_COPIED_BYTES, np.uint8)), device.allocate(_COPIED_BYTES, "rates")
    recorder = device.record("a copy")
    recorder.copy(source, target)
    commands = recorder.finish()
    device.transfers.submit(commands).wait()
    again = device.transfers.submit(commands)
    again.wait()
    target.free()
    return 1e-9 * (again.end_ns - again.begin_ns) / _COPIED_BYTES


__all__ = ["DeviceRates", "measure_rates"]
