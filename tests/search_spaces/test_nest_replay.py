"""The loops that are derived from the steps of a schedule are those that it is lowered to."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotune import te
from autotune.errors import KnobError, LoweringError, ScheduleError
from autotune.lower import LoopProgram, lower_schedule, partial_sums
from autotune.lower import program as lowering
from autotune.lower.ir import For, Stmt, Store, sub_statements
from autotune.schedule import Schedule, Stage, Trace
from autotune.schedule.arithmetic import most, where
from autotune.schedule.knob import Config
from autotune.schedule.knob_value import KnobRecord
from autotune.schedule.relations import Fuse
from autotune.te.expr import Binary, IterVar
from autotune.te.tensor import Tensor
from autotune.te.traversal import nodes
from search_spaces.nest.candidates import CandidateFrame
from search_spaces.nest.places import Places
from search_spaces.nest.replay import calls_library, followed
from search_spaces.sketch import Sketch
from search_spaces.spaces import space_for
from tests.schedule.random_programs import random_program
from tests.schedule.random_sketches import random_schedule_function
from tests.schedule.three_ways import Case, all_outputs, random_case
from tests.search_spaces import workloads as make
from tests.search_spaces.families import FIXED, LARGER

Nest = tuple[tuple[str, str, int], ...]
"""Loops of more than one iteration, outermost first: name, kind, extent."""

BLOCKS, BLOCK = 4, 30
FACTORS = (1, 2, 3, 4, 7, 16)


@pytest.fixture(autouse=True)
def _uncut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops as they are made of the schedule: it does not tell where conditions and long sums cut them."""
    monkeypatch.setattr(lowering, "partition", lambda stmt: stmt)
    monkeypatch.setattr(partial_sums, "LONGEST", sys.maxsize)


def lowered_nests(program: LoopProgram) -> dict[str, Nest]:
    """The loops around each stage; of those that compute parts of it, the nest with the most iterations."""
    found: dict[str, Nest] = {}
    for kernel in program.kernels:
        for nest, store in _stores(kernel.body):
            if store.origin is not None and store.origin.part in ("all", "update"):
                found[store.origin.stage] = max(
                    found.get(store.origin.stage, ()), nest, key=lambda n: math.prod(e for *_, e in n)
                )
    return found


def _stores(stmt: Stmt, around: Nest = ()) -> Iterator[tuple[Nest, Store]]:
    if isinstance(stmt, Store):
        yield around, stmt
    if isinstance(stmt, For):
        around = (*around, (stmt.var.name, stmt.kind, stmt.extent))
    for part in sub_statements(stmt):
        yield from _stores(part, around)


def of_row(value: Any, row: int) -> Any:
    return np.atleast_1d(value)[row % np.size(value)].item()


def kind_of(frame: CandidateFrame, iv: IterVar, row: int) -> str:
    if calls_library(frame.stage):
        return "serial"  # in the call's pattern, which the kernel of the library does not follow
    varied = ("parallel", "unrolled", "vectorized")
    found = [kind for kind in varied if of_row(frame.is_kind(iv, kind), row)]
    kind = frame.stage.kind_of(iv)
    return found[0] if found else "serial" if kind in varied else kind


def whole(frame: CandidateFrame, leaf: IterVar) -> Any:
    """Iterations of a loop that share code: neither peeled ones nor the rest of a split with a nest of its own."""
    leaves = frame.stage.leaf_iter_vars
    inside = frame.inside(leaves[: leaves.index(leaf)])

    def full(iv: IterVar) -> Any:
        """The same before the loop was split or fused with others of one iteration."""
        found, split = inside.extent(iv), inside.parents.get(iv)
        if isinstance(split, Fuse):
            found = where(inside.extent(split.inner) == 1, full(split.outer), found)
            return where(inside.extent(split.outer) == 1, full(split.inner), found)
        if split is None:
            return found
        if split.outer is iv:
            times = inside.extent(split.parent) // most(inside.width(split), 1)
            found = where(inside.is_apart(split, leaf), times, found)
        single = inside.extent(split.inner if iv is split.outer else split.outer) == 1
        return where(single, full(split.parent), found)

    count = full(leaf)
    first, last = frame.stage.peeled.get(leaf, (0, 0))
    return most(count - first - last, 1) if first + last else count


def derived_nest(stage: Stage, frames: Mapping[Stage, CandidateFrame], row: int = 0) -> Nest:
    """The same of one candidate, from the frames of all."""
    found: list[tuple[str, str, int]] = []
    at, inner = stage, len(stage.leaf_iter_vars)
    while True:
        loops = at.leaf_iter_vars[:inner]
        nest = [(iv.name, kind_of(frames[at], iv, row), of_row(whole(frames[at], iv), row)) for iv in loops]
        found[:0] = nest
        if at.attach_stage is None:
            return tuple(loop for loop in found if loop[2] != 1)
        assert at.attach_ivar is not None
        at, inner = at.attach_stage, at.attach_stage.leaf_iter_vars.index(at.attach_ivar) + 1


def places_of(fresh: Schedule, trace: Trace, config: Config) -> Places:
    """Return the places that one replay of a trace with knobs knows, which is that of one candidate."""
    fresh.record = KnobRecord(config)
    return Places(followed(trace.apply(fresh), fresh.trace))


def compare(
    places: Places, columns: Mapping[str, Any], programs: Sequence[LoopProgram | None], text: str
) -> None:
    frames = places.frames(columns)
    for row, program in enumerate(programs):
        if program is None:
            continue
        lowered = lowered_nests(program)
        for stage in places.stages:
            name = stage.op.name
            if name in lowered:  # others are read under conditions that never hold
                found = derived_nest(stage, frames, row)
                if stage.attach_stage is not None and read_by_quotients(places, stage):
                    # Where few blocks begin at known places, the code may compute less than their widest.
                    assert [loop[0] for loop in found] == [loop[0] for loop in lowered[name]], text
                    assert all(a[2] >= b[2] for a, b in zip(found, lowered[name], strict=True)), text
                else:
                    assert found == lowered[name], f"{name} in\n{text}"


def read_by_quotients(places: Places, stage: Stage) -> bool:
    indices = [index for _, read in places.uses[stage] for index in read.indices]
    return any(isinstance(node, Binary) and node.op == "//" for index in indices for node in nodes(index))


def lower(case: Case) -> LoopProgram:
    schedule, args = case.schedule()
    return lower_schedule(schedule, args, with_origins=True)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_loops_of_random_programs(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        case = random_case(seed)
        schedule, _ = case.schedule()
        compare(Places(followed(schedule, schedule.trace)), {}, [lower(case)], case.text())


@pytest.mark.parametrize("seed", [169, 284, 294, 298])
def test_loops_of_stages_that_steps_made_in_another_layout(seed: int) -> None:
    """Written through a buffer or reduced in parts, and then laid out."""
    case = random_case(seed)
    assert any(step.primitive == "transform_layout" for step in case.trace.steps)
    schedule, _ = case.schedule()
    compare(Places(followed(schedule, schedule.trace)), {}, [lower(case)], case.text())


def with_knobs(rng: random.Random, trace: Trace) -> tuple[Trace, dict[str, list[int]]]:
    """The trace with knobs for the factors of its splits, and three values of each."""
    steps, values = [], {}
    for number, step in enumerate(trace.steps):
        args = dict(step.args)
        for name in ("factor", "nparts", "x_factor", "y_factor"):
            if step.primitive in ("split", "tile") and type(args.get(name)) is int:
                knob = f"{name}{number}"
                values[knob] = [args[name], rng.choice(FACTORS), rng.choice(FACTORS)]
                args[name] = ("knob", knob)
        steps.append(replace(step, args=tuple(args.items())))
    return Trace(tuple(steps)), values


@pytest.mark.parametrize("block", range(BLOCKS))
def test_one_replay_serves_all_values_of_knobs(block: int) -> None:
    rng = random.Random(block)
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        case = random_case(seed)
        trace, values = with_knobs(rng, case.trace)
        if not values:
            continue
        configs = [{knob: three[row] for knob, three in values.items()} for row in range(3)]
        programs: list[LoopProgram | None] = []
        for config in configs:
            try:
                programs.append(lower(replace(case, trace=trace.bind(config))))
            except (ScheduleError, LoweringError):  # it was legal with other factors
                programs.append(None)
        try:
            places = places_of(te.create_schedule(case.program.tensors()[1]), trace, configs[0])
        except KnobError:  # what knobs have sized is padded
            assert any(step.primitive == "pad_to_multiple" for step in trace.steps)
            continue
        except ScheduleError as error:  # what knobs have sized is copied
            if "has loop steps already" not in str(error):
                raise
            continue
        compare(places, {knob: np.asarray(three) for knob, three in values.items()}, programs, case.text())


@pytest.mark.parametrize("family", sorted(FIXED | LARGER))
def test_loops_of_every_family(family: str) -> None:
    space = space_for((FIXED | LARGER)[family](), make.AVX512)
    for config in space.random(np.random.default_rng(0), 3):
        program = space.workload.program()
        schedule = space.apply(program, config)
        places = Places(followed(schedule, schedule.trace))
        args: list[Tensor] = list(program.args)
        lowered = lower_schedule(schedule, args, with_origins=True)
        compare(places, {}, [lowered], f"{config}\n{schedule.trace}")


def without_names(nests: Mapping[str, Nest]) -> dict[str, list[tuple[str, int]]]:
    return {stage: [(kind, extent) for _, kind, extent in nest] for stage, nest in nests.items()}


@pytest.mark.parametrize("count", [3, pytest.param(6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", sorted(FIXED | LARGER))
def test_one_replay_serves_a_path_of_a_family(family: str, count: int) -> None:
    """Knobs that order loops leave some of one iteration: the code is that of the schedule without them."""
    space = space_for((FIXED | LARGER)[family](), make.AVX512)
    configs = space.random(np.random.default_rng(1), count)
    columns = {knob.name: np.asarray([c[knob.name] for c in configs]) for knob in space.knobs}
    program = space.workload.program()
    args: list[Tensor] = list(program.args)
    outputs = [tensor.op for tensor in program.outputs]
    for rows, path in space._of_recipe(program).paths(columns):
        programs: list[LoopProgram | None] = []
        for row in rows:
            bound = path.trace.bind(configs[row]).apply(te.create_schedule(outputs))
            programs.append(lower_schedule(bound, args, with_origins=True))
            own = lower_schedule(space.apply(program, configs[row]), args, with_origins=True)
            assert without_names(lowered_nests(own)) == without_names(lowered_nests(programs[-1]))
        places = Places(followed(path.schedule, path.trace))
        mine = {name: column[rows] for name, column in columns.items()}
        compare(places, mine, programs, f"{family}\n{path.trace}")


@pytest.mark.parametrize("block", range(BLOCKS))
def test_one_replay_serves_a_path_of_a_sketch(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        program = random_program(random.Random(seed))
        placeholders, outputs = program.tensors()
        args = placeholders + all_outputs(outputs)
        sketch = Sketch(random_schedule_function(seed, lambda o=outputs: te.create_schedule(o)), outputs)
        rng = random.Random(seed)
        configs = [{knob.name: rng.choice(knob.values) for knob in sketch.knobs} for _ in range(6)]
        columns = {knob.name: np.asarray([c[knob.name] for c in configs]) for knob in sketch.knobs}
        for rows, path in sketch.paths(columns):
            programs: list[LoopProgram | None] = []
            for row in rows if path.error is None else ():
                try:
                    schedule = path.trace.bind(configs[row]).apply(te.create_schedule(outputs))
                    programs.append(lower_schedule(schedule, args, with_origins=True))
                except (ScheduleError, LoweringError):
                    programs.append(None)
            if path.schedule is not None:
                places = Places(followed(path.schedule, path.trace))
                mine = {name: column[rows] for name, column in columns.items()}
                compare(places, mine, programs, f"{program.source}\n{path.trace}")
