"""Rates and latencies of caches and memory, of one core and of all together.

Memory is read slice by slice, each once in a round, so that no slice is in a cache and other processes disturb few.
"""

from __future__ import annotations

import mmap
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice

import numpy as np
from numpy.typing import NDArray

from autotune.calibration import kernels
from autotune.calibration.probe import Kernel, Probe, Times, lap, lap_together
from search_spaces.nest import CACHE_LINE

Values = dict[str, tuple[float, Times]]

_STEP = 256
"""Bytes that a step of a stream reads."""
_SLICE = 4 << 20
_MOST, _LEAST = 256 << 20, 64 << 20
_HOPS = 1500
"""Steps of one walk through a chain of addresses."""
_ROUNDS = 32
_SHORT, _LONG, _APART = 256, 1024, 17
"""Bytes of pieces that are read alone, and how many it is from one to the next: an odd number, a page and more."""


def measure(probe: Probe, hertz: float) -> Values:
    """Return values of Machine's fields, with the reading that each comes from; levels that a machine
    lacks are left out."""
    target = probe.target
    area = _huge(_area_bytes(target.l3_bytes))
    found = _caches(probe, hertz, area)
    found |= _memory(probe, hertz, area)
    found |= _pieces(probe, area)
    found |= _latencies(probe, hertz, area)
    return found


def _area_bytes(last_cache: int) -> int:
    """Return several times the last cache, within an eighth of the memory that is free."""
    import psutil

    room = min(_MOST, psutil.virtual_memory().available // 8)
    return _power_of_two(max(_LEAST, min(4 * last_cache, room)))


def _power_of_two(nbytes: int) -> int:
    return 1 << (nbytes.bit_length() - 1)


def _huge(nbytes: int) -> NDArray[np.uint8]:
    """Return memory in huge pages where the system gives them: NumPy asks for them in large arrays, as
    modules have it."""
    area = np.empty(nbytes + _SLICE, np.uint8)
    area.fill(1)
    start = -area.ctypes.data % CACHE_LINE
    return area[start : start + nbytes]


def _small_pages(nbytes: int) -> NDArray[np.uint8] | None:
    """Return memory in small pages; None where the system cannot be asked for it."""
    advice = getattr(mmap, "MADV_NOHUGEPAGE", None)
    if advice is None:
        return None
    try:
        mapped = mmap.mmap(-1, nbytes)
        mapped.madvise(advice)
    except (OSError, ValueError):
        return None
    area = np.frombuffer(mapped, np.uint8)
    area.fill(1)
    return area


def _level_sizes(probe: Probe) -> dict[str, int]:
    """Return bytes that are in the second and in the last cache and in none nearer."""
    target = probe.target
    sizes = {"l2": _power_of_two(target.l2_bytes // 2)}
    if target.l3_bytes >= 4 * target.l2_bytes:
        sizes["l3"] = _power_of_two(min(4 * target.l2_bytes, target.l3_bytes // 2))
    return sizes


def _caches(probe: Probe, hertz: float, area: NDArray[np.uint8]) -> Values:
    """Return bytes a cycle of each level, and of the last one what writing costs."""
    found, lanes = {}, probe.lanes
    for name, size in _level_sizes(probe).items():
        read = probe.time(kernels.stream("kernel", lanes, size), area.ctypes.data)
        found[f"{name}_bytes_per_cycle"] = (_STEP / read.best / hertz * 1e9, read)
        copied = probe.time(kernels.stream("kernel", lanes, size // 2, copy=True), area.ctypes.data)
        found["write_cost"] = (max(copied.best / read.best - 1.0, 0.0), copied)
    return found


def _memory(probe: Probe, hertz: float, area: NDArray[np.uint8]) -> Values:
    """Return bytes a cycle that one core reads, and all of them together."""
    base, cores = area.ctypes.data, probe.target.cores
    read = probe.kernel(kernels.stream("kernel", probe.lanes, _SLICE))
    slices = [base + start for start in range(0, area.size - _SLICE + 1, _SLICE)]
    rounds = islice(cycle(slices), max(_ROUNDS, len(slices)))
    alone = Times.of([lap(read, at, _SLICE // _STEP) for at in rounds])
    with ThreadPoolExecutor(cores) as pool:
        together = Times.of(_together(pool, read, slices, _SLICE // _STEP, cores))
    return {
        "core_stream": (_SLICE / alone.best / hertz * 1e9, alone),
        "all_streams": (cores * _SLICE / together.best / hertz * 1e9, together),
    }


def _pieces(probe: Probe, area: NDArray[np.uint8]) -> Values:
    """Return the cost of pieces that lie pages apart, beyond their bytes: in memory, and its share in the
    last cache."""
    base, lanes = area.ctypes.data, probe.lanes
    slices = [base + start for start in range(0, area.size - _SLICE + 1, _SLICE)]

    def from_memory(ir: str, step: int) -> Times:
        kernel = probe.kernel(ir)
        return Times.of([lap(kernel, at, _SLICE // step) * step / _SLICE for at in slices])

    def beyond(pieces: Times, run: Times, piece: int) -> float:
        return max(pieces.best / run.best * _STEP - piece, 0.0)

    run = from_memory(kernels.stream("kernel", lanes, _SLICE), _STEP)
    apart = {
        piece: from_memory(
            kernels.stream("kernel", lanes, _SLICE, piece=piece, distance=_APART * piece), piece
        )
        for piece in (_SHORT, _LONG)
    }
    lost = beyond(apart[_LONG], run, _LONG)
    found = {
        "short_run": (beyond(apart[_SHORT], run, _SHORT), apart[_SHORT]),
        "scattered": (lost / _LONG, apart[_LONG]),
    }
    if (size := _level_sizes(probe).get("l3")) and lost:
        near = probe.time(kernels.stream("kernel", lanes, size), base)
        pieces = probe.time(kernels.stream("kernel", lanes, size, piece=_LONG, distance=_APART * _LONG), base)
        found["l3_lost"] = (beyond(pieces, near, _LONG) / lost, pieces)
    return found


def _together(
    pool: ThreadPoolExecutor, kernel: Kernel, slices: list[int], steps: int, cores: int
) -> list[float]:
    """Return nanoseconds of rounds in which each core goes through slices of its own."""
    places = cycle(slices)
    return [lap_together(pool, kernel, list(islice(places, cores)), steps) for _ in range(_ROUNDS)]


def _latencies(probe: Probe, hertz: float, area: NDArray[np.uint8]) -> Values:
    walk = probe.kernel(kernels.chase("kernel"))
    found = {}
    for name, size in _level_sizes(probe).items():
        reading = _walked(walk, area, size)
        found[f"{name}_latency"] = (reading.best * hertz / 1e9, reading)
    large = _walked(walk, area, area.size)
    found["memory_latency"] = (large.best * hertz / 1e9, large)
    pages = _small_pages(area.size)
    if pages is not None:
        small = _walked(walk, pages, area.size)
        found["huge_page_gain"] = (small.best / large.best, small)
    return found


def _walked(walk: Kernel, area: NDArray[np.uint8], size: int) -> Times:
    """Return nanoseconds of a step from one line to another anywhere in ``size`` bytes, which nothing can foresee."""
    rng, lines = np.random.default_rng(0), size // CACHE_LINE
    order = rng.permutation(lines)
    words = area[: lines * CACHE_LINE].view(np.int64)
    base = area.ctypes.data
    words[order * (CACHE_LINE // 8)] = base + np.roll(order, -1) * CACHE_LINE
    starts = base + rng.integers(0, lines, _ROUNDS) * CACHE_LINE
    if lines <= 1 << 17:  # all of it is brought to its cache
        walk(base, lines)
    return Times.of([lap(walk, int(start), _HOPS) / _HOPS for start in starts])


__all__ = ["measure"]
