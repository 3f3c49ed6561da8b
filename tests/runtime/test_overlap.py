"""Commands that run at the same time: in any order of their tiles the answer of one worker; conflicts are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import ArtifactError
from autotune.runtime.conflicts import conflicts, done_before, overlapping
from autotune.runtime.cpu import program
from autotune.runtime.image import Binding, Command, IndexCheck, ModuleImage
from autotune.runtime.module import Module
from autotune.runtime.verify import verify
from tests.patience import wait_until
from tests.runtime.kernels import binding, image, spec

SIZE, VECTORS = 64, 10
STEP = st.tuples(
    st.integers(0, VECTORS - 1), st.integers(0, VECTORS - 1), st.sampled_from([1, 1, 1, 2, 7, 64])
)
Steps = list[tuple[int, int, int]]


def graph(steps: Steps) -> ModuleImage:
    """Each step makes a vector from another, mirrored, after a delay that depends on what it reads; or counts it up."""
    recorded = []
    for source, target, tiles in steps:
        places = [binding("output", SIZE, offset=8 * SIZE * vector) for vector in (source, target)]
        recorded.append(("count" if source == target else "late", *places, tiles))
    made = image(recorded, outputs=(spec("y", VECTORS * SIZE),))
    return replace(made, commands=overlapping(made.commands, ()))


def in_order(steps: Steps, runs: int) -> np.ndarray:
    """Return the results of the steps one after another."""
    y = np.zeros((VECTORS, SIZE), np.int64)
    for _ in range(runs):
        for source, target, tiles in steps:
            read = y[target] if source == target else y[source][::-1]
            y[target, :tiles] = read[:tiles] + 1
    return y


@settings(max_examples=60, deadline=None)
@given(
    st.lists(STEP, min_size=2, max_size=60),
    st.sampled_from([1, 2, 2, 3, 4, 8]),
    st.integers(1, 4),
    st.sampled_from([0, 8 * SIZE * VECTORS + 1]),
)
def test_random_graphs_compute_what_one_worker_does(
    steps: Steps, threads: int, runs: int, small: int
) -> None:
    y = np.zeros(VECTORS * SIZE, np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            program, "_SMALL_BYTES", small
        )  # single tiles go to whoever comes first, or all to the caller
        made = Module(graph(steps), threads)
    with made as module:
        outputs = module.loaded._signature.given_outputs([y], ([], []))
        module.loaded._run(([], []), outputs, runs)
    assert np.array_equal(y.reshape(VECTORS, SIZE), in_order(steps, runs))


@pytest.mark.parametrize(("small", "expected"), [(0, {0, 1}), (1 << 16, {0})])
def test_independent_single_tiles_run_on_different_workers_unless_they_are_small(
    small: int, expected: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "_SMALL_BYTES", small)
    steps = [("slow", binding("input", 1), binding("output", 1, offset=8 * n), 1) for n in range(16)]
    made = image(steps, inputs=(spec("x", 1),), outputs=(spec("y", 16),))
    together = replace(made, commands=overlapping(made.commands, ()))
    with Module(made, 2) as alone, Module(together, 2) as module:
        assert _workers(alone) == {0}
        # Another worker may come late to any one run.
        wait_until(lambda: _workers(module) == expected, f"workers {expected}")
        assert _workers(module) <= expected


def _workers(module: Module) -> set[int]:
    """Return the workers that ran something."""
    return {event.worker for event in module.timeline([np.ones(1, np.int64)]) if event.tiles}


@settings(max_examples=100, deadline=None)
@given(st.lists(STEP, min_size=2, max_size=30), st.randoms(use_true_random=False))
def test_a_barrier_that_is_needed_cannot_be_dropped(steps: Steps, random: object) -> None:
    made = graph(steps)
    verify(made)
    done = done_before(made.commands)
    for number, command in enumerate(made.commands):
        if done[number] and (number == 0 or done[number] > done[number - 1]):
            weaker = replace(command, beside=number - done[number] + 1)
            dropped = (*made.commands[:number], weaker, *made.commands[number + 1 :])
            with pytest.raises(
                ArtifactError, match=f"commands {done[number] - 1} and .* may run at the same time"
            ):
                verify(replace(made, commands=dropped))


def command(source: Binding, target: Binding, **rest: object) -> Command:
    return Command(0, 0, "k", (source, target), 4, 0, (1,), **rest)  # type: ignore[arg-type]


def part(first: int, elements: int, period: int = 0, run: int = 0) -> Binding:
    return Binding("arena", 0, first, elements, period, run)


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        (part(0, 64), part(64, 64), True),
        (part(0, 64), part(60, 64), False),
        (part(0, 224, 64, 32), part(32, 224, 64, 32), True),  # two halves of each row
        (part(0, 224, 64, 32), part(16, 224, 64, 32), False),
        (part(0, 224, 64, 32), part(32, 224, 64, 40), False),  # it runs into the next row
        (part(48, 224, 64, 32), part(16, 224, 64, 32), True),
        (part(0, 224, 64, 32), part(32, 224, 32, 16), False),  # unlike periods are not looked at closer
        (part(0, 224, 64, 32), part(32, 32), False),
    ],
)
def test_parts_of_one_memory_conflict_where_they_meet(one: Binding, other: Binding, apart: bool) -> None:
    assert one.meets(other) is other.meets(one) is not apart
    x = Binding("input", 0, 0, 8)
    pair = [command(x, one), command(x, other, beside=1)]
    assert list(conflicts(pair, ())) == ([] if apart else [(0, 1)])
    assert [c.beside for c in overlapping(pair, ())] == [0, int(apart)]


def test_who_does_not_say_what_it_writes_writes_everything() -> None:
    shared, x = part(0, 64), Binding("input", 0, 0, 8)
    silent = Command(0, 0, "k", (shared, x), 4, 0)
    assert list(conflicts([silent, replace(silent, beside=1)], ())) == [(0, 1)]


def test_indices_that_are_checked_are_read() -> None:
    indices, x = part(0, 64), Binding("input", 0, 0, 8)
    pair = [command(x, part(64, 64)), command(x, indices, beside=1)]
    check = IndexCheck(0, 0, indices, 8, 1, 0, 8, 10, 0)
    assert list(conflicts(pair, [check])) == [(0, 1)]
    assert [c.beside for c in overlapping(pair, [check])] == [0, 0]


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ({"beside": -1}, "it may run beside -1 of the 1 before it"),
        ({"beside": 2}, "it may run beside 2 of the 1 before it"),
        ({"writes": (2,)}, r"it writes bindings \(2,\) of 2"),
        ({"writes": (0,)}, "it writes binding 0, which is input memory"),
        (
            {"bindings": (binding("input", 1), replace(binding("output", 1), period=4, run=8))},
            "8 bytes of each 4",
        ),
    ],
)
def test_what_a_command_says_of_its_order_is_checked(broken: dict[str, object], problem: str) -> None:
    places = (binding("input", 1), binding("output", 1))
    made = image([("increment", *places, 1)] * 2, inputs=(spec("x", 1),), outputs=(spec("y", 1),))
    wrong = replace(made.commands[1], **broken)  # type: ignore[arg-type]
    with pytest.raises(ArtifactError, match=problem):
        verify(replace(made, commands=(made.commands[0], wrong)))
