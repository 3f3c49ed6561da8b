"""What one execution of a stage's innermost loops takes: instructions, results that need each other, registers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.schedule.stage import Stage
from autotune.target import GROUP_BYTES, ITEM_BYTES, Target
from search_spaces.nest.arithmetic import Value, both, ceil_div, either, least, most, where
from search_spaces.nest.digits import digits
from search_spaces.nest.frame import Frame
from search_spaces.nest.kernel import Kernels, Source, around
from search_spaces.nest.loops import Body

FOLD = 12.0
"""Vector instructions that add up the lanes of a register."""
_REGISTERS = 64
"""Vectors of a buffer that stays in registers, at most."""
KEPT = 0.5
"""Share of the loads that serve several positions which stay in a register in between."""


@dataclass(frozen=True)
class Step:
    """The loops of a stage: ``steps`` executions of a body that repeats along each axis, ``lanes`` by vector loops.

    ``tiles`` is how often the body is entered anew, which in a reduction is once for all of its steps. ``results`` are
    its repetitions along the axes of what is computed; it ``folds`` where lanes are reduced.
    """

    steps: Value
    tiles: Value
    repeats: dict[str, Value]
    vector: dict[str, Value]
    results: Value
    folds: bool

    def times(self, name: str) -> Value:
        """How often a body repeats along an axis outside of its vectors."""
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
        self._steps: dict[Stage, Step] = {}
        self._in_registers: dict[Stage, Any] = {}

    def lanes(self, stage: Stage) -> int:
        """Elements of a register of what a stage computes."""
        dtype = stage.op.dtypes[0]
        return self._target.lanes("float32" if dtype == "bool" else dtype)

    def step(self, stage: Stage) -> Step:
        """How the loops around and of a stage run its body."""
        if stage not in self._steps:
            self._steps[stage] = self._step(stage)
        return self._steps[stage]

    def _step(self, stage: Stage) -> Step:
        repeats: dict[str, Value] = {}
        vector: dict[str, Value] = {}
        results: Value = 1
        folds = False
        steps = tiles = self.entries(stage)
        frame = self.frames[stage]
        for loop in stage.leaf_iter_vars:
            extent = frame.extent(loop)
            unrolled, vectorized = (frame.is_kind(loop, kind) for kind in ("unrolled", "vectorized"))
            inside = either(unrolled, vectorized)
            steps = steps * where(inside, 1, extent)
            tiles = tiles if loop.kind == "reduce" else tiles * where(inside, 1, extent)
            folds = folds or (vectorized is not False and loop.kind == "reduce")
            results = results * where(unrolled, extent, 1) if loop.kind == "data" else results
            for target, runs in ((repeats, unrolled), (vector, vectorized)):
                for name, times in digits(frame, loop, self.kernels.axes.name) if runs is not False else ():
                    target[name] = target.get(name, 1) * where(runs, times, 1)
        return Step(steps, tiles, repeats, vector, results, folds)

    def entries(self, stage: Stage) -> Value:
        """How often the loops around a stage enter its own."""
        return math.prod(self.frames[at].extent(loop) for at, loops in around(stage)[:-1] for loop in loops)

    def body(self, stage: Stage, fetches: Value = 0.0) -> Body:
        """The body of a stage, with ``fetches`` more instructions that load ahead."""
        step, lanes = self.step(stage), self.lanes(stage)
        vectors = ceil_div(step.width, lanes) if step.vector else 1
        arithmetic = step.elements * vectors * float(max(1, self.kernels.operations(stage)))
        if step.folds:
            arithmetic = arithmetic + step.results * FOLD
        turned: Any = False
        loads, shared, operand = fetches, 0.0, 1
        for source in self.kernels.sources[stage]:
            mine, more, saved = _loads(step, source, vectors, lanes)
            mine = where(self.in_registers(source.inside), 0.0, mine)
            loads, arithmetic = loads + mine, arithmetic + more
            shared, turned = shared + where(saved, mine, 0.0), either(turned, more > 0)
            if any(name in source.moved for name in step.vector):
                along = [times for name, times in step.repeats.items() if name in step.vector]
                operand = vectors * math.prod(along)
        reduces = bool(stage.op.reduce_axis)
        results = step.results * (1 if step.folds else vectors)
        stored: Value = 0.0 if reduces else where(self.in_registers(stage), 0.0, results)
        # One result is updated once for each step of the reduction; what is added meanwhile is worked out beside.
        updates = step.elements / step.results if reduces else 1
        registers = results + operand + 1 + KEPT * shared
        if not reduces:  # a block that is turned is worked on in groups of lines
            group = least(step.width, max(1, GROUP_BYTES // ITEM_BYTES[stage.op.dtypes[0]]))
            registers = where(turned, group, 2 * results) + 2
        return Body(
            steps=step.steps,
            arithmetic=arithmetic,
            loads=loads,
            stores=stored,
            chains=arithmetic / updates,
            registers=registers,
            instructions=arithmetic + loads + stored,
        )

    def outside(self, stage: Stage) -> Value:
        """Vector instructions at the beginning and the end of a stage's reductions."""
        if not stage.op.reduce_axis:
            return 0.0
        step = self.step(stage)
        vectors = ceil_div(step.width, self.lanes(stage)) if step.vector and not step.folds else 1
        return step.tiles * step.results * vectors * float(2 + self.kernels.finish(stage))

    def in_registers(self, stage: Stage | None) -> Any:
        """Whether what a stage computes stays in registers: few elements, all of them of unrolled loops."""
        if stage is None or stage.attach_stage is None:
            return False
        if stage not in self._in_registers:
            self._in_registers[stage] = self._stays(stage, self.frames[stage])
        return self._in_registers[stage]

    def _stays(self, stage: Stage, frame: Frame) -> Any:
        few: Any = math.prod(frame.sizes[axis] for axis in stage.op.axis) <= _REGISTERS * self.lanes(stage)
        for loop in stage.leaf_iter_vars:
            if loop.kind == "data":
                inside = either(frame.is_kind(loop, "unrolled"), frame.is_kind(loop, "vectorized"))
                few = both(few, either(inside, frame.extent(loop) == 1))
        return few


def _loads(step: Step, source: Source, vectors: Value, lanes: int) -> tuple[Value, Value, Any]:
    """Load instructions of one read, arithmetic that puts vectors together, whether loads serve several positions.

    A load is a vector, a broadcast, or part of a gather of single elements. Equal elements of an unrolled body are
    loaded once: windows that overlap share their loads.
    """
    count: Value = 1.0
    saved: Any = False
    for terms, offsets in zip(source.dims, source.offsets, strict=True):
        every: Value = len(offsets)
        span: Value = 1 + max(offsets) - min(offsets)
        for name, factor in terms.items():
            times = step.times(name)
            every = every * times
            span = span + abs(factor) * (times - 1)
        if any(name in step.vector for name in terms):
            count = count * every  # vectors that overlap are loads of their own
            continue
        count = count * least(every, span)
        saved = either(saved, span < every)
    moving = [name for name in step.vector if name in source.moved]
    if not moving:
        return count, 0.0, saved
    last = source.dims[-1] if source.dims else {}
    (name, *_) = moving
    row_known = not (set(moving) & source.looked_up)
    if last.get(name) == 1 and row_known and all(name not in terms for terms in source.dims[:-1]):
        return count * vectors, 0.0, saved
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


__all__ = ["FOLD", "KEPT", "Bodies", "Step"]
