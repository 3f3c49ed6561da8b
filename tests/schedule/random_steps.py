"""Random schedule steps: each call is mostly legal, and an illegal one must raise ScheduleError."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar

from autotune import te
from autotune.errors import ScheduleError
from autotune.schedule import PRIMITIVES, Schedule, Stage
from autotune.te.tensor import ComputeOp, Tensor
from tests.schedule.random_intrinsics import DoesNotFit, random_intrinsic

FACTORS = (1, 2, 2, 3, 4, 4, 5, 7, 8, 16)
TAILS = ("peel", "peel", "overlap", "guard")
MAX_STEPS = 12


T = TypeVar("T")


class NothingToChoose(Exception):
    """No stage or tensor suits the step drawn."""


class _Steps:
    def __init__(self, rng: random.Random, schedule: Schedule, scopes: Sequence[str]) -> None:
        self.rng = rng
        self.s = schedule
        self.scopes = scopes

    def stages(self) -> list[Stage]:
        """Stages that compute something, inlined ones left out."""
        return [st for st in self.s.order() if isinstance(st.op, ComputeOp) and st.attach_type != "inline"]

    def stage(self) -> Stage:
        return self.rng.choice(self.stages())

    def attached(self) -> Stage:
        """A stage, mostly one that is computed inside a loop of another."""
        inside = [st for st in self.stages() if st.attach_type == "scope"]
        return self.rng.choice(inside) if inside and self.rng.random() < 0.9 else self.stage()

    def pick(self, candidates: Sequence[T]) -> T:
        if not candidates:
            raise NothingToChoose
        return self.rng.choice(candidates)

    def loop(self, stage: Stage) -> Any:
        return self.rng.choice(stage.leaf_iter_vars)

    # primitives ---------------------------------------------------------------------------------

    def split(self) -> None:
        stage = self.stage()
        how = "factor" if self.rng.random() < 0.8 else "nparts"
        tail = self.rng.choice(TAILS)
        stage.split(self.loop(stage), tail=tail, **{how: self.rng.choice(FACTORS)})

    def tile(self) -> None:
        stage = self.pick([st for st in self.stages() if len(st.leaf_iter_vars) > 1])
        first = self.rng.randrange(len(stage.leaf_iter_vars) - 1)
        x, y = stage.leaf_iter_vars[first : first + 2]
        stage.tile(x, y, self.rng.choice(FACTORS), self.rng.choice(FACTORS), tail=self.rng.choice(TAILS))

    def fuse(self) -> None:
        stage = self.stage()
        first = self.rng.randrange(len(stage.leaf_iter_vars))
        stage.fuse(*stage.leaf_iter_vars[first : first + self.rng.choice((2, 2, 3))])

    def reorder(self) -> None:
        stage = self.stage()
        loops = list(stage.leaf_iter_vars)
        stage.reorder(*self.rng.sample(loops, self.rng.randint(min(2, len(loops)), len(loops))))

    def vectorize(self) -> None:
        stage = self.stage()
        stage.vectorize(stage.leaf_iter_vars[-1] if self.rng.random() < 0.8 else self.loop(stage))

    def unroll(self) -> None:
        stage = self.stage()
        small = [iv for iv in stage.leaf_iter_vars if iv.extent <= 16]
        stage.unroll(self.rng.choice(small or stage.leaf_iter_vars))

    def parallel(self) -> None:
        stage = self.stage()
        stage.parallel(stage.leaf_iter_vars[0] if self.rng.random() < 0.9 else self.loop(stage))

    def bind(self) -> None:
        stage = self.stage()
        tags = ("blockIdx.x", "blockIdx.y", "threadIdx.x", "threadIdx.x", "threadIdx.y", "vthread")
        tag = self.rng.choice(tags)
        place = 0 if tag.startswith("block") else self.rng.randrange(len(stage.leaf_iter_vars))
        stage.bind(stage.leaf_iter_vars[place], te.thread_axis(tag))

    def compute_at(self) -> None:
        producer = self.stage()
        readers = self.s.readers_of(producer)
        if self.rng.random() < 0.1:
            readers = self.stages()
        if readers:
            reader = self.rng.choice(readers)
            producer.compute_at(reader, self.loop(reader))

    def compute_inline(self) -> None:
        self.stage().compute_inline()

    def compute_root(self) -> None:
        self.stage().compute_root()

    def set_scope(self) -> None:
        self.stage().set_scope(self.rng.choice(self.scopes))

    def cache_read(self) -> None:
        reader = self.stage()
        tensor: Tensor = self.pick(reader.op.input_tensors)
        readers = [reader]
        if self.rng.random() < 0.3:
            readers = self.s.readers_of(self.s[tensor])
        self.s.cache_read(tensor, self.rng.choice(self.scopes), readers)

    def cache_write(self) -> None:
        self.s.cache_write(self.stage().tensor, self.rng.choice(self.scopes))

    def rfactor(self) -> None:
        stage = self.pick([st for st in self.stages() if st.op.reduce_axis])
        loops = [iv for iv in stage.leaf_iter_vars if iv.kind == "reduce"]
        axis = self.rng.choice(loops)
        if self.rng.random() < 0.7:
            axis = self.rng.choice(stage.split(axis, factor=self.rng.choice(FACTORS)))
        self.s.rfactor(stage.tensor, axis, self.rng.randint(0, len(stage.op.axis)))

    def transform_layout(self) -> None:
        stage = self.pick([st for st in self.stages() if not st.is_output])
        rank = len(stage.op.axis)
        order = self.rng.sample(range(rank), rank)
        factor = self.rng.choice(FACTORS)
        blocked = self.rng.randrange(rank) if self.rng.random() < 0.5 else None

        def index_map(*i: Any) -> list[Any]:
            new = [i[k] // factor if k == blocked else i[k] for k in order]
            return [*new, i[blocked] % factor] if blocked is not None else new

        names = ", ".join(f"i{k}" for k in range(rank))
        mapped = eval(f"lambda {names}: f({names})", {"f": index_map})
        self.s.transform_layout(stage.tensor, mapped)

    def pad_to_multiple(self) -> None:
        stage = self.stage()
        axis = self.pick(stage.op.axis + stage.op.reduce_axis)
        self.s.pad_to_multiple(stage.tensor, axis, self.rng.choice(FACTORS))

    def peel(self) -> None:
        stage = self.stage()
        stage.peel(self.loop(stage), first=self.rng.randint(0, 2), last=self.rng.randint(0, 2))

    def reverse_compute_at(self) -> None:
        stage = self.stage()
        producers = [self.s[t] for t in stage.op.input_tensors]
        producer = self.pick([p for p in producers if p.leaf_iter_vars])
        stage.reverse_compute_at(producer, self.loop(producer))

    def reverse_compute_inline(self) -> None:
        self.stage().reverse_compute_inline()

    def decompose_reduction(self) -> None:
        stage = self.pick([st for st in self.stages() if st.op.reduce_axis])
        stage.decompose_reduction(self.loop(stage))

    def storage_align(self) -> None:
        stage = self.stage()
        axis = self.pick(stage.op.axis)
        stage.storage_align(axis, self.rng.choice((4, 8, 16)), self.rng.choice((0, 1, 3)))

    def double_buffer(self) -> None:
        self.attached().double_buffer()

    def prefetch(self) -> None:
        stage = self.stage()
        near = list(stage.op.input_tensors)
        through = [tensor for one in near for tensor in one.op.input_tensors]
        stage.prefetch(
            self.pick([*near, *through]), self.loop(stage), self.rng.randint(1, 3), self.pick((1, 2))
        )

    def software_pipeline(self) -> None:
        inside = self.attached()
        parent, loop = inside.attach_stage, inside.attach_ivar
        if parent is None or loop is None:
            parent = inside
            loop = self.loop(inside)
        parent.software_pipeline(loop, stages=self.rng.choice((2, 3, 4)))

    def pragma(self) -> None:
        stage = self.stage()
        stage.pragma(self.loop(stage), "auto_unroll_max_step", self.rng.choice((0, 16)))

    def tensorize(self) -> None:
        """The innermost one to three loops as an intrinsic that computes what they do."""
        stage = self.stage()
        loops = stage.leaf_iter_vars[-self.rng.choice((1, 2, 2, 3)) :]
        try:
            intrinsic = random_intrinsic(self.rng, stage, loops)
        except DoesNotFit:
            raise NothingToChoose from None
        stage.tensorize(loops[0], intrinsic)

    def nonsense(self) -> None:
        """An argument that no program can allow."""
        stage = self.stage()
        loop = self.loop(stage)
        actions = (
            lambda: stage.split(loop, factor=0),
            lambda: stage.split(loop),
            lambda: stage.split(loop, factor=2, nparts=2),
            lambda: stage.split(loop, factor=4, tail="fold"),
            lambda: stage.fuse(),
            lambda: stage.set_scope("register"),
            lambda: stage.reorder(loop, loop),
            lambda: stage.compute_at(stage, loop),
            lambda: self.s.cache_read(stage.tensor, "local", [stage]),
            lambda: self.s.rfactor(stage.tensor, stage.op.axis[0]),
            lambda: self.s["no such stage"],
        )
        try:
            self.rng.choice(actions)()
        except ScheduleError:
            return
        raise AssertionError("a nonsense step was accepted")


WEIGHTS = {
    "split": 8,
    "tile": 2,
    "fuse": 3,
    "reorder": 4,
    "vectorize": 4,
    "unroll": 3,
    "parallel": 2,
    "compute_at": 7,
    "compute_inline": 2,
    "compute_root": 0.3,
    "set_scope": 1,
    "cache_read": 2,
    "cache_write": 2,
    "rfactor": 1.5,
    "transform_layout": 1,
    "nonsense": 0.5,
    "pad_to_multiple": 1,
    "peel": 1.5,
    "reverse_compute_at": 2.5,
    "reverse_compute_inline": 2.5,
    "decompose_reduction": 1,
    "storage_align": 1,
    "double_buffer": 1,
    "prefetch": 1,
    "software_pipeline": 1.2,
    "pragma": 0.3,
    "tensorize": 4,
}


CPU_SCOPES = ("local", "global")
GPU_SCOPES = ("local", "global", "shared", "shared")
GPU_WEIGHTS = {**WEIGHTS, "bind": 8, "parallel": 0, "vectorize": 1}


def apply_random_steps(rng: random.Random, schedule: Schedule, *, threads: bool = False) -> int:
    """Apply up to MAX_STEPS steps; returns how many were refused by ScheduleError.

    With ``threads`` loops are bound to GPU thread axes and stages put into shared memory.

    A refused step must leave everything as it was.
    """
    target = rng.randint(0, MAX_STEPS)
    refused = 0
    weights = GPU_WEIGHTS if threads else WEIGHTS
    names = [n for n in weights if n in PRIMITIVES or n == "nonsense"]
    for _ in range(3 * MAX_STEPS):
        if len(schedule.trace) >= target:
            break
        steps = _Steps(rng, schedule, GPU_SCOPES if threads else CPU_SCOPES)
        (name,) = rng.choices(names, [weights[n] for n in names])
        before, steps_before = state_text(schedule), len(schedule.trace)
        try:
            getattr(steps, name)()
        except ScheduleError:
            refused += 1
            if len(schedule.trace) > steps_before:  # the step before it was legal: rfactor splits first
                continue
            assert state_text(schedule) == before, f"the refused {name} changed the schedule"
        except NothingToChoose:
            continue
    return refused


def state_text(schedule: Schedule) -> str:
    """All that a step may change, as text."""
    lines = []
    for stage in schedule.stages:
        where = "" if stage.attach_ivar is None else f" in {stage.attach_ivar.name}"
        lines.append(f"{stage.nest_text()}\n{stage.attach_type}{where} {stage.scope}")
    return "\n".join(lines)
