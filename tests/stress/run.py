"""Random work on several devices at once, with errors, cancellations, lost devices and little memory: what must hold.

Clients run random graphs of dispatches, each on a random queue of a random device, each waiting for those whose
results it adds up. Whatever happens beside it: a dispatch runs all its tiles exactly once and behind those that it
waits for, or ends with the error of one of them or its own; nothing waits for ever; and memory goes back.
"""

from __future__ import annotations

import ctypes
import gc
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import psutil

from autotune.errors import DeviceLostError
from tests.stress.devices import Place, open_places, usable_kinds
from tests.stress.graph import Graph, Totals
from tests.stress.watch import PATIENCE_S, watch

_GRAPHS = 2
"""Of each client on the same devices."""
_CHANCES = (0.0, 0.0, 0.01, 0.1)


@dataclass(frozen=True)
class Sample:
    """Memory in bytes after a round: of the process, and the most of all devices together in it."""

    tiles: int
    resident: int
    peak: int


@dataclass(frozen=True)
class Outcome:
    """The kinds of devices that ran, how long it took, and the memory after each round."""

    kinds: Sequence[str]
    devices: int
    clients: int
    totals: Totals
    seconds: float
    samples: Sequence[Sample]

    @property
    def grown_bytes(self) -> int:
        """Return how much more memory the process has after the last round than it had at most in the first quarter."""
        first = max(self.totals.tiles // 4, self.samples[0].tiles)
        early = max(sample.resident for sample in self.samples if sample.tiles <= first)
        return self.samples[-1].resident - early


def stress(
    tiles: int,
    *,
    seed: int = 0,
    devices: int = 3,
    clients: int = 3,
    kinds: Sequence[str] = (),
    patience: float = PATIENCE_S,
) -> Outcome:
    """Run graphs until so many tiles have run, or a problem was found.

    ``kinds`` of devices are "cpu" and "opencl", by default those that there are; raises UsageError for others. Where
    nothing was over for ``patience`` seconds that is a problem, with who waits for what.
    """
    begin, process, found = time.monotonic(), psutil.Process(), usable_kinds(kinds)
    totals, samples, rng = Totals(), list[Sample](), random.Random(seed)
    _warm_up(rng, found)
    while totals.tiles < tiles and not totals.problems:
        peak = _round(totals, rng, devices, clients, found, patience)
        _give_back()
        samples.append(Sample(totals.tiles, process.memory_info().rss, peak))
    return Outcome(found, devices, clients, totals, time.monotonic() - begin, samples)


def _give_back() -> None:
    """Give free memory back to the system: glibc has arenas for threads, and keeps what is freed there."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _warm_up(rng: random.Random, kinds: Sequence[str]) -> None:
    """Let all kinds of devices load what they keep, such as compilers: memory is looked at from here on."""
    for place in open_places(rng, len(kinds), kinds):
        place.device.upload(np.zeros(1))
        place.device.close()


def _round(
    totals: Totals, rng: random.Random, devices: int, clients: int, kinds: Sequence[str], patience: float
) -> int:
    """A few graphs of each client on the same devices, which are closed then. Returns the most bytes in use there."""
    places, lock, graphs = open_places(rng, devices, kinds), threading.Lock(), dict[int, Graph]()

    def client(number: int, own: random.Random) -> None:
        for _ in range(_GRAPHS):
            graphs[number] = Graph(own, places, own.choice(_CHANCES))
            try:
                found = graphs[number].run()
            except DeviceLostError:
                continue  # before its first dispatch
            except Exception as error:  # noqa: BLE001 - a finding like any other
                found = Totals(problems=[f"{type(error).__name__}: {error}"])
            finally:
                del graphs[number]  # and its memory with it, which others wait for
            with lock:
                totals.add(found)

    threads = [
        threading.Thread(
            target=client, args=(n, random.Random(rng.random())), name=f"client {n}", daemon=True
        )
        for n in range(clients)
    ]
    for thread in threads:
        thread.start()
    report = watch(threads, graphs, places, patience)
    if report:
        totals.problems.append(report)
    graphs.clear()
    gc.collect()
    return sum(_closed(place, totals, stopped=bool(report)) for place in places)


def _closed(place: Place, totals: Totals, *, stopped: bool) -> int:
    """Close a device. Returns the most bytes that were in use."""
    place.device.close()
    statistics = place.device.allocator.statistics
    totals.held_back += statistics.held_back
    if statistics.live and not stopped:
        totals.problems.append(f"{place.device.name} was closed with {statistics.live} bytes in use")
    return statistics.peak


__all__ = ["Outcome", "Sample", "stress"]
