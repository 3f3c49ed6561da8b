"""Footprints of the largest tensors in each cache, after Ansor's buffer-access features (Zheng et al., OSDI 2020)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from cost_models.features.memory import CACHES
from cost_models.features.numbers import log
from cost_models.machine import Machine
from cost_models.terms.traffic import fitting
from search_spaces.nest import PAGE_BYTES, Here, LoopNest, Numbers, TensorAccess, TouchedMemory

BUFFERS = ("out", "in0", "in1", "in2")
"""The largest tensor that is written, and the largest that are read."""
_OF_BUFFER = ("log_size", "log_inner", "log_reuse", "log_pages", "log_run", "panel", "ahead", "streamed")
_OF_BOTH = ("log_moved", "log_lines")

NAMES = tuple(
    name
    for buffer in BUFFERS
    for name in (
        *(f"{what}_{buffer}" for what in _OF_BUFFER),
        *(f"{what}_{cache}_{buffer}" for cache in CACHES for what in _OF_BOTH),
    )
)
"""``log_size``: bytes of the tensor; ``log_inner``: bytes of lines that the body touches; ``log_reuse``: what is
touched between two uses of an element, over the first cache; ``log_pages``: pages between two visits of a line in the
first cache; ``log_run``: bytes of a piece of a row from the second one; ``panel``, ``ahead``, ``streamed``: laid out in
visiting order, fetched so far ahead, written past the caches; ``log_moved``: bytes into a cache an operation;
``log_lines``: the same in lines, over the size of the tensor."""


def buffers(nest: LoopNest, machine: Machine) -> Mapping[str, Numbers]:
    """Return the features :data:`NAMES` [n]; zeros for tensors that a nest does not have."""
    walks, which = nest.walks
    levels = np.stack([fitting(walks, getattr(machine, cache)) for cache in CACHES])
    here = Here(walks, levels, np.arange(len(walks)))
    found = dict.fromkeys(NAMES, np.zeros(len(nest)))
    for buffer, number in _largest(walks).items():
        one = _buffer(walks, walks.accesses[number], walks.touched[number], here, machine)
        found |= {f"{name}_{buffer}": column[which] for name, column in one.items()}
    return found


def _largest(nest: LoopNest) -> dict[str, int]:
    """Return the accesses that :data:`BUFFERS` are."""
    order = sorted(range(len(nest.accesses)), key=lambda i: -_size(nest.accesses[i]))
    written = [i for i in order if nest.accesses[i].write]
    read = [i for i in order if not nest.accesses[i].write]
    return dict(zip(BUFFERS[:1], written, strict=False)) | dict(zip(BUFFERS[1:], read, strict=False))


def _size(access: TensorAccess) -> int:
    return max(math.prod(access.shape) * access.item_bytes, 1)


def _buffer(
    nest: LoopNest, access: TensorAccess, found: TouchedMemory, here: Here, machine: Machine
) -> dict[str, Numbers]:
    """Return the features of one tensor, by their names without it."""
    zero = np.zeros(len(nest))
    body = Here(nest, np.full(len(nest), nest.body_level, np.intp), here.candidate)
    lines, pieces, entries = found.lines(here), found.runs(here), found.entries(here)
    far = pieces[0] if found.row >= PAGE_BYTES else zero
    result = {
        "log_size": zero + math.log2(_size(access)),
        "log_inner": log(found.lines(body)),
        "log_reuse": log(_distance(nest, access) / machine.l1),
        "log_pages": log(np.maximum(lines[0] / PAGE_BYTES, far)),
        "log_run": log(lines[1] / np.maximum(pieces[1], 1.0)),
        "panel": zero if access.panel is None else access.panel.astype(np.float64),
        "ahead": zero if access.ahead is None else np.log2(1.0 + access.ahead),
        "streamed": zero if access.streamed is None else access.streamed.astype(np.float64),
    }
    moved, reread = (
        log(found.moved(here) * entries / max(nest.flops, 1.0)),
        log(lines * entries / _size(access)),
    )
    for row, cache in enumerate(CACHES):
        result[f"log_moved_{cache}"], result[f"log_lines_{cache}"] = moved[row], reread[row]
    return result


def _distance(nest: LoopNest, access: TensorAccess) -> Numbers:
    """Return bytes [n] touched between two uses of an element: by one run of the innermost of the loops around the
    body that do not move it, or by all loops where each does."""
    outer = nest.stacked[: nest.body_level]
    still = np.asarray([axis not in access.axes for axis in nest.axes[: nest.body_level]], np.bool_)
    again = still[:, None] & (outer > 1)
    innermost = np.where(again, np.arange(len(outer))[:, None], -1).max(axis=0, initial=-1)
    return np.asarray(nest.working_sets[innermost + 1, np.arange(len(nest))])


__all__ = ["BUFFERS", "NAMES", "buffers"]
