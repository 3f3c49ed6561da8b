"""Costs of kernels beside their work where workers share them: waking those, barriers, handing out tiles."""

from __future__ import annotations

import numpy as np

from autotune.calibration import cores
from autotune.calibration.probe import Probe, Times
from autotune.runtime.cpu.overhead import chain_times

_TILES, _COMMANDS, _SAMPLES = 4096, 20, 400


def measure(probe: Probe) -> dict[str, tuple[float, Times]]:
    """Return seconds of Machine's fields, with the reading that each comes from; one worker has none to wait for.

    Where others have the cores, no measurement counts as steady: workers that share a core always wait as long.
    """
    workers = probe.target.cores
    if workers < 2:
        return {}
    free, few = cores.are_free(probe), 8 * workers
    chain, tiled, woken = (
        _reading(chain_times(commands, tiles, workers, _SAMPLES) / commands, free=free)
        for commands, tiles in ((_COMMANDS, few), (1, _TILES), (1, few))
    )
    return {
        "barrier_seconds": (chain.best / 1e9, chain),
        "tile_seconds": (max(tiled.best - woken.best, 0.0) / (_TILES - few) * workers / 1e9, tiled),
        "fork_seconds": (woken.best / 1e9, woken),
    }


def _reading(nanoseconds: np.ndarray[tuple[int], np.dtype[np.float64]], *, free: bool) -> Times:
    found = Times.of([float(value) for value in nanoseconds])
    return found if free else found._replace(quarter=float("inf"))


__all__ = ["measure"]
