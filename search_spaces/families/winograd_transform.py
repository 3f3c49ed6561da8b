"""Winograd's transforms as loops: all axes of a tile in registers, vectors along the channels.

They go tile by tile ("tile"), or keep the sums along one axis of a whole row of tiles ("row"), to read or write few
positions of the windows at a time, as prefetchers follow only so many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autotune.te.tensor import ComputeOp, Operation
from search_spaces.tile.border import inside

if TYPE_CHECKING:
    from autotune.schedule.stage import Stage
    from autotune.te.expr import IterVar

TILE, ROW = "tile", "row"


@dataclass(frozen=True)
class Walk:
    """The walk of a transform through its tiles: by ``order``, with ``vectors`` of channels at a time."""

    order: Any
    vectors: Any

    @property
    def in_rows(self) -> bool:
        """Return whether the sums along one axis are those of a row of tiles."""
        return bool(self.order == ROW)


@dataclass(frozen=True)
class TransformLoops:
    """The loops of a transform: over rows of tiles, in them over blocks of channels, in these over vectors of tiles."""

    rows: tuple[IterVar, ...]
    channels: IterVar
    vector: IterVar


@dataclass(frozen=True)
class ResultLoops:
    """The loops of one axis of a result: over places of tiles, over phases where there is dilation, in a tile."""

    place: IterVar
    phases: list[IterVar]
    inside: IterVar


@dataclass(frozen=True)
class Transform:
    """The transform of tiles of ``tile`` outputs along each of the axes that ``dilations`` are of, one or two.

    ``window`` are the elements that a tile reads along one; ``width`` are lanes of the vectors along the channels.
    """

    tile: int
    window: int
    width: int
    dilations: tuple[int, ...] = (1, 1)

    @property
    def axes(self) -> int:
        """Return the number of spatial axes that have tiles."""
        return len(self.dilations)

    def windows(self, stage: Stage, walk: Walk, padded: Operation | None) -> TransformLoops:
        """Order the loops of transformed windows [x, a, n, h, w, c].

        Those that read what is ``padded`` beside an image have code of their own, if it is given.
        """
        *outer, tile, channel = _axes(stage)
        positions, rows, dilation = outer[: self.axes], outer[self.axes :], self.dilations[-1]
        tiles = [tile] if dilation == 1 else list(stage.split(tile, factor=dilation))
        if walk.in_rows:
            return self._ordered(stage, rows, [positions[0], *tiles], positions[1:], channel, walk)
        self._peel_border(stage, padded, tiles[0], self.tile * dilation, self.window * dilation)
        return self._ordered(stage, rows, tiles, positions, channel, walk)

    def tiles(self, stage: Stage) -> list[ResultLoops]:
        """Split the axes of a result that have tiles."""
        assert isinstance(stage.op, ComputeOp)
        found = []
        for axis, dilation in zip(stage.op.axis[-1 - self.axes : -1], self.dilations, strict=True):
            place, result = stage.split(axis, factor=self.tile * dilation)
            phases = []
            if dilation > 1:
                result, phase = stage.split(result, factor=dilation)
                phases.append(phase)
            found.append(ResultLoops(place, phases, result))
        return found

    def results(
        self,
        stage: Stage,
        walk: Walk,
        rows: list[IterVar],
        tiles: list[IterVar],
        inside: list[IterVar],
        channel: IterVar,
    ) -> TransformLoops:
        """Order the loops of results: over ``rows`` of ``tiles``, and those ``inside`` of one.

        Phases belong to the tiles: those of one place are next to each other, so that they need nothing twice.
        """
        return self._ordered(stage, rows, tiles, inside, channel, walk)

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
            self._peel_border(stage, padded, outer[-1], self.dilations[-1], self.dilations[-1])
        _write_out(stage, [position] if walk.in_rows else [*outer, vector, position], lanes)

    def first_of_results(self, stage: Stage, parent: Stage, loops: TransformLoops, walk: Walk) -> None:
        """Do the same for products."""
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
        if not isinstance(padded, ComputeOp):
            return
        columns = len(padded.shape) - 2
        if columns not in inside(padded):
            return
        begin, end = inside(padded)[columns]
        first = min(-(-begin // step), loop.extent)
        last = 0 if end == padded.shape[columns] else loop.extent - max((end - size) // step + 1, first)
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
