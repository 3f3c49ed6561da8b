"""Loop nests that are derived from the steps of schedules."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InternalError
from autotune.lower.ir import NONTEMPORAL
from autotune.schedule.arithmetic import Value, either, is_one, most, negated, where
from autotune.schedule.knob import Columns
from autotune.schedule.knob_expression import evaluate
from autotune.schedule.stage import Stage
from autotune.target import ITEM_BYTES
from autotune.te.expr import IterVar
from autotune.te.tensor import Tensor
from search_spaces.nest.axes import roots
from search_spaces.nest.bodies import Bodies
from search_spaces.nest.candidates import CandidateFrame
from search_spaces.nest.digits import digits
from search_spaces.nest.fetched import Fetched
from search_spaces.nest.kernel import About, Kernels, TensorRead
from search_spaces.nest.loops import WRITTEN_OUT, Loop, LoopKind, LoopNest, Numbers, Pass, TensorAccess
from search_spaces.nest.matrix_unit import depth_first, depth_of, groups_of, tiles_of
from search_spaces.nest.replay import followed
from search_spaces.nest.template import Joint, Part, Template
from search_spaces.nest.work import Shared, Work, around
from search_spaces.sketch import Path, Sketch

Dims = tuple[tuple[tuple[str, float], ...], ...]

_COPY = 2
"""Operations an element that a copy hides behind its bytes."""


class Derivation:
    """The loop nests of the candidates of one path in which the ``main`` stage has most work."""

    def __init__(self, work: Work, main: Stage, about: About) -> None:
        self.about = about
        self.replayed = work.places.replayed
        self.kernels = Kernels(work, main, about)
        self.name = self.kernels.axes.name
        root = self.kernels.root
        hints = [hint for hints in root.pragmas.values() for hint in hints]
        self._streamed = NONTEMPORAL in hints

    @property
    def template(self) -> Template:
        """The loop nests where the knobs have any values."""
        return Template(self._nest(), self.kernels.recording)

    def _nest(self) -> LoopNest:
        kernels = self.kernels
        bodies = Bodies(kernels, self.about.target)
        fetched = self._fetched(bodies.frames)
        outside: Value = sum((bodies.outside(stage) for stage in kernels.stages), 0.0)
        fetches = sum((f.instructions for f in fetched), 0.0)
        main, *smaller = bodies.bodies(kernels.main, fetches)
        return LoopNest(
            family=self.about.family,
            lanes=bodies.lanes(kernels.main),
            flops=float(self.about.flops),
            extents=self._extents,
            loops=tuple(self._loops(bodies)),
            accesses=tuple(self._accesses(fetched, bodies)),
            body=main,
            rests=(*smaller, *(bodies.body(stage, bodies.step(stage)) for stage in self._others(bodies))),
            passes=tuple(self._passes()),
            tail_operations=outside,
            resumed=bodies.resumed(kernels.main),
            serial=self._serial(),
            scratch=self._scratch(bodies),
            tags=_tags(bodies),
        )

    def _others(self, bodies: Bodies) -> list[Stage]:
        """Return stages beside the main one that take instructions; a kernel of copies takes as long as
        its bytes do."""
        heavy = [stage for stage in self.kernels.before if self._is_heavy(stage, bodies)]
        return [*(stage for stage in self.kernels.stages if stage is not self.kernels.main), *heavy]

    def _is_heavy(self, stage: Stage, bodies: Bodies) -> bool:
        """Return whether a kernel does more than to copy full vectors where they lie."""
        width = bodies.step(stage).width
        narrow = isinstance(width, int) and width < bodies.lanes(stage)
        works = bool(stage.op.reduce_axis) or self.kernels.operations(stage) > _COPY
        return works or narrow or bodies.crosses_lines(stage)

    def _loops(self, bodies: Bodies) -> list[Loop]:
        found = []
        for stage, loops in self.kernels.chain:
            for loop in depth_first(stage, loops):
                kind, unrolled = self._kind(stage, loop), bodies.frames[stage].is_kind(loop, "unrolled")
                for name, extent in digits(bodies.frames[stage], loop, self.name):
                    if is_one(extent):
                        continue
                    if loop is depth_of(stage):
                        deep = groups_of(tiles_of(stage))
                        found += [Loop(name, extent / deep), Loop(name, extent * 0 + deep, "unrolled")]
                        continue
                    if isinstance(unrolled, bool):
                        found.append(Loop(name, extent, kind))
                        continue
                    found.append(Loop(name, where(unrolled, 1, extent)))
                    found.append(Loop(name, where(unrolled, extent, 1), "unrolled"))
        beside = dict[str, Value]()
        for _, name, extent in self._beside(bodies):
            beside[name] = beside.get(name, 1) * extent
        return [*found, *(Loop(name, extent, "beside") for name, extent in beside.items())]

    def _kind(self, stage: Stage, loop: IterVar) -> LoopKind:
        """Return the kind of a loop; one that some candidates share among workers has a kind of its own in
        the others."""
        if self.replayed.is_kind(stage, loop, "parallel") is not False:
            return "parallel"
        return next(
            (kind for kind in WRITTEN_OUT if self.replayed.is_kind(stage, loop, kind) is True), "serial"
        )

    def _beside(self, bodies: Bodies) -> list[tuple[IterVar, str, Value]]:
        """Return the loops that run before or after the main stage, with the axes that it does not walk along, and
        how far they do."""
        beside = []
        walked = set[str]()
        for stage, loops in reversed(self.kernels.chain):
            every = [
                (loop, *part)
                for loop in stage.leaf_iter_vars
                for part in digits(bodies.frames[stage], loop, self.name)
            ]
            beside += [part for part in every if part[0] not in loops and part[1] not in walked]
            walked |= {name for _, name, _ in every}
        return beside

    def _unmoved(self, stage: Stage, bodies: Bodies) -> frozenset[str]:
        """Return the axes along which other stages walk before or after one, in loops that are not around it."""
        enclosing = {loop for _, loops in around(stage) for loop in loops}
        beside = {name for loop, name, _ in self._beside(bodies) if loop not in enclosing}
        return frozenset(beside - self._own(stage))

    @cached_property
    def _extents(self) -> dict[str, int]:
        """Return the number of values of each axis."""
        stages = self.kernels.stages
        axes = [axis for stage in stages for axis in (*stage.op.axis, *stage.op.reduce_axis)]
        return {self.name(axis): self.kernels.axes.size(self.name(axis)) for axis in axes}

    def _serial(self) -> Any:
        """Return which candidates run on one worker."""
        root, loops = self.kernels.chain[0]
        shared: Any = False
        for loop in loops:
            shared = either(
                shared, evaluate(self.replayed.is_kind(root, loop, "parallel"), self.kernels.knobs)
            )
        return negated(shared)

    def _fetched(self, frames: Mapping[Stage, CandidateFrame]) -> list[Fetched]:
        """Return what is fetched ahead, and the distance."""
        found = []
        chain = [(stage, loop) for stage, loops in self.kernels.chain for loop in loops]
        for (stage_name, tensor, loop_name), given in self.replayed.distances.items():
            around = next(
                (pair for pair in chain if (pair[0].op.name, pair[1].name) == (stage_name, loop_name)), None
            )
            if around is None:
                continue
            extents: dict[str, Value] = {}
            bodies: Value = 1
            for stage, loop in chain[chain.index(around) + 1 :]:
                frame = frames[stage]
                bodies = bodies * where(frame.is_written_out(loop), 1, frame.extent(loop))
                for name, extent in digits(frame, loop, self.name):
                    extents[name] = extents.get(name, 1) * extent
            moved = [self.name(axis) for axis in roots(*around)]
            distance = evaluate(given, self.kernels.knobs)
            for source in (s for stage in self.kernels.stages for s in self.kernels.sources[stage]):
                if source.tensor.op.name == tensor:
                    found.append(Fetched(source, distance, moved, extents, bodies))
        return found

    def _accesses(self, fetched: Sequence[Fetched], bodies: Bodies) -> list[TensorAccess]:
        ahead: dict[tuple[object, ...], dict[str, Value]] = {}
        for f in fetched:  # in one of several loops, as knobs say
            mine = ahead.setdefault(f.source.key, {"ahead": 0.0, "abreast": 0.0, "awaited": 0.0})
            own = {"ahead": f.nbytes, "abreast": f.abreast, "awaited": f.awaited}
            mine |= {name: mine[name] + value for name, value in own.items()}
        streamed: Value = self._streamed or None
        written = [replace(access, streamed=streamed) for access in self._written]
        return [
            *written,
            *(replace(access, **ahead.get(key, {})) for key, access in self._read(bodies).items()),
        ]

    @cached_property
    def _written(self) -> list[TensorAccess]:
        root = self.kernels.root
        dims = tuple(((self.name(axis), 1),) for axis in root.op.axis)
        tensors = [root.op.output(number) for number in range(len(root.op.dtypes))]
        return [replace(self._access(t, dims, self._outside(root)), write=True) for t in tensors]

    def _read(self, bodies: Bodies) -> dict[tuple[object, ...], TensorAccess]:
        """Return the reads of memory, once where several stages go through the same elements."""
        found: dict[tuple[object, ...], TensorAccess] = {}
        for stage in self.kernels.stages:
            for source in self.kernels.sources[stage]:
                # What is computed inside and read once counts as scratch memory alone.
                again = bool(stage.op.reduce_axis)
                read = source.inside is None or (again and bodies.in_memory(source.inside))
                # Patches of a block are copied from a few rows of an image, which stay near.
                read = read and not (source.runs and stage is not self.kernels.main)
                if read and source.key not in found:
                    access = self._access(source.tensor, _moved(source, bodies), self._outside(stage))
                    # What was computed for an iteration around lies as it is read.
                    # Panels of single elements take as long as rows: 2 to 8 % longer at 2048, interleaved.
                    across = bool(stage.op.axis) and self.name(stage.op.axis[-1]) in source.moved
                    panel: Value = ((source.panel and across) or source.inside is not None) or None
                    gaps = tuple(_gaps(offsets) for offsets in source.offsets)
                    found[source.key] = replace(
                        access,
                        looked_up=bool(source.looked_up),
                        panel=panel,
                        gaps=gaps,
                        unmoved=self._unmoved(stage, bodies),
                    )
        return found

    def _access(self, tensor: Tensor, dims: Dims, outside: frozenset[str]) -> TensorAccess:
        row = self.about.row_bytes(tensor)
        return TensorAccess(
            tensor.name, ITEM_BYTES[tensor.dtype], dims, tensor.shape, outside=outside, row_bytes=row
        )

    def _outside(self, stage: Stage) -> frozenset[str]:
        """Return the axes whose loops do not repeat what a stage does, because they run before or after it."""
        enclosing = {loop for at, loops in around(stage)[:-1] for loop in loops}
        around_it, beside = set[str](), set[str]()
        for at, loop, moved in self._moved:
            known = around_it if loop in enclosing or at is stage else beside
            known |= moved
        return frozenset(beside - around_it - self._own(stage))

    def _own(self, stage: Stage) -> set[str]:
        return {self.name(axis) for axis in (*stage.op.axis, *stage.op.reduce_axis)}

    @cached_property
    def _moved(self) -> list[tuple[Stage, IterVar, set[str]]]:
        """The loops around the main stage's body, and the axes that each moves."""
        chain = ((at, loop) for at, loops in self.kernels.chain for loop in loops)
        return [(at, loop, {self.name(axis) for axis in roots(at, loop)}) for at, loop in chain]

    def _passes(self) -> list[Pass]:
        """Return kernels before the main one read their inputs and write what they compute."""
        found = []
        for root in self.kernels.passes:
            shape = self.kernels.places.shape(root, self.kernels.knobs)
            size: Value = math.prod(shape) * ITEM_BYTES[root.op.dtypes[0]]
            read: Value = sum(math.prod(t.shape) * ITEM_BYTES[t.dtype] for t in root.op.input_tensors)
            packed = root.op.name in self.replayed.panels
            found.append(Pass(root.op.name, read, size, shared=packed))
        return found

    def _scratch(self, bodies: Bodies) -> tuple[Numbers, Numbers] | None:
        """Return bytes that a block stores for later, and how often they are written: sums for each
        block of a reduction."""
        size: Value = 0.0
        filled: Value = 0.0
        for stage in self.kernels.stages:
            kept = bodies.in_registers(stage)
            if stage.attach_stage is None or kept is True:
                continue
            mine: Value = float(ITEM_BYTES[stage.op.dtypes[0]])
            for axis in stage.op.axis:
                mine = mine * bodies.frames[stage].sizes[axis]
            mine = where(kept, 0.0, mine)
            size, filled = size + mine, filled + mine * bodies.entries(stage) * bodies.step(stage).passes
        if isinstance(size, float) and not size:
            return None
        return size, filled / most(size, 1.0)


def _gaps(offsets: Iterable[int]) -> tuple[int, ...]:
    """Return the distances of neighbours."""
    return tuple(b - a for a, b in itertools.pairwise(sorted(offsets)))


def _moved(source: TensorRead, bodies: Bodies) -> Dims:
    """Return what moves each dimension; nothing where a buffer computed inside has one place, written
    again and again."""
    dims = [tuple(terms.items()) for terms in source.dims]
    if source.inside is not None and not source.panel:
        sizes = bodies.frames[source.inside].sizes
        axes = source.inside.op.axis
        dims = [() if is_one(sizes[axis]) else terms for axis, terms in zip(axes, dims, strict=True)]
    return tuple(dims)


def _tags(bodies: Bodies) -> dict[str, Numbers]:
    """Return sizes of the main stage's tile by which learned models know it."""
    kernels = bodies.kernels
    step = bodies.step(kernels.main)
    vectors = math.prod(step.times(name) for name in step.vector)
    width = 1 if step.folds else step.width
    return {
        "vectors": vectors,
        "rows": step.results / vectors,
        "unroll": step.elements / step.results,
        "inline": float(any(bodies.in_memory(stage) for stage in kernels.stages if stage.attach_stage)),
        "waste": step.tiles * step.results * width / max(math.prod(kernels.main.op.shape), 1),
    }


class Nests:
    """The loop nests of all candidates of a sketch; each of its paths is replayed once."""

    def __init__(self, sketch: Sketch, about: About) -> None:
        self._sketch = sketch
        self._about = about
        self._shared = Shared()
        self._works: dict[int, tuple[Path, Work]] = {}
        self._templates: dict[Stage, tuple[Template, Joint]] = {}
        self._joints: list[Joint] = []

    def parts(self, columns: Columns) -> list[tuple[NDArray[np.intp], LoopNest]]:
        """Return the loop nests of a population, those of as many paths in one as can be.

        Raises what the schedule function raises for a candidate that it refuses.
        """
        found: dict[Joint, list[tuple[NDArray[np.intp], Part]]] = {}
        for rows, path in self._sketch.paths(columns):
            work = self._work(path)
            mine = {name: column[rows] for name, column in columns.items()}
            for some, main in work.mains(mine, len(rows)):
                own = mine if len(some) == len(rows) else {name: c[some] for name, c in mine.items()}
                template, joint = self._template(work, main)
                found.setdefault(joint, []).append((rows[some], (template, own, len(some))))
        return [
            (np.concatenate([rows for rows, _ in parts]), joint.nest([part for _, part in parts]))
            for joint, parts in found.items()
        ]

    def _work(self, path: Path) -> Work:
        if path.schedule is None:
            raise path.error or InternalError("a path without a schedule")
        if id(path) not in self._works:
            knobs = [knob.name for knob in self._sketch.knobs]
            replayed = followed(path.schedule, path.trace)
            work = Work(replayed, knobs, self._about.constants, self._shared)
            self._works[id(path)] = path, work
        return self._works[id(path)][1]

    def _template(self, work: Work, main: Stage) -> tuple[Template, Joint]:
        """Return the loop nests of a path about one of its stages, each of which is that of one path alone."""
        if main not in self._templates:
            template = Derivation(work, main, self._about).template
            self._templates[main] = template, self._joint(template)
        return self._templates[main]

    def _joint(self, template: Template) -> Joint:
        """Return the place of a path's loop nest among those of others."""
        for joint in self._joints:
            if joint.admit(template):
                return joint
        self._joints.append(Joint(template))
        return self._joints[-1]


__all__ = ["About", "Derivation", "Nests"]
