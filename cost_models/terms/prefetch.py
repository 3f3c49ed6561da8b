"""Bytes that prefetchers bring late or not at all, as those of a long run that take as long."""

from __future__ import annotations

import numpy as np

from cost_models.machine import Machine
from search_spaces.nest import PAGE_BYTES, Here, Numbers, TensorAccess, TouchedMemory


def hidden(access: TensorAccess, machine: Machine) -> Numbers | float:
    """Return the share of the way [n] that instructions hide which fetch ahead.

    Lines that are read side by side are all on their way at a time, so that less of each is enough; a core waits for
    few of them.
    """
    if access.ahead is None or access.abreast is None or access.awaited is None:
        return 0.0
    reach = np.maximum(machine.fetch_reach / np.maximum(access.abreast, 1.0), machine.least_reach)
    waiting = machine.line_buffers / np.maximum(access.awaited, machine.line_buffers)
    return np.asarray(np.minimum(access.ahead / reach, 1.0) * waiting)


def _scattering(found: TouchedMemory, machine: Machine) -> Numbers:
    """Return the extra cost [n] of an access's bytes where rows are visited piece by piece, not from end to end.

    Prefetchers follow the less, the longer the stretch is that lies between neighbouring pieces, up to a page, where
    they stop. A few rows in pages of their own are followed one by one.
    """
    followed = (found.apart <= machine.streams) & (found.row >= PAGE_BYTES)
    stretch = np.where(followed, 0.0, found.apart * found.row).max(axis=0, initial=0.0)
    return np.asarray(1.0 + machine.scattered * np.minimum(stretch / PAGE_BYTES, 1.0))


def long_run(
    access: TensorAccess, found: TouchedMemory, here: Here, moved: Numbers, machine: Machine
) -> Numbers:
    """Return bytes [..., n] of one long run that take as long as those that are ``moved`` of an access on a level.

    Pieces that are visited apart take as long when they are fetched ahead.
    """
    apart = _scattering(found, machine)
    cost = moved + machine.short_run * found.runs(here)
    if access.looked_up:
        cost = cost + machine.lost_run * found.lines(here) / found.row
    cost = cost + hidden(access, machine) * (machine.fetched_cost * moved - cost)
    return np.asarray(np.where(apart > 1.0, np.maximum(cost, moved * apart), cost))


__all__ = ["hidden", "long_run"]
