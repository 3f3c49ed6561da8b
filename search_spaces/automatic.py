"""An automatic sketch: a schedule function for any program, from its structure.

The rules are those of sketch generation in Ansor (Zheng et al., OSDI 2020) and of MetaSchedule's default rules for
CPUs (Shao et al., NeurIPS 2022): cheap stages are inlined, reductions with reuse are tiled in several levels with
their sums in registers, what finishes them is fused, other producers may be computed inside of their reader's tiles,
reductions of contiguous rows keep vectors of partial results, and everything is parallel and in vectors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from autotune.schedule.encoding import identifier
from autotune.te.expr import Call, IterVar, Select
from autotune.te.tensor import ComputeOp
from autotune.te.traversal import nodes, reads
from search_spaces.analysis import ReadForm, operations, read_forms
from search_spaces.plain import schedule_plain, worth_sharing
from search_spaces.row_vectors import attach, folds_lanes, partial_vectors

if TYPE_CHECKING:
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage
    from autotune.target import Target
    from search_spaces.sketch import ScheduleFunction

WHOLE = 1 << 20
"""A block of this many tiles is all of them."""
_CHEAP = 3
"""Operations of a stage that is rather computed again than stored."""
_SPARE_REGISTERS = 4
"""Vector registers that a tile leaves for its operands."""


def automatic(target: Target) -> ScheduleFunction:
    """The schedule function for programs without one, on one target."""
    return lambda schedule: _Automatic(schedule, target).run()


@dataclass
class _Place:
    """Loops of a stage at the root in which what it reads may be computed, outermost first, by their names."""

    stage: Stage
    loops: dict[str, IterVar]


@dataclass
class _Automatic:
    """One run over one schedule."""

    s: Schedule
    target: Target
    places: dict[str, _Place] = field(default_factory=dict)
    """By the name of each stage: its own loops, or those that it is computed in."""

    def run(self) -> None:
        """Schedule every stage, readers first."""
        stages = [stage for stage in reversed(self.s.order()) if isinstance(stage.op, ComputeOp)]
        for stage in stages:
            if not stage.is_output and self._recomputed(stage):
                stage.compute_inline()
        for stage in stages:
            if stage.attach_type == "inline" or stage.op.name in self.places:
                continue
            if not self._placed(stage):
                self._at_root(stage)

    # -- where ----------------------------------------------------------------------------------------------

    def _recomputed(self, stage: Stage) -> bool:
        """Whether a stage is inlined whatever the knobs: it is read once, or costs next to nothing."""
        op = stage.computed("automatic")
        parts = [node for expr in op.body for node in nodes(expr)]
        if op.reduction is not None:
            return False
        cheap = operations(op) <= _CHEAP and not any(isinstance(node, Call | Select) for node in parts)
        return cheap or self._reuse(stage) <= 1

    def _reuse(self, stage: Stage) -> float:
        """How often an element is read."""
        read = 0
        for reader in self.s.readers_of(stage):
            found = [r for e in reader.computed("automatic").body for r in reads(e)]
            read += sum(self.s[r.tensor] is stage for r in found) * _points(reader)
        return read / max(1, math.prod(stage.op.shape))

    def _placed(self, stage: Stage) -> bool:
        """Compute a stage inside of its readers' loops or inline it, as a knob says; False where it is at the root."""
        op = stage.computed("automatic")
        home = None if stage.is_output else self._home(stage)
        loops = {} if home is None else home.loops
        choices = ["root", *loops, *(["inline"] if op.reduction is None and not stage.is_output else [])]
        if len(choices) == 1:
            return False
        where = f"{identifier(home.stage.op.name)}_{[*loops][-1]}" if home is not None and loops else "place"
        default = choices[len(loops)] if op.reduction is not None else "root"
        place = self.s.knob(f"{identifier(op.name)}_in_{where}", choices, default, "where it is computed")
        if place == "root":
            return False
        if place == "inline":
            stage.compute_inline()
            return True
        assert home is not None
        inside = next(number for number, name in enumerate(loops) if place == name)
        self._attach(stage, _Place(home.stage, dict(list(loops.items())[: inside + 1])))
        return True

    def _home(self, stage: Stage) -> _Place | None:
        """The loops that all readers of a stage are in, where there are any."""
        homes = [self.places.get(reader.op.name) for reader in self._finished_readers(stage)]
        known = [home for home in homes if home is not None]
        if len(known) < len(homes) or len({home.stage.op.name for home in known}) != 1:
            return None
        return min(known, key=lambda home: len(home.loops))

    def _finished_readers(self, stage: Stage) -> list[Stage]:
        """Who reads a stage, through inlined ones."""
        found: list[Stage] = []
        for reader in self.s.readers_of(stage):
            found += self._finished_readers(reader) if reader.attach_type == "inline" else [reader]
        return found

    def _attach(self, stage: Stage, place: _Place) -> None:
        """Compute a stage in the innermost loop of a place."""
        op = stage.computed("automatic")
        loop = list(place.loops.values())[-1]
        parts = [stage]
        if op.reduction is not None and _along_rows(op):
            parts = [*self._partial(stage), stage]
            attach(parts, place.stage, loop)
        else:
            stage.compute_at(place.stage, loop)
            schedule_plain(stage, self._lanes(op), inline=False, parallel=False)
        self.places |= {part.op.name: place for part in parts}

    # -- how ------------------------------------------------------------------------------------------------

    def _at_root(self, stage: Stage) -> None:
        op = stage.computed("automatic")
        if not op.axis or 0 in op.shape:
            self.places[op.name] = _Place(stage, {})
            return
        anchor = self._finishes(stage)
        if anchor is not None:
            anchor.set_scope("local")
            self._tile(stage, anchor)
        elif op.reduction is None:
            self._elementwise(stage)
        elif _along_rows(op):
            self._rows(stage)
        else:
            self._tile(stage, self.s[self.s.cache_write(stage.tensor, "local")])

    def _finishes(self, stage: Stage) -> Stage | None:
        """The reduction with the most work whose elements ``stage`` takes one by one, as nobody else does."""
        found: list[Stage] = []
        waiting = [stage]
        while waiting:
            reader = waiting.pop()
            if reader.op.reduce_axis:
                continue
            for tensor in reader.op.input_tensors:
                producer = self.s[tensor]
                if not isinstance(producer.op, ComputeOp) or not _one_by_one(reader, producer, self.s):
                    continue
                if producer.attach_type == "inline":
                    waiting.append(producer)
                elif self._may_be_tiled(producer, reader):
                    found.append(producer)
        return max(found, key=_points, default=None)

    def _may_be_tiled(self, producer: Stage, reader: Stage) -> bool:
        op = producer.computed("automatic")
        alone = self.s.readers_of(producer) == [reader] and not producer.is_output
        return alone and op.reduction is not None and len(op.body) == 1 and not _along_rows(op)

    def _elementwise(self, stage: Stage) -> None:
        """Rows in blocks that workers share, each row in steps of several vectors."""
        op, name = stage.computed("automatic"), identifier(stage.op.name)
        *outer, last = op.axis
        width = min(self._lanes(op), last.extent)
        vectors = self._knob(name, "vectors", (1, 2, 4, 8), last.extent // width, 2, "vectors a step")
        steps, inner = stage.split(last, factor=vectors * width)
        several, lanes = stage.split(inner, factor=width)
        stage.unroll(several)
        stage.vectorize(lanes, when=width > 1)
        block, loops = steps, {"step": steps}
        if outer:
            rows = self._knob(name, "row_block", (1, 2, 4, 8, 16, 32, 64), outer[-1].extent, 1, "rows a tile")
            block, row = stage.split(outer[-1], factor=rows)
            block = stage.fuse(*outer[:-1], block) if outer[:-1] else block
            loops = {"tile": block, "row": row}
        self._share(stage, block)
        self.places[op.name] = _Place(stage, loops)

    def _rows(self, stage: Stage) -> None:
        """A reduction of contiguous rows: vectors of partial results, rows shared by workers."""
        op, name = stage.computed("automatic"), identifier(stage.op.name)
        partial = self._partial(stage)
        rows = self._knob(name, "row_block", (1, 2, 4, 8, 16, 32, 64), op.axis[-1].extent, 1, "rows a tile")
        block, row = stage.split(op.axis[-1], factor=rows)
        block = stage.fuse(*op.axis[:-1], block) if op.axis[:-1] else block
        attach(partial, stage, row)
        self._share(stage, block)
        mine = _Place(stage, {"tile": block, "row": row})
        self.places |= {part.op.name: mine for part in (stage, *partial)}

    def _partial(self, stage: Stage) -> list[Stage]:
        op, name = stage.computed("automatic"), identifier(stage.op.name)
        last = op.reduce_axis[-1].extent
        width = min(self._lanes(op), last)
        vectors = self._knob(name, "vectors", (1, 2, 4, 8), last // width, 4, "vectors of partial results")
        return partial_vectors(self.s, stage, width, vectors)

    def _tile(self, stage: Stage, sums: Stage) -> None:
        """Blocks of tiles; the sums of a tile in registers, its reduction loops outside of them."""
        op, name = stage.computed("automatic"), identifier(stage.op.name)
        *outer, last = op.axis
        width = min(self._lanes(op), last.extent)
        vectors = self._knob(name, "vectors", (1, 2, 3, 4, 6), last.extent // width, 2, "vectors of a tile")
        tiled = [axis for axis in outer if axis.extent > 1][-2:]
        sizes = {
            axis: self._knob(name, knob, (1, 2, 3, 4, 6, 8, 12), axis.extent, rows, "rows of a tile")
            for axis, knob, rows in zip(reversed(tiled), ("rows", "outer_rows"), (4, 1), strict=False)
        }
        self.s.require(
            f"{name}_registers",
            [vectors, *sizes.values()],
            lambda *sizes: math.prod(sizes) <= self.target.registers - _SPARE_REGISTERS,
            "sums that are not in registers are stored and loaded each step",
        )
        columns, inside = stage.split(last, factor=vectors * width)
        split = {axis: stage.split(axis, factor=size) for axis, size in sizes.items()}
        batch = [axis for axis in outer if axis not in split]
        row_tiles = [split[axis][0] for axis in tiled]
        rows = [split[axis][1] for axis in tiled]
        order = "rows"
        if row_tiles:
            order = self.s.knob(f"{name}_order", ("rows", "columns"), help="which tiles are the outer loop")
        tiles = [*row_tiles, columns] if order == "rows" else [columns, *row_tiles]
        stage.reorder(*batch, *tiles, *rows, inside)
        block = stage.fuse(*batch, tiles[0]) if batch else tiles[0]
        several, lanes = stage.split(inside, factor=width)
        for loop in (*rows, several):
            stage.unroll(loop)
        stage.vectorize(lanes, when=width > 1)
        self._share(stage, block)
        sums.compute_at(stage, tiles[-1] if len(tiles) > 1 else block)
        self._accumulate(sums, name, width, [outer.index(axis) for axis in tiled])
        self.places |= {part.op.name: _Place(stage, {"tile": block}) for part in (stage, sums)}

    def _accumulate(self, stage: Stage, name: str, width: int, rows: Sequence[int]) -> None:
        """The loops of the sums of a tile: reductions outside, rows and vectors unrolled inside."""
        op = stage.computed("automatic")
        longest = max(op.reduce_axis, key=lambda axis: axis.extent)
        unroll = self._knob(
            name, "unroll", (1, 2, 4, 8), longest.extent, 1, "steps of a sum that are unrolled"
        )
        main, steps = stage.split(longest, factor=unroll)
        several, lanes = stage.split(op.axis[-1], factor=width)
        inner = [op.axis[number] for number in rows]
        batch = [axis for axis in op.axis[:-1] if axis not in inner]
        others = [axis for axis in op.reduce_axis if axis is not longest]
        window_inside = self._window_inside(name, others)
        reductions = [main, *others] if window_inside else [*others, main]
        stage.reorder(*batch, *reductions, steps, *inner, several, lanes)
        for loop in (steps, *inner, several):
            stage.unroll(loop)
        stage.vectorize(lanes, when=width > 1)

    def _window_inside(self, name: str, others: Sequence[IterVar]) -> bool:
        return bool(others) and bool(
            self.s.knob(
                f"{name}_window_inside", (False, True), help="the longest reduction loop is the outermost"
            )
        )

    # -- details --------------------------------------------------------------------------------------------

    def _share(self, stage: Stage, loop: IterVar) -> None:
        """Share a loop among workers, where a knob says so."""
        op, name = stage.computed("automatic"), identifier(stage.op.name)
        if self.target.threads > 1:
            shared = worth_sharing(op)
            stage.parallel(
                loop, when=self.s.knob(f"{name}_parallel", (False, True), shared, "share the tiles")
            )

    def _knob(self, stage: str, name: str, values: Sequence[int], most: int, default: int, help: str) -> Any:
        """A knob of the values up to ``most``; the number itself where there is one only."""
        legal = [value for value in values if value <= max(1, most)]
        if len(legal) == 1:
            return legal[0]
        return self.s.knob(f"{stage}_{name}", legal, max(v for v in legal if v <= default), help)

    def _lanes(self, op: ComputeOp) -> int:
        return max(1, self.target.lanes(op.body[0].dtype))


def _points(stage: Stage) -> int:
    op = stage.computed("automatic")
    return math.prod(axis.extent for axis in op.axis + op.reduce_axis)


def _one_by_one(reader: Stage, producer: Stage, schedule: Schedule) -> bool:
    """Whether a reader takes the element of its own indices, and no other."""
    op = reader.computed("automatic")
    forms = [form for form in read_forms(op) if schedule[form.tensor] is producer]
    names = [axis.name for axis in op.axis]
    same = len(forms) == 1 and producer.op.shape == op.shape
    return same and [forms[0].single(dim) for dim in range(len(forms[0].dims))] == names


def _along_rows(op: ComputeOp) -> bool:
    """Whether the last reduction loop walks through the largest tensor that it reads, and not the last data loop."""
    if not folds_lanes(op) and len(op.body) == 1:
        return False
    forms = read_forms(op)
    return bool(forms) and max(forms, key=_size).contiguous == op.reduce_axis[-1].name


def _size(form: ReadForm) -> int:
    return math.prod(form.tensor.shape)


__all__ = ["automatic"]
