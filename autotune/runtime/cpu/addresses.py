"""Addresses of the int64 slots that :mod:`autotune.runtime.cpu.layout` counts, for native code."""

from __future__ import annotations

from autotune.runtime.cpu.layout import WORKER_SLOTS, WORKERS
from autotune.runtime.cpu.translate.functions import native


@native
def at(base: int, slot: int) -> int:
    """Return the address of a slot."""
    return base + 8 * slot


@native
def worker_at(state: int, worker: int) -> int:
    """Return the address of a worker's own slots in the state of its pool."""
    return state + 8 * (WORKERS + worker * WORKER_SLOTS)


@native
def shares_of(state: int, workers: int) -> int:
    """Return the address of the workers' shares in the state of a pool."""
    return worker_at(state, workers)


__all__ = ["at", "shares_of", "worker_at"]
