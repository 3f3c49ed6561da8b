"""Costs of one execution of a stage's innermost loops: instructions, results that need each other, registers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from autotune.schedule.arithmetic import Value, both, ceil_div, either, is_one, least, most, negated, where
from autotune.schedule.stage import Stage
from autotune.target import GROUP_BYTES, ITEM_BYTES, Target
from search_spaces.nest.candidates import CandidateFrame
from search_spaces.nest.digits import digits
from search_spaces.nest.kernel import Kernels, TensorRead, walks
from search_spaces.nest.loops import PAGE_BYTES, Body
from search_spaces.nest.matrix_unit import body_of, depth_of, group_of, groups_of, multiplies_pairs, tiles_of
from search_spaces.nest.replay import calls_library
from search_spaces.nest.work import around, root_of

_REGISTERS = 64
"""Vectors of a buffer that stays in registers, at most."""
_FOREIGN_TILE = 6, 4
"""Rows and vectors of a register tile of a library."""

_VECTOR, _RUN, _RAGGED = 8.0, 16.0, 40.0
"""Instructions of a vector of patches of an image, of the beginning of a run, and of one that ends in part of a vector.
Cascade Lake, eight products of patches of 9² to 112² pixels against products of the same matrices as operands: 2 to 11
cycles a vector; runs that vectors do not divide, as of three channels, 30 cycles each against direct ones."""


@dataclass(frozen=True)
class LoopBody:
    """The loops of a stage: ``steps`` executions of a body that repeats along each axis, ``lanes`` by vector loops.

    ``tiles`` is how often the body is entered anew, which in a reduction is once for all of its steps. ``results`` are
    its repetitions along the axes of what is computed; it ``folds`` where lanes are reduced. ``inner`` are the steps of
    the innermost loop, ``passes`` how often each tile is taken up where a reduction goes through all of them in blocks.
    """

    steps: Value
    tiles: Value
    repeats: dict[str, Value]
    vector: dict[str, Value]
    results: Value
    folds: bool
    inner: Value
    passes: Value

    def times(self, name: str) -> Value:
        """Return the number of repetitions of a body along an axis outside of its vectors."""
        return self.repeats.get(name, 1)

    @property
    def elements(self) -> Value:
        """Repetitions of the body outside of its vectors."""
        return math.prod(self.repeats.values())

    @property
    def width(self) -> Value:
        """Elements of a vector loop."""
        return math.prod(self.vector.values())


class Bodies:
    """The bodies of all stages of a kernel."""

    def __init__(self, kernels: Kernels, target: Target) -> None:
        self.kernels = kernels
        self.frames = kernels.frames
        self._target = target
        self._steps: dict[Stage, LoopBody] = {}
        self._in_registers: dict[Stage, Any] = {}

    def lanes(self, stage: Stage) -> int:
        """Return elements of a register of what a stage computes."""
        dtype = stage.op.dtypes[0]
        return self._target.lanes("float32" if dtype == "bool" else dtype)

    def step(self, stage: Stage) -> LoopBody:
        """Return the run of its body by the loops around and of a stage."""
        if stage not in self._steps:
            self._steps[stage] = self._step(stage, self.frames[stage])
        return self._steps[stage]

    def _step(self, stage: Stage, frame: CandidateFrame) -> LoopBody:
        repeats: dict[str, Value] = {}
        vector: dict[str, Value] = {}
        results: Value = 1
        folds = False
        tiles = self.entries(stage)
        steps = tiles * frame.filled
        deep, depth, group = groups_of(tiles_of(stage)), depth_of(stage), group_of(stage)
        for loop in stage.leaf_iter_vars:
            if loop is group:
                continue  # one instruction multiplies its steps
            extent = frame.extent(loop)
            unrolled, vectorized = (frame.is_kind(loop, kind) for kind in ("unrolled", "vectorized"))
            inside = either(unrolled, vectorized)
            if loop is depth:
                for name, times in digits(frame, loop, self.kernels.axes.name):
                    repeats[name] = repeats.get(name, 1) * deep
                    steps = steps * (times / deep)
                continue
            steps = steps * where(inside, 1, extent)
            tiles = tiles if loop.kind == "reduce" else tiles * where(inside, 1, extent)
            folds = folds or (vectorized is not False and loop.kind == "reduce")
            results = results * where(unrolled, extent, 1) if loop.kind == "data" else results
            for target, runs in ((repeats, unrolled), (vector, vectorized)):
                for name, times in digits(frame, loop, self.kernels.axes.name) if runs is not False else ():
                    target[name] = target.get(name, 1) * where(runs, times, 1)
        passes = self._passes(stage, frame)
        return LoopBody(
            steps, tiles * passes, repeats, vector, results, folds, self._inner(stage, frame), passes
        )

    def _inner(self, stage: Stage, frame: CandidateFrame) -> Value:
        """Return iterations of the innermost loop that repeats and is not written out."""
        found: Value = 1
        for loop in reversed(stage.leaf_iter_vars):
            repeats = both(negated(frame.is_written_out(loop)), found == 1)
            found = where(repeats, frame.extent(loop), found)
        return found

    def _passes(self, stage: Stage, frame: CandidateFrame) -> Value:
        """Return iterations of loops over blocks of a reduction outside of loops over tiles, which have
        its other loops."""
        found: Value = 1
        outside: Value = 1
        for loop in stage.leaf_iter_vars:
            if loop.kind == "reduce":
                outside = outside * frame.extent(loop)
            elif frame.is_written_out(loop) is False:
                found = outside
        return found if found is not outside else 1

    def entries(self, stage: Stage) -> Value:
        """Return the number of entries of its own loops by the loops around a stage."""
        return math.prod(self.frames[at].extent(loop) for at, loops in around(stage)[:-1] for loop in loops)

    def bodies(self, stage: Stage, fetches: Value = 0.0) -> list[Body]:
        """Return the body of a stage, which loads ``fetches`` times ahead, and those of its smaller last tiles."""
        whole: Value = 1
        found = []
        for share, frame in self._smaller(stage):
            step = self._step(stage, frame)
            found.append(self.body(stage, replace(step, steps=step.steps * whole * share), fetches))
            whole = whole * (1 - share)
        step = self.step(stage)
        return [self.body(stage, replace(step, steps=step.steps * whole), fetches), *found]

    def _smaller(self, stage: Stage) -> Iterator[tuple[Value, CandidateFrame]]:
        """Yield the smaller last tiles that a peeled split leaves around a stage: the share of such tiles,
        and their loops."""
        root, name = self.frames[root_of(stage)], self.kernels.axes.name
        for axis in stage.op.axis if root.stage is not stage else ():
            split = next(
                (root.splits[a] for a in root.stage.op.axis if name(a) == name(axis) and a in root.splits),
                None,
            )
            if split is None:
                continue
            rest = root.rest(split)
            cut = both(root.peels(split), rest < root.width(split))
            if cut is not False:
                share = where(cut, 1.0 / root.extent(split.outer), 0.0)
                yield share, self.frames[stage].resized({axis: least(rest, self.frames[stage].sizes[axis])})

    def body(self, stage: Stage, step: LoopBody, fetches: Value = 0.0) -> Body:
        """Return the body of ``step``, which loads ``fetches`` times ahead."""
        if (tiles := tiles_of(stage)) is not None:
            return body_of(tiles, step.steps)
        lanes = self.lanes(stage)
        vectors = ceil_div(step.width, lanes) if step.vector else 1
        held = self._holds(stage)
        # What is in registers already may be stored as it is.
        arithmetic = self._arithmetic(stage, step, 0 if held else 1) * vectors
        turned: Any = False
        loads, narrow, shared, operand = fetches, 0.0, 0.0, 1
        split: Value = 0.0
        pages: Value = 0.0
        page_reach: Value = 0.0
        for source in self.kernels.sources[stage]:
            mine, more, saved = _loads(step, source, vectors, lanes)
            mine = where(self.in_registers(source.inside), 0.0, mine)
            loads, arithmetic = loads + mine, arithmetic + more
            if source.row_bytes and source.in_vectors(step.vector, lanes):
                again = self._is_loaded_again(stage, step, source)
                split = split + mine * source.crossing(least(step.width, lanes), again)
                more_pages, reach = self._pages(step, source)
                pages, page_reach = pages + more_pages, most(page_reach, reach)
            narrow = narrow + (0.0 if source.moved & step.vector.keys() else mine)
            shared, turned = shared + where(saved, mine, 0.0), either(turned, more > 0)
            if any(name in source.moved for name in step.vector):
                along = [times for name, times in step.repeats.items() if name in step.vector]
                operand = vectors * math.prod(along)
        reduces = bool(stage.op.reduce_axis)
        restarts = self._restarts(stage, step)
        results = step.results * (1 if step.folds else vectors)
        stored: Value = 0.0 if reduces else where(self.in_registers(stage), 0.0, results)
        if step.vector and stage.op.axis and self.kernels.axes.name(stage.op.axis[-1]) not in step.vector:
            # Neighbours in a vector are stored apart: a block of them is turned in registers.
            arithmetic = arithmetic + stored * float(
                np.log2(max(1, GROUP_BYTES // ITEM_BYTES[stage.op.dtypes[0]]))
            )
        # One result is updated once for each step of the reduction; what is added meanwhile is worked out beside.
        updates = step.elements / step.results if reduces else 1
        registers = results + operand + 1
        if not reduces:  # a block that is turned is worked on in groups of lines
            group = least(step.width, max(1, GROUP_BYTES // ITEM_BYTES[stage.op.dtypes[0]]))
            registers = where(turned, group, self._waiting(stage, results)) + 2
        body = Body(
            steps=step.steps,
            arithmetic=arithmetic,
            loads=loads,
            stores=stored,
            chains=arithmetic / updates,
            registers=registers,
            instructions=arithmetic + loads + stored,
            narrow=narrow if reduces else 0.0,
            shared=shared if reduces else 0.0,
            split=split,
            pages=pages,
            page_reach=page_reach,
            folds=step.results if step.folds else 0.0,
            simple=0.0 if reduces else arithmetic,
            restarts=restarts,
            runs=restarts * (step.results if step.vector else 0.0),
            pairs=step.elements * vectors if multiplies_pairs(stage) else 0.0,
        )
        return self._foreign(step, body) if calls_library(stage) else body

    def _arithmetic(self, stage: Stage, step: LoopBody, least: int) -> Value:
        """Return the instructions of a body for a vector; those on bits serve all steps along other axes."""
        operations, axes = float(max(least, self.kernels.operations(stage))), self.kernels.of_bits(stage)
        if not axes:
            return step.elements * operations
        return step.elements + math.prod(step.times(name) for name in axes) * max(operations - 1.0, 0.0)

    def _is_loaded_again(self, stage: Stage, step: LoopBody, source: TensorRead) -> bool:
        """Return whether a source of vectors is multiplied with single elements of another in memory,
        those of other rows.

        What attention multiplies with its values it has just computed: copied, for loads that cross no lines, they
        took 7 % longer, interleaved.
        """
        single = [other for other in self.kernels.sources[stage] if not other.moved & step.vector.keys()]
        return any(other.moved - source.moved for other in single if other.inside is None)

    def _foreign(self, step: LoopBody, body: Body) -> Body:
        """Return the body that a library's kernel is: it packs its operands, and keeps registers and
        loops to itself."""
        rows, vectors = _FOREIGN_TILE
        narrow, full = (body.arithmetic / count for count in (vectors, rows))
        packed = (step.results + step.width) * (step.elements / step.results)
        own = {
            "loads": narrow + full,
            "narrow": narrow,
            "registers": 0.0 * narrow,
            "instructions": 0.0 * narrow,
        }
        return replace(body, foreign=body.arithmetic, packed=packed, **own)

    def _waiting(self, stage: Stage, results: Value) -> Value:
        """Return registers of results that wait to be stored or read; what stays in them is counted
        where it is computed. Sums become results where they are."""
        inside = [s.inside for s in self.kernels.sources[stage] if s.inside]
        summed = [producer for producer in inside if producer.op.reduce_axis]
        others = [producer for producer in inside if not producer.op.reduce_axis]
        reads = reduce(either, map(self.in_registers, others), False)
        once = reduce(either, map(self.in_registers, summed), self._holds(stage))
        stored = where(reads, 0, where(once, results, 2 * results))
        return where(self.in_registers(stage), results, stored)

    def _restarts(self, stage: Stage, step: LoopBody) -> Value:
        """Return the number of new runs of elements, which a window has for each of its taps, for one body."""
        reduced = {self.kernels.axes.name(axis): axis.extent for axis in stage.op.reduce_axis}
        windowed = sum(extent > 1 for extent in reduced.values()) > 1
        for source in self.kernels.sources[stage] if windowed else ():
            along = [name for name in (source.dims[-1] if source.dims else ()) if name in reduced]
            if along and not source.moved & step.vector.keys():
                return 1.0 / step.inner
        return 0.0

    def _pages(self, step: LoopBody, source: TensorRead) -> tuple[Value, float]:
        """Return rows of a matrix that one execution of the body reads, each on a page of its own, and
        pages that all are."""
        found: Value = 0.0
        reach = 0.0
        for axis in source.stage.op.reduce_axis:
            name = self.kernels.axes.name(axis)
            down = any(name in terms for terms in source.dims[:-1])
            if down:
                found = found + min(1.0, source.row_bytes / PAGE_BYTES) * step.times(name)
                reach = max(reach, source.row_bytes * self.kernels.axes.size(name) / PAGE_BYTES)
        return found, reach

    def outside(self, stage: Stage) -> Value:
        """Return the vector instructions at the beginning and the end of a stage's reductions."""
        if not stage.op.reduce_axis:
            return 0.0
        step = self.step(stage)
        vectors = ceil_div(step.width, self.lanes(stage)) if step.vector and not step.folds else 1
        # Those that stay in registers are stored by their readers.
        stored = where(self.in_registers(stage), 0.0, 1.0)
        return step.tiles * step.results * vectors * (1.0 + stored + self.kernels.finish(stage))

    def resumed(self, stage: Stage) -> Value:
        """Return the number of times that a tile is taken up again for another block of a reduction."""
        step = self.step(stage)
        return where(step.passes > 1, step.tiles, 0.0)

    def crosses_lines(self, stage: Stage) -> bool:
        """Return whether a stage puts vectors together of elements that lie apart."""
        vector, lanes = self.step(stage).vector, self.lanes(stage)
        moved = [source for source in self.kernels.sources[stage] if vector.keys() & source.moved]
        return not all(source.in_vectors(vector, lanes) for source in moved)

    def _holds(self, stage: Stage) -> bool:
        """Return whether a stage reads nothing but what is in registers."""
        inside = [self.in_registers(source.inside) for source in self.kernels.sources[stage]]
        return bool(inside) and all(kept is not False for kept in inside)

    def in_registers(self, stage: Stage | None) -> Any:
        """Return whether what a stage computes stays in registers: few elements, all of them of unrolled loops."""
        if stage is None or stage.attach_stage is None:
            return False
        if stage not in self._in_registers:
            self._in_registers[stage] = self._stays(stage, self.frames[stage])
        return self._in_registers[stage]

    def in_memory(self, stage: Stage) -> bool:
        """Return whether a stage has loops that may repeat and are not written out."""
        frame = self.frames[stage]
        return any(
            frame.is_written_out(loop) is False and not is_one(frame.extent(loop))
            for loop in stage.leaf_iter_vars
            if loop.kind == "data"
        )

    def _stays(self, stage: Stage, frame: CandidateFrame) -> Any:
        if tiles_of(stage) is not None:
            return False
        few: Any = math.prod(frame.sizes[axis] for axis in stage.op.axis) <= _REGISTERS * self.lanes(stage)
        for loop in stage.leaf_iter_vars:
            if loop.kind == "data":
                few = both(few, either(frame.is_written_out(loop), frame.extent(loop) == 1))
        return few


def _loads(step: LoopBody, source: TensorRead, vectors: Value, lanes: int) -> tuple[Value, Value, Any]:
    """Load instructions of one read, arithmetic that puts vectors together, whether loads serve several positions.

    A load is a vector, a broadcast, or part of a gather of single elements. Equal elements of an unrolled body are
    loaded once: windows that overlap share their loads.
    """
    count: Value = 1.0
    saved: Any = False
    panels = {
        name for terms in source.dims for name in step.vector if 0 < abs(terms.get(name, 0)) * lanes <= 1
    }
    for terms, offsets, extent in zip(source.dims, source.offsets, source.tensor.shape, strict=True):
        every: Value = len(offsets)
        span: Value = 1 + max(offsets) - min(offsets)
        for name, factor in terms.items():
            times = step.times(name)
            every = every * times
            span = span + abs(factor) * (times * (lanes if name in step.vector else 1) - 1)
        if any(walks(terms, name, lanes) for name in step.vector):
            # Vectors that overlap are loads of their own; within a panel there are so many.
            count = count * (least(every, ceil_div(extent, lanes)) if panels & terms.keys() else every)
            continue
        span = np.floor(span)
        count = count * least(every, span)
        saved = either(saved, span < every)
    moving = [name for name in step.vector if name in source.moved]
    if not moving:
        return count, 0.0, saved
    if source.in_vectors(moving, lanes):
        return count * vectors, 0.0, saved
    last = source.dims[-1] if source.dims else {}
    run = source.runs.get(moving[0], 0)
    if run > 1 and last.get(moving[0]) == 1 and not set(moving) & source.stepped:
        copied = vectors * math.prod(times for name, times in step.repeats.items() if name in source.moved)
        begins = copied * (most(1.0, lanes / run) / most(1.0, run / lanes))
        return copied, _VECTOR * copied + (_RUN + (_RAGGED if run % lanes else 0.0)) * begins, False
    item = ITEM_BYTES[source.tensor.dtype]
    least_lines = max(1, GROUP_BYTES // item)
    along = [other for other in last if last[other] == 1 and other in step.repeats]
    if source.exact and along:  # a block of lines, turned in registers
        pieces = most(1.0, step.width * item / GROUP_BYTES)
        turned = step.times(along[0]) >= least_lines
        stages = float(np.log2(max(1, GROUP_BYTES // item)))
        gathered = count * vectors * lanes
        return where(turned, count * pieces, gathered), where(turned, count * stages, 0.0), saved
    return count * vectors * lanes, 0.0, saved


__all__ = ["Bodies", "LoopBody"]
