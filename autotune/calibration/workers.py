"""What kernels cost beside their work where several workers share them: waking those, barriers, handing out tiles."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from autotune.calibration import kernels
from autotune.calibration.probe import PAGE, Probe, Times, lap, lap_together, page_aligned
from autotune.runtime.overhead import chain_times

_TILES, _COMMANDS, _SAMPLES = 4096, 20, 400
_STEPS, _ROUNDS = 20_000, 32


def measure(probe: Probe) -> dict[str, tuple[float, Times]]:
    """Seconds of Machine's fields, with the reading that each comes from; one worker has none to wait for.

    Where others have the cores, no reading counts as steady: workers that take turns on a core always wait as long.
    """
    workers = probe.target.cores
    if workers < 2:
        return {}
    free, few = _cores_are_free(probe), 8 * workers
    chain, tiled, woken = (
        _reading(chain_times(commands, tiles, workers, _SAMPLES) / commands, free=free)
        for commands, tiles in ((_COMMANDS, few), (1, _TILES), (1, few))
    )
    return {
        "barrier_seconds": (chain.best / 1e9, chain),
        "tile_seconds": (max(tiled.best - woken.best, 0.0) / (_TILES - few) * workers / 1e9, tiled),
        "fork_seconds": (woken.best / 1e9, woken),
    }


def _cores_are_free(probe: Probe) -> bool:
    """Whether arithmetic takes as long on all cores at once as on one of them, a quarter of the times."""
    kernel = probe.kernel(kernels.multiply_adds("kernel", probe.lanes, 4, 4))
    data = page_aligned(probe.target.cores * PAGE)
    places = [data.ctypes.data + number * PAGE for number in range(probe.target.cores)]
    alone = min(lap(kernel, places[0], _STEPS) for _ in range(_ROUNDS))
    with ThreadPoolExecutor(len(places)) as pool:
        together = [lap_together(pool, kernel, places, _STEPS) for _ in range(_ROUNDS)]
    return Times(alone, Times.of(together).quarter).steady


def _reading(nanoseconds: np.ndarray[tuple[int], np.dtype[np.float64]], *, free: bool) -> Times:
    found = Times.of([float(value) for value in nanoseconds])
    return found if free else found._replace(quarter=float("inf"))


__all__ = ["measure"]
