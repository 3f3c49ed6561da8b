"""The whole prediction, and how the work is divided: among workers, kernels and tiles."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cost_models.features.numbers import arithmetic_floor, log
from cost_models.machine import Machine
from cost_models.terms import Terms
from search_spaces.nest import LoopNest, Numbers

NAMES = (
    "lanes",
    "threads",
    "log_flops",
    "log_total",
    "log_floor_share",
    "passes_share",
    "overhead_share",
    "pass_kernels",
    "log_pass_bytes",
    "imbalance",
    "workers_share",
    "log_tiles",
    "log_tile_seconds",
    "depth",
    "serial",
)


def sharing(nest: LoopNest, machine: Machine, t: Terms) -> Mapping[str, Numbers | float]:
    """Return the features :data:`NAMES` [n]; shares are of the predicted seconds."""
    total = np.maximum(t.total, 1e-12)
    floor = arithmetic_floor(nest, machine)
    zero = np.zeros(len(nest))
    moved = sum((one.read + one.written for one in nest.passes), zero)
    return {
        "lanes": nest.lanes,
        "threads": machine.threads,
        "log_flops": np.log2(1.0 + nest.flops),
        "log_total": np.log2(total),
        "log_floor_share": np.log2(floor / machine.threads / total),
        "passes_share": t.passes / total,
        "overhead_share": t.overhead / total,
        "pass_kernels": sum((one.written > 0 for one in nest.passes), zero),
        "log_pass_bytes": np.log2(1.0 + moved),
        "imbalance": t.imbalance,
        "workers_share": t.workers / machine.threads,
        "log_tiles": log(nest.tiles),
        "log_tile_seconds": log(t.total * t.workers / nest.tiles / machine.fork_seconds),
        "depth": nest.depths,
        "serial": 0.0 if nest.serial is None else nest.serial,
    }


__all__ = ["NAMES", "sharing"]
