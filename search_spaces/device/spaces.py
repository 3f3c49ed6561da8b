"""Spaces of devices by the workloads that they serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_spaces.analysis import structure
from search_spaces.device.grid import grid_space
from search_spaces.device.rows import device_rows_space
from search_spaces.device.tile import device_tile_space
from search_spaces.rows.shape import row_shape
from search_spaces.space import Space
from search_spaces.tile.shape import tile_shape

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.target import Target

_TILED = ("contraction", "convolution", "depthwise", "pool")
_BY_ROWS = ("reduction", "softmax", "normalization")


def runs_groups(target: Target) -> bool:
    """Return whether these spaces serve a target: devices but CPUs, where threads of a group run one at a time and a
    tile a thread is better."""
    return target.group_items > 0 and "cpu" not in target.features


def device_space_for(workload: Workload, target: Target) -> Space:
    """Return the search space of a workload on a device; every workload has one."""
    program = workload.expressions
    if workload.kind in _BY_ROWS:
        rows = row_shape(workload)
        found = None if rows is None else device_rows_space(workload, target, rows)
        if found is not None:
            return found
    if workload.kind in _TILED and program.anchor is not None:
        shape = tile_shape(structure(program), target)
        if shape is not None:
            return device_tile_space(workload, target, shape)
    return grid_space(workload, target)


__all__ = ["device_space_for", "runs_groups"]
