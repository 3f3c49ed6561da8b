"""The rate of a matrix unit, where all cores use it at once: virtual ones may have one together."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from autotune.calibration import kernels
from autotune.calibration.probe import Probe, Times, lap_together, page_aligned
from autotune.te.dot_products import TILE_PRODUCTS

_STEPS, _ROUNDS = 100_000, 16


def measure(probe: Probe, hertz: float) -> dict[str, tuple[float, Times]]:
    """Return the cycles of a core from a product of tiles to the next, with its reading; nothing without tiles."""
    features = set(probe.target.features)
    product = next((dot.name for dot in TILE_PRODUCTS.values() if set(dot.requires) <= features), None)
    if product is None:
        return {}
    kernel = probe.kernel(kernels.tile_products("kernel", product))
    usable = os.sched_getaffinity(0)
    places, cores = [page_aligned(1).ctypes.data] * len(usable), iter(usable)
    # Left to the system, short runs that begin together often share a core.
    with ThreadPoolExecutor(len(usable), initializer=lambda: os.sched_setaffinity(0, {next(cores)})) as pool:
        reading = Times.of([lap_together(pool, kernel, places, _STEPS) / _STEPS for _ in range(_ROUNDS)])
    return {"tile_cycles": (reading.best * hertz / 1e9 / kernels.TILES, reading)}


__all__ = ["measure"]
