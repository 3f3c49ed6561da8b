"""What kernels cost beside their work: starting one, handing out a tile, waking the other workers."""

from __future__ import annotations

import numpy as np

from autotune.calibration.probe import Reading
from autotune.runtime.overhead import chain_times

_TILES, _COMMANDS, _SAMPLES = 4096, 200, 60


def measure(workers: int) -> dict[str, tuple[float, Reading]]:
    """Seconds of Machine's fields, with the reading that each comes from; one worker has none to wait for."""
    if workers < 2:
        return {}
    few = 8 * workers
    chain = _reading(chain_times(_COMMANDS, few, workers, _SAMPLES) / _COMMANDS)
    tiled = _reading(chain_times(1, _TILES, workers, _SAMPLES))
    woken = _reading(chain_times(1, few, workers, 10 * _SAMPLES))
    return {
        "kernel_seconds": (chain.best / 1e9, chain),
        "tile_seconds": (max(tiled.best - woken.best, 0.0) / (_TILES - few) * workers / 1e9, tiled),
        "fork_seconds": (woken.best / 1e9, woken),
    }


def _reading(nanoseconds: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Reading:
    return Reading.of([float(value) for value in nanoseconds])


__all__ = ["measure"]
