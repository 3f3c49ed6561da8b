"""Chains of convolutions and pools in one dispatch: each is computed in strips inside the blocks of the last.

A block is a strip of rows of the result. What the convolutions before make for it, with the rows around that the
windows of those after them need, stays in the caches. Where the last one is 1x1 it may also take what it reads pixel
tile by pixel tile, from the nearest cache; of pools alone a block may be a panel of channels of a strip. All have
register tiles, vectors along the channels. Knobs: strip, at (where the last but one is computed), parallel, tile_order,
and for each convolution rows, vectors and unroll.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.schedule.knob import Columns, Knob
from autotune.schedule.knob_value import ceil_div
from autotune.te.tensor import ComputeOp
from search_spaces.constraint import Constraint
from search_spaces.families import elementwise, winograd_blocks
from search_spaces.families.chain_shape import Link, links_of
from search_spaces.sketch import Choices
from search_spaces.space import Space
from search_spaces.tile.knobs import column, ints, parallel_knob, usual_rows

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage
    from autotune.target import Target
    from autotune.te.expr import IterVar

FAMILY = "chain"
STRIP, PANEL, TILE = "strip", "panel", "tile"
_STRIPS = (1, 2, 3, 4, 6, 7, 8, 12, 14, 16, 28)
_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14)
_VECTORS = (1, 2, 3, 4, 6)
_MAX_BODY = 192
_FEW = 8
"""Steps of a channel reduction that may all be written out: a remainder costs more than a few instructions."""
_SMALL_WINDOW = 9
"""Steps of a window that are written out."""


@dataclass(frozen=True)
class ChainRecipe:
    """Strips of rows of the last convolution, the others inside."""

    links: tuple[Link, ...]
    lanes: int

    def steps(self, schedule: Schedule, config: Choices) -> None:
        """Schedule the result by blocks, and in them the convolutions before it."""
        *before, last = self.links
        kept = {op.name for link in self.links for op in (link.anchor, link.stored)}
        kept |= {link.padding.name for link in self.links if link.padding and not link.reads_few}
        for stage in schedule.order():
            if isinstance(stage.op, ComputeOp) and stage.op.name not in kept:
                stage.compute_inline()
        sums = [_sums(schedule, link) for link in self.links]
        out = schedule[last.stored.name]
        block, tile = self._result(out, sums[-1], config)
        for number in reversed(range(len(self.links))):
            link = self.links[number]
            if number < len(before):
                stage = schedule[link.stored.name]
                in_tile = number == len(before) - 1 and config["at"] == TILE
                stage.compute_at(out, tile if in_tile else block)
                self._register_tile(stage, sums[number], number, config)
            if link.padding is not None and link.padding.name in kept:
                self._padding(schedule[link.padding.name], out, block)

    def _result(self, out: Stage, sums: Stage, config: Choices) -> tuple[IterVar, IterVar]:
        """Return the loops of the result: over its blocks, and over the pixel tiles of one."""
        image, rows, *_ = _axes(out)
        strips, row = out.split(rows, factor=config["strip"], tail="overlap")
        in_panel = config["at"] == PANEL
        by_rows = not in_panel and (config["at"] == TILE or config["tile_order"] == "rows")
        tile = self._register_tile(out, sums, len(self.links) - 1, config, row, by_rows)
        inside = [loop for loop in out.leaf_iter_vars if loop not in (image, strips)]
        out.reorder(image, strips, *inside)
        block = out.fuse(image, strips, *(inside[:1] if in_panel else []))
        out.parallel(block, when=config["parallel"])
        return block, tile

    def _register_tile(
        self,
        stage: Stage,
        sums: Stage,
        number: int,
        config: Choices,
        row: IterVar | None = None,
        by_rows: bool = False,
    ) -> IterVar:
        """Return a tile of pixels by vectors of channels with its sums in registers; returns the loop
        over pixel tiles."""
        image, rows, columns, channels = _axes(stage)
        lanes = min(self.lanes, channels.extent)
        panels, channel = stage.split(channels, factor=config[f"vectors{number}"] * lanes, tail="peel")
        tiles, pixel = stage.split(columns, factor=config[f"rows{number}"], tail="overlap")
        vector, lane = stage.split(channel, factor=lanes)
        inner = rows if row is None else row
        outer = [inner, tiles, panels] if by_rows else [panels, inner, tiles]
        stage.reorder(*([image] if row is None else []), *outer, pixel, vector, lane)
        for loop in (pixel, vector):
            stage.unroll(loop)
        stage.vectorize(lane)
        sums.compute_at(stage, outer[-1])
        sums.set_scope("local")
        self._reduction(sums, self.links[number].window, lanes, config[f"unroll{number}"])
        return tiles

    def _reduction(self, stage: Stage, size: int, lanes: int, unroll: int) -> None:
        """Order the loops: reduction outside, pixels unrolled, vectors innermost; ``size`` is that of the window."""
        assert isinstance(stage.op, ComputeOp)
        *around, pixel, channel = stage.op.axis
        *window, last = stage.op.reduce_axis
        steps, step = stage.split(last, factor=unroll)
        vector, lane = stage.split(channel, factor=lanes)
        stage.reorder(*around, *window, steps, step, pixel, vector, lane)
        for loop in (*(window if size <= _SMALL_WINDOW else ()), step, pixel, vector):
            stage.unroll(loop)
        stage.vectorize(lane)

    def _padding(self, stage: Stage, out: Stage, block: IterVar) -> None:
        stage.compute_at(out, block)
        channels = _axes(stage)[-1]
        _, lane = stage.split(channels, factor=min(self.lanes, channels.extent))
        stage.vectorize(lane)


def _sums(schedule: Schedule, link: Link) -> Stage:
    """Return the stage whose sums a register tile holds."""
    anchor = schedule[link.anchor.name]
    return schedule[schedule.cache_write(anchor.tensor, "local")] if link.anchor is link.stored else anchor


def _axes(stage: Stage) -> tuple[IterVar, ...]:
    assert isinstance(stage.op, ComputeOp)
    return stage.op.axis


def space(workload: Workload, target: Target) -> Space:
    """Return the schedules of a chain of convolutions or of Winograd's steps; plain loops where it is
    one of other things."""
    if winograd_blocks.fits(workload):
        return winograd_blocks.space(workload, target)
    program = workload.expressions
    links = links_of(program)
    if links is None:
        return elementwise.space(workload, target, FAMILY)
    recipe = ChainRecipe(links, target.lanes(program.outputs[0].dtype))
    height = links[-1].anchor.shape[1]
    strips = ints(s for s in (*_STRIPS, height) if s <= height)
    knobs = [
        Knob.of("strip", strips, strips[len(strips) // 2], "rows of a block"),
        _place_knob(links),
        Knob.of("tile_order", ("rows", "vector"), "vector", "which tile loop in a block is outermost"),
        parallel_knob(target, target.threads > 1, "share the blocks among workers"),
    ]
    rules: list[Constraint] = []
    for number, link in enumerate(recipe.links):
        knobs += _tile_knobs(link, number, recipe.lanes, target)
        rules += _tile_rules(number, link.window, target)
    return Space(workload, target, FAMILY, tuple(knobs), tuple(rules), recipe)


def _place_knob(links: Sequence[Link]) -> Knob:
    """Return a pixel tile of a 1x1 convolution needs no more than its own pixels, a panel of a pool its
    own channels."""
    others = (PANEL,) if all(link.of_pool for link in links) else (TILE,) if links[-1].window == 1 else ()
    default = PANEL if PANEL in others else STRIP
    return Knob.of("at", (STRIP, *others), default, "where the last but one is computed")


def _tile_knobs(link: Link, number: int, lanes: int, target: Target) -> list[Knob]:
    *_, width, channels = link.anchor.shape
    steps = link.anchor.reduce_axis[-1].extent
    most = ceil_div(channels, lanes)
    rows, vectors = ints(r for r in _ROWS if r <= width), ints(v for v in _VECTORS if v <= most)
    few = steps if steps <= _FEW else 1
    unrolls = (1, steps) if link.reads_few and steps > 1 else ints(u for u in (1, 2, 4, few) if u <= steps)
    unroll = unrolls[-1 if link.reads_few else 0]
    return [
        Knob.of(f"rows{number}", rows, min(width, usual_rows(target)), "pixels of the register tile"),
        Knob.of(f"vectors{number}", vectors, 2 if most > 1 else 1, "vectors of channels of the tile"),
        Knob.of(f"unroll{number}", unrolls, unroll, "steps of the innermost reduction"),
    ]


def _tile_rules(number: int, window: int, target: Target) -> Sequence[Constraint]:
    rows, vectors, unroll = (f"{name}{number}" for name in ("rows", "vectors", "unroll"))

    def registers(c: Columns) -> object:
        return column(c, rows, 1) * column(c, vectors, 1) + column(c, vectors, 1) + 1 <= target.registers

    def body(c: Columns) -> object:
        steps = window if window <= _SMALL_WINDOW else 1
        return column(c, rows, 1) * column(c, vectors, 1) * column(c, unroll, 1) * steps <= 2 * _MAX_BODY

    return (
        Constraint(f"registers{number}", (rows, vectors), registers, "the accumulators would spill"),
        Constraint(
            f"body{number}",
            (rows, vectors, unroll),
            body,
            "the unrolled body would not fit the instruction cache",
        ),
    )


__all__ = ["FAMILY", "ChainRecipe", "space"]
