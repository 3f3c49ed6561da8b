"""Availability of all cores at once: others may use them, and a host may run two virtual ones on one of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from autotune.calibration import kernels
from autotune.calibration.probe import PAGE, Probe, Times, lap, lap_together, page_aligned

_STEPS, _ROUNDS = 20_000, 32


def are_free(probe: Probe) -> bool:
    """Return whether arithmetic takes as long on all cores at once as on one of them, a quarter of the times."""
    if probe.target.cores < 2:
        return True
    kernel = probe.kernel(kernels.multiply_adds("kernel", probe.lanes, 4, 4))
    data = page_aligned(probe.target.cores * PAGE)
    places = [data.ctypes.data + number * PAGE for number in range(probe.target.cores)]
    alone = min(lap(kernel, places[0], _STEPS) for _ in range(_ROUNDS))
    with ThreadPoolExecutor(len(places)) as pool:
        together = [lap_together(pool, kernel, places, _STEPS) for _ in range(_ROUNDS)]
    return Times(alone, Times.of(together).quarter).steady


__all__ = ["are_free"]
