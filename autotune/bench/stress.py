"""Random work on several devices at once, with errors, cancellations, lost devices and little memory: what must hold.

Clients run random graphs of dispatches, each on a random queue of a random device, each waiting for those whose
results it adds up. Whatever happens beside it: a dispatch runs all its tiles exactly once and behind those that it
waits for, or ends with the error of one of them or its own; nothing waits for ever; and memory goes back.
"""

from __future__ import annotations

import gc
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from autotune.bench.stress_graph import Graph, Place, Totals, code
from autotune.errors import DeviceLostError
from autotune.runtime.hal.cpu.cores import core_ids, parts
from autotune.runtime.hal.cpu.driver import open_cores

_WATERMARK = 256 << 10
"""Bytes in use on a device above which new graphs are held back: what two or three of them take."""
_GRAPHS = 4
"""Of each client on the same devices."""
_CHANCES = (0.0, 0.0, 0.01, 0.1)


@dataclass(frozen=True)
class Outcome:
    """What was run, how long it took, and how much more memory the process has after the last graph than it had at
    most in the first quarter."""

    totals: Totals
    seconds: float
    grown_bytes: int


def stress(tiles: int, *, seed: int = 0, devices: int = 3, clients: int = 3) -> Outcome:
    """Run graphs until so many tiles have run, or a problem was found."""
    begin, process = time.monotonic(), psutil.Process()
    totals, resident, rng = Totals(), list[tuple[int, int]](), random.Random(seed)
    while totals.tiles < tiles and not totals.problems:
        totals.add(_round(rng, devices, clients))
        gc.collect()
        resident.append((totals.tiles, process.memory_info().rss))
    early = max(rss for done, rss in resident if done <= max(totals.tiles // 4, resident[0][0]))
    return Outcome(totals, time.monotonic() - begin, resident[-1][1] - early)


def _round(rng: random.Random, devices: int, clients: int) -> Totals:
    """A few graphs of each client on the same devices, which are closed then."""
    places, totals, lock = _open(rng, devices), Totals(), threading.Lock()

    def client(own: random.Random) -> None:
        for _ in range(_GRAPHS):
            try:
                found = Graph(own, places, own.choice(_CHANCES)).run()
            except DeviceLostError:
                continue  # before its first dispatch
            except Exception as error:  # noqa: BLE001 - a finding like any other
                found = Totals(problems=[f"{type(error).__name__}: {error}"])
            with lock:
                totals.add(found)

    threads = [threading.Thread(target=client, args=(random.Random(rng.random()),)) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    for place in places:
        place.device.close()
        statistics = place.device.allocator.statistics
        totals.held_back += statistics.held_back
        if statistics.live:
            totals.problems.append(f"{place.device.name} was closed with {statistics.live} bytes in use")
    return totals


def _open(rng: random.Random, count: int) -> Sequence[Place]:
    """Devices of one to eight workers on parts of the cores, and on all."""
    sets = [*parts(), core_ids()]
    places = []
    for number in range(count):
        device = open_cores(f"device {number}", sets[number % len(sets)], rng.randint(1, 8))
        device.allocator.limit(high=_WATERMARK)
        queues = [device.compute, device.transfers, device.queue("free", in_order=False)]
        places.append(Place(device, device.load(code()), queues))
    return places


__all__ = ["Outcome", "stress"]
