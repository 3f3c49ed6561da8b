"""Candidates are counted as their code runs: iterations, and elements that are computed ahead."""

from __future__ import annotations

import operator
import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from autotune import te
from autotune.errors import LoweringError, ScheduleError
from autotune.lower import LoopProgram, lower_schedule, partial_sums
from autotune.lower import program as lowering
from autotune.lower.ir import Allocate, For, If, Let, Load, Stmt, Store, nodes, sub_statements, walk
from autotune.schedule import Schedule
from autotune.schedule.knob import Config
from autotune.schedule.relations import Split
from autotune.te.expr import Binary, Compare, Const, Expr, IterVar, Not, Var
from search_spaces.nest.candidates import CandidateFrame
from search_spaces.nest.places import Places
from search_spaces.nest.replay import followed
from search_spaces.sketch import Sketch
from tests.seeds import seeds

BLOCK = 80
FACTORS = (1, 2, 3, 4, 5, 8)
TAILS = ("peel", "overlap", "overlap", "guard")
OPERATIONS: Mapping[str, Any] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "min": min,
    "max": max,
    "and": operator.and_,
    "or": operator.or_,
}


@pytest.fixture(autouse=True)
def _uncut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops as they are made of the schedule."""
    monkeypatch.setattr(lowering, "partition", lambda stmt: stmt)
    monkeypatch.setattr(partial_sums, "LONGEST", sys.maxsize)


# -- what the code does ---------------------------------------------------------------------------------------


def executions(program: LoopProgram) -> Counter[str]:
    """Elements that are computed, or steps of reductions, by stage: all loops run, all conditions are tested."""
    total: Counter[str] = Counter()
    for kernel in program.kernels:
        total.update(_run(kernel.body, {}))
    return total


def _run(stmt: Stmt, values: Mapping[Expr, Any]) -> Counter[str]:
    total: Counter[str] = Counter()
    if isinstance(stmt, Store):
        if stmt.origin is not None and stmt.origin.part in ("all", "update"):
            total[stmt.origin.stage] += 1
    elif isinstance(stmt, If):
        part = stmt.then if value(stmt.cond, values) else stmt.otherwise
        total += Counter() if part is None else _run(part, values)
    elif isinstance(stmt, For):
        if any(isinstance(part, If) for part in walk(stmt.body)):
            for number in range(stmt.extent):
                total += _run(stmt.body, {**values, stmt.var: number})
        else:
            once = _run(stmt.body, {**values, stmt.var: 0})
            total = Counter({stage: stmt.extent * count for stage, count in once.items()})
    else:
        if isinstance(stmt, Let) and not any(isinstance(node, Load) for node in nodes(stmt.value)):
            values = {**values, stmt.var: value(stmt.value, values)}
        for part in sub_statements(stmt):
            total += _run(part, values)
    return total


def value(expr: Expr, values: Mapping[Expr, Any]) -> Any:
    if isinstance(expr, Const):
        return expr.value
    if isinstance(expr, Var):
        return values[expr]
    if isinstance(expr, Not):
        return not value(expr.a, values)
    assert isinstance(expr, Binary | Compare), expr
    return OPERATIONS[expr.op](value(expr.a, values), value(expr.b, values))


# -- what is counted of it ------------------------------------------------------------------------------------


def of_row(value: Any, row: int) -> Any:
    return np.atleast_1d(value)[row % np.size(value)].item()


def counted(frame: CandidateFrame, row: int) -> int | None:
    """Elements that a stage at the root computes in all; None where fused loops of tiles are split again."""
    count, seen = 1, set[IterVar]()
    for axis in (*frame.op.axis, *frame.op.reduce_axis):
        loop = axis
        while (fuse := frame.fuses.get(loop)) is not None and fuse.fused in frame.splits:
            loop = fuse.fused
        if loop in seen:
            continue
        seen.add(loop)
        if _splits_fused_tiles(frame):
            return None
        count *= len(steps(frame, loop, of_row(frame.extent(loop), row), row))
    return count


def _splits_fused_tiles(frame: CandidateFrame) -> bool:
    return any(
        fuse.fused in frame.splits and isinstance(frame.parents.get(part), Split)
        for fuse in frame.fuses.values()
        for part in (fuse.outer, fuse.inner)
    )


def steps(frame: CandidateFrame, loop: IterVar, extent: int, row: int) -> list[int]:
    """The values that a loop, or those that it was split into, go through."""
    split = frame.splits.get(loop)
    if split is None:
        return list(range(extent))
    given = of_row(frame.given(split), row)
    width = min(given, extent) if split.factor else -(-extent // given)
    overlaps, guards = of_row(frame.overlaps(split), row), of_row(frame.tail(split, "guard"), row)
    found = []
    for outer in steps(frame, split.outer, -(-extent // width), row):
        start = min(outer * width, extent - width) if overlaps else outer * width
        size = width if overlaps or guards else min(width, extent - start)
        found += [start + inner for inner in steps(frame, split.inner, size, row)]
    return [number for number in found if number < extent]


def compare(places: Places, columns: Mapping[str, Any], programs: list[LoopProgram | None], text: str) -> int:
    """Compare the candidates of one schedule with their programs; return how many stages there were."""
    frames, compared = places.frames(columns), 0
    for row, program in enumerate(programs):
        if program is None:
            continue
        runs = executions(program)
        computed = allocated(program)
        for stage, frame in frames.items():
            name = stage.op.name
            if name not in runs:
                continue
            if stage.attach_stage is None:
                count = counted(frame, row)
                if count is not None:
                    assert count == runs[name] // len(stage.op.dtypes), f"{name} in\n{text}"
                    compared += 1
            elif name in computed:
                sizes = tuple(of_row(frame.sizes[axis], row) for axis in stage.op.axis)
                assert sizes == computed[name], f"{name} in\n{text}"
                compared += 1
    return compared


def allocated(program: LoopProgram) -> dict[str, tuple[int, ...]]:
    """The shape of the memory of each stage that is computed inside of another, its largest in each dimension."""
    found: dict[str, list[tuple[int, ...]]] = {}
    for kernel in program.kernels:
        for part in walk(kernel.body):
            if isinstance(part, Allocate):
                found.setdefault(part.buffer.name, []).append(part.buffer.shape)
    return {name: tuple(map(max, zip(*shapes, strict=True))) for name, shapes in found.items()}


# -- schedules ------------------------------------------------------------------------------------------------


def chain(rng: random.Random) -> list[te.Tensor]:
    """Sums of products, and what is computed of them and of neighbours."""
    rows, columns, terms = rng.randint(3, 14), rng.randint(3, 14), rng.randint(1, 5)
    near = rng.choice((0, 0, 1))
    a = te.placeholder((rows, terms), name="a")
    b = te.placeholder((terms, columns + near), name="b")
    k = te.reduce_axis((0, terms), name="k")
    c = te.compute((rows, columns + near), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    d = te.compute((rows, columns), lambda i, j: c[i, j] + c[i, j + near] * 2, name="d")
    return [a, b, c, d]


def schedule_chain(rng: random.Random, s: Schedule, tensors: Sequence[te.Tensor]) -> None:
    """Split loops with rests of all kinds, fuse and share them, and compute the sums at one of them."""
    *_, c, d = tensors
    inside = rng.random() < 0.5
    for tensor in (c, d):
        stage = s[tensor]
        data = list(stage.op.axis)
        fused = rng.random() < 0.5
        if fused and rng.random() < 0.6:
            data = [stage.fuse(*data)]
        pairs = []
        for number, loop in enumerate(data):
            if rng.random() < 0.8:
                pairs.append(
                    stage.split(
                        loop, factor=s.knob(f"{tensor.name}{number}", FACTORS), tail=rng.choice(TAILS)
                    )
                )
            else:
                pairs.append((loop,))
        outer, inner = [pair[0] for pair in pairs], [loop for pair in pairs for loop in pair[1:]]
        order = [*outer, *inner]
        if stage.op.reduce_axis:
            order.insert(rng.choice((1, 1, 2, len(order))), stage.op.reduce_axis[0])
        if rng.random() < 0.2:
            rng.shuffle(order)
        stage.reorder(*order)
        if fused and len(outer) > 1 and order[:2] == outer:
            order[:2] = [stage.fuse(*outer)]
        if not (inside and tensor is c) and order[0].kind == "data" and rng.random() < 0.7:
            stage.parallel(order[0])
        for loop in order[1:]:
            if loop.kind == "data" and rng.random() < 0.25:
                stage.unroll(loop)
        if (
            order[-1].kind == "data"
            and len(order) > 1
            and stage.kind_of(order[-1]) == "serial"
            and rng.random() < 0.4
        ):
            stage.vectorize(order[-1])
        if tensor is d and inside:
            s[c].compute_at(
                stage, rng.choice([loop for loop in order if stage.kind_of(loop) != "vectorized"])
            )
    return s


@pytest.mark.parametrize("block", seeds(1, 4))
def test_chains(block: int) -> None:
    """One derivation serves several sizes of tiles, those with and without a rest."""
    compared = 0
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        rng = random.Random(seed)
        tensors = chain(rng)
        steps_seed = rng.random()
        sketch = Sketch(
            lambda s, t=tensors, r=steps_seed: schedule_chain(random.Random(r), s, t), tensors[-1:]
        )
        configs = [{knob.name: rng.choice(knob.values) for knob in sketch.knobs} for _ in range(4)]
        columns = {knob.name: np.asarray([c[knob.name] for c in configs]) for knob in sketch.knobs}
        for rows, path in sketch.paths(columns):
            assert path.schedule is not None
            programs = [lowered(sketch, configs[row], tensors) for row in rows]
            text = (
                f"seed {seed}: {[t.shape for t in tensors]}\n{[configs[row] for row in rows]}\n{path.trace}"
            )
            mine = {name: column[rows] for name, column in columns.items()}
            compared += compare(Places(followed(path.schedule, path.trace)), mine, programs, text)
    assert compared > 4 * BLOCK


def lowered(sketch: Sketch, config: Config, tensors: Sequence[te.Tensor]) -> LoopProgram | None:
    try:
        return lower_schedule(sketch.schedule(config), [*tensors[:2], tensors[-1]], with_origins=True)
    except (ScheduleError, LoweringError):  # legal with other factors
        return None


def test_concurrent_tiles_that_add_in_memory_are_peeled() -> None:
    """Eleven rows in tiles of four: each is computed once where workers would add to the same ones, else one twice."""
    for name, rows in (("parallel", 11), ("serial", 12)):
        a, b = te.placeholder((11, 4), name="a"), te.placeholder((4, 7), name="b")
        k = te.reduce_axis((0, 4), name="k")
        c = te.compute((11, 7), lambda i, j, a=a, b=b, k=k: te.sum(a[i, k] * b[k, j], axis=k), name="c")
        s = te.create_schedule(c.op)
        i, j = c.op.axis
        outer, inner = s[c].split(i, factor=4, tail="overlap")
        s[c].reorder(outer, k, inner, j)
        if name == "parallel":
            s[c].parallel(outer)
        places = Places(followed(s, s.trace))
        assert counted(places.frames({})[s[c]], 0) == rows * 7 * 4
        compare(places, {}, [lower_schedule(s, [a, b, c], with_origins=True)], name)
