"""Winograd's transforms as loops: both axes of a tile in registers, vectors along the channels.

They go tile by tile ("tile"), or keep the sums along one axis of a whole row of tiles ("row"), to read or write few
positions of the windows at a time, as prefetchers follow only so many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autotune.te.tensor import ComputeOp, Operation
from search_spaces.tile_border import inside

if TYPE_CHECKING:
    from autotune.schedule.stage import Stage
    from autotune.te.expr import IterVar

TILE, ROW = "tile", "row"
_COLUMNS = 2
"""The dimension of an image along its rows."""


@dataclass(frozen=True)
class Walk:
    """How a transform goes through its tiles: by ``order``, with ``vectors`` of channels at a time."""

    order: Any
    vectors: Any

    @property
    def in_rows(self) -> bool:
        """Whether the sums along one axis are those of a row of tiles."""
        return bool(self.order == ROW)


@dataclass(frozen=True)
class TransformLoops:
    """The loops of a transform: over rows of tiles, in them over blocks of channels, in these over vectors of tiles."""

    rows: tuple[IterVar, ...]
    channels: IterVar
    vector: IterVar


@dataclass(frozen=True)
class Transform:
    """``tile`` is m, the side of a tile of outputs; ``width`` are lanes of the vectors along the channels."""

    tile: int
    width: int

    def windows(self, stage: Stage, walk: Walk, padded: Operation | None) -> TransformLoops:
        """Order the loops of transformed windows [x, a, n, h, w, c].

        Those that read what is ``padded`` beside an image have code of their own, if it is given.
        """
        i, j, image, row, tile, channel = _axes(stage)
        if walk.in_rows:
            return self._ordered(stage, [image, row], [i, tile], [j], channel, walk)
        self._peel_border(stage, padded, tile, self.tile, self.tile + 2)
        return self._ordered(stage, [image, row], [tile], [i, j], channel, walk)

    def results(
        self, stage: Stage, walk: Walk, rows: list[IterVar], inside: list[IterVar], channel: IterVar
    ) -> TransformLoops:
        """Order the loops of results: over ``rows`` of tiles, the last over tiles, and those ``inside`` of one."""
        *rows, tile = rows
        return self._ordered(stage, rows, [tile], inside, channel, walk)

    def _ordered(
        self,
        stage: Stage,
        rows: list[IterVar],
        tiles: list[IterVar],
        inside: list[IterVar],
        channel: IterVar,
        walk: Walk,
    ) -> TransformLoops:
        channels, vectors = stage.split(channel, factor=walk.vectors * self.width)
        vector, lanes = stage.split(vectors, factor=self.width)
        stage.reorder(*rows, channels, *tiles, vector, *inside, lanes)
        _write_out(stage, inside, lanes)
        return TransformLoops(tuple(rows), channels, vector)

    def first_of_windows(
        self, stage: Stage, parent: Stage, loops: TransformLoops, walk: Walk, padded: Operation | None
    ) -> None:
        """Compute the sums of windows along their first axis where ``parent`` needs them, as :meth:`windows` says."""
        position, *outer, channel = _axes(stage)
        self._attach(stage, parent, loops, walk)
        vector, lanes = stage.split(channel, factor=self.width)
        stage.reorder(*outer, vector, position, lanes)  # all sums of a column before the next one
        if walk.in_rows:
            self._peel_border(stage, padded, outer[-1], 1, 1)
        _write_out(stage, [position] if walk.in_rows else [*outer, vector, position], lanes)

    def first_of_results(self, stage: Stage, parent: Stage, loops: TransformLoops, walk: Walk) -> None:
        """The same of products."""
        *outer, position, channel = _axes(stage)
        self._attach(stage, parent, loops, walk)
        vector, lanes = stage.split(channel, factor=self.width)
        if walk.in_rows:
            stage.reorder(*outer, vector, position, lanes)
        _write_out(stage, [position] if walk.in_rows else [*outer, vector, position], lanes)

    def _attach(self, stage: Stage, parent: Stage, loops: TransformLoops, walk: Walk) -> None:
        stage.compute_at(parent, loops.channels if walk.in_rows else loops.vector)
        stage.set_scope("local")

    def _peel_border(
        self, stage: Stage, padded: Operation | None, loop: IterVar, step: int, size: int
    ) -> None:
        """Give the iterations code of their own that read padding beside the image: ``size`` columns, ``step`` apart.

        What is above and below is the same for a whole row of tiles.
        """
        if not isinstance(padded, ComputeOp) or _COLUMNS not in inside(padded):
            return
        begin, end = inside(padded)[_COLUMNS]
        first = min(-(-begin // step), loop.extent)
        last = 0 if end == padded.shape[_COLUMNS] else loop.extent - max((end - size) // step + 1, first)
        if first + last:
            stage.peel(loop, first, last)


def _write_out(stage: Stage, loops: list[IterVar], lanes: IterVar) -> None:
    for loop in loops:
        stage.unroll(loop)
    stage.vectorize(lanes)


def _axes(stage: Stage) -> tuple[IterVar, ...]:
    assert isinstance(stage.op, ComputeOp)
    return stage.op.axis


__all__ = ["ROW", "TILE", "Transform", "TransformLoops", "Walk"]
