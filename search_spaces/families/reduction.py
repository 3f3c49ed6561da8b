"""Reductions: row by row where the last axis is reduced, register tiles of columns where it is kept.

Knobs: those of :mod:`search_spaces.rows.rows` or of a pooling window.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from search_spaces.analysis import structure
from search_spaces.families import elementwise
from search_spaces.families.depthwise import windowed
from search_spaces.rows.rows import row_space
from search_spaces.rows.shape import row_shape
from search_spaces.space import Space
from search_spaces.tile.shape import tile_shape

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.target import Target

FAMILY = "reduction"


def space(workload: Workload, target: Target) -> Space:
    """Return the schedules of a reduction."""
    rows = row_shape(workload)
    if rows is not None:
        return row_space(FAMILY, workload, target, rows)
    program = workload.expressions
    anchor = program.anchor
    shape = tile_shape(structure(program), target) if anchor is not None else None
    if shape is None:
        return elementwise.space(workload, target, FAMILY)
    # A reduction reads each element once: what prepares it is computed on the way.
    return windowed(FAMILY, workload, target, replace(shape, staged=()))


__all__ = ["FAMILY", "space"]
