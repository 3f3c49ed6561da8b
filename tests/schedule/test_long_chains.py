"""Chains of hundreds of stages: what a schedule does with them grows as they do, not as their square or the paths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import autotune
from autotune import te
from autotune.errors import LoweringError, ScheduleError
from autotune.lower import lower_schedule
from autotune.lower.inlining import MOST_ELEMENTS
from autotune.lower.ir import Load, expressions, nodes, walk
from autotune.schedule import Schedule
from autotune.schedule.stage import Stage
from autotune.te import traversal

Step = Callable[[te.Tensor], Callable[[Any], Any]]


def chain(length: int, step: Step) -> tuple[Schedule, list[te.Tensor]]:
    """``length`` stages, each made of the one before and all but the last inlined."""
    first = te.placeholder((16,), name="X")
    stages = [first]
    for n in range(length):
        stages.append(te.compute((16,), step(stages[-1]), name=f"s{n}"))
    s = te.create_schedule(stages[-1].op)
    for stage in stages[1:-1]:
        s[stage].compute_inline()
    return s, [first, stages[-1]]


def plus_one(before: te.Tensor) -> Callable[[Any], Any]:
    return lambda i: before[i] + 1.0


def halved_twice(before: te.Tensor) -> Callable[[Any], Any]:
    return lambda i: before[i] * 0.25 + before[i] * 0.25


def neighbours(before: te.Tensor) -> Callable[[Any], Any]:
    return lambda i: (before[te.maximum(i - 1, 0)] + before[te.minimum(i + 1, 15)]) * 0.5


def count(length: int, step: Step) -> int:
    """Nodes that are made anew while a chain is lowered."""
    s, args = chain(length, step)
    made: Counter[str] = Counter()
    rebuild = traversal.rebuild

    def counting(expr: te.Expr, parts: tuple[te.Expr, ...]) -> te.Expr:
        made["nodes"] += 1
        return rebuild(expr, parts)

    with patch.object(traversal, "rebuild", counting):
        lower_schedule(s, args)
    return made["nodes"]


@pytest.mark.parametrize("step", [plus_one, halved_twice])
def test_work_grows_as_the_chain_does(step: Step) -> None:
    assert count(200, step) <= 2.2 * count(100, step)


@pytest.mark.parametrize("target", ["host", "interpreter"])
def test_eight_hundred_stages(target: str) -> None:
    s, args = chain(800, plus_one)
    x, y = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    autotune.build(s, args, target=target)(x, y)
    np.testing.assert_array_equal(y, x + 800)


@pytest.mark.parametrize("target", ["host", "interpreter"])
def test_an_element_that_is_read_twice_is_computed_once(target: str) -> None:
    """Written out there would be 2**100 loads."""
    s, args = chain(100, halved_twice)
    (kernel,) = lower_schedule(s, args).kernels
    held = [expr for part in walk(kernel.body) for expr in expressions(part)]
    assert len([node for node in nodes(*held) if isinstance(node, Load)]) <= 2
    x, y = np.full(16, 2.0**100, np.float32), np.zeros(16, np.float32)
    autotune.build(s, args, target=target)(x, y)
    np.testing.assert_array_equal(y, np.ones(16, np.float32))


def test_a_text_names_what_it_would_repeat() -> None:
    s, args = chain(100, halved_twice)
    text = str(autotune.lower(s, args))
    assert len(text) < 5000
    assert "(x0 := X[i]" in text


def test_neighbours_of_neighbours_are_computed_once_each() -> None:
    s, args = chain(12, neighbours)
    x, y = np.random.default_rng(0).random(16).astype(np.float32), np.zeros(16, np.float32)
    autotune.build(s, args)(x, y)
    np.testing.assert_allclose(y, te.evaluate([args[1]], {args[0]: x})[0], rtol=1e-6)


def test_too_many_elements_are_an_error_that_says_what_to_do() -> None:
    s, args = chain(800, neighbours)
    with pytest.raises(
        LoweringError,
        match=rf"stage s799 computes more than {MOST_ELEMENTS} elements of inlined stages .*; compute some of the "
        "stages on the way at the root",
    ):
        lower_schedule(s, args)


def test_a_step_saves_the_stage_that_it_changes() -> None:
    """The cost of a step does not grow with the stages that it has nothing to do with."""
    s, args = chain(50, plus_one)
    with patch.object(Stage, "snapshot", autospec=True, side_effect=Stage.snapshot) as snapshot:
        s[args[1]].split(s[args[1]].op.axis[0], 4)
    assert snapshot.call_count == 1


def test_a_refused_step_of_several_stages_changes_none() -> None:
    """Its first part is done when the second is refused."""
    x = te.placeholder((16,), name="X")
    a = te.compute((16,), lambda i: x[i] + 1.0, name="a")
    b = te.compute((16,), lambda i: a[i] * 2.0, name="b")
    s = te.create_schedule(b.op)
    before = [(stage, stage.snapshot()) for stage in s.stages]
    order = s.order()
    with pytest.raises(ScheduleError):
        s[b].reverse_compute_at(a, s[b].op.axis[0])
    assert [(stage, stage.snapshot()) for stage in s.stages] == before
    assert s.order() == order
