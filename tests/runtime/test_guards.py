"""Commands that run only if booleans say so, whose values may be computed before and overwritten behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import ArtifactError, InputError, UsageError
from autotune.runtime.artifacts.artifact import load_image, save
from autotune.runtime.conflicts import overlapping
from autotune.runtime.cpu import program
from autotune.runtime.hal.cpu.driver import CpuDriver
from autotune.runtime.hal.recording import load_image as load_on_device
from autotune.runtime.image import Binding, Guard, IndexCheck, ModuleImage
from autotune.runtime.module import Module
from autotune.runtime.verify import verify
from tests.runtime.kernels import binding, image, spec

SIZE, VECTORS, FLAGS = 64, 6, 3
_VECTOR = st.integers(0, VECTORS - 1)
_GUARD = st.tuples(st.integers(0, VECTORS + FLAGS - 1), st.integers(0, 1))
_STEP = st.tuples(_VECTOR, _VECTOR, st.sampled_from([1, 1, 2, 7, 64]), st.lists(_GUARD, max_size=2))
Steps = list[tuple[int, int, int, list[tuple[int, int]]]]


def _guard(place: int, wanted: int) -> Guard:
    """The first byte of a vector, or one of the inputs."""
    if place < VECTORS:
        return Guard(Binding("output", 0, 8 * SIZE * place, 1), wanted)
    return Guard(Binding("input", 0, place - VECTORS, 1), wanted)


def guarded(steps: Steps) -> ModuleImage:
    """Each step makes a vector from another, mirrored and late, or counts it up, if its guards say so."""
    recorded = []
    for source, target, tiles, _ in steps:
        places = [binding("output", SIZE, offset=8 * SIZE * vector) for vector in (source, target)]
        recorded.append(("count" if source == target else "late", *places, tiles))
    flags = replace(spec("flags", FLAGS), dtype="bool")
    made = image(recorded, inputs=(flags,), outputs=(spec("y", VECTORS * SIZE),))
    commands = [
        replace(command, guards=tuple(_guard(*each) for each in step[3]))
        for command, step in zip(made.commands, steps, strict=True)
    ]
    return replace(made, commands=overlapping(commands, ()))


def in_order(steps: Steps, flags: np.ndarray, runs: int) -> np.ndarray:
    """Return the results of the steps one after another."""
    y = np.zeros((VECTORS, SIZE), np.int64)

    def says(place: int) -> int:
        return int(y[place, 0] % 256 != 0 if place < VECTORS else flags[place - VECTORS])

    for _ in range(runs):
        for source, target, tiles, guards in steps:
            if all(says(place) == wanted for place, wanted in guards):
                read = y[target] if source == target else y[source][::-1]
                y[target, :tiles] = read[:tiles] + 1
    return y


@settings(max_examples=40, deadline=None)
@given(
    st.lists(_STEP, min_size=2, max_size=40),
    st.lists(st.booleans(), min_size=FLAGS, max_size=FLAGS),
    st.sampled_from([1, 2, 2, 3, 8]),
    st.integers(1, 3),
    st.sampled_from([0, 8 * SIZE * VECTORS + 1]),
)
def test_random_guards_choose_as_one_worker_would(
    steps: Steps, chosen: list[bool], threads: int, runs: int, small: int
) -> None:
    y, flags = np.zeros(VECTORS * SIZE, np.int64), np.array(chosen)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "_SMALL_BYTES", small)
        made = Module(guarded(steps), threads)
    with made as module:
        arrays = module.loaded._signature.inputs([flags])
        module.loaded._run(arrays, module.loaded._signature.given_outputs([y], arrays), runs)
    assert np.array_equal(y.reshape(VECTORS, SIZE), in_order(steps, flags, runs))


def switch() -> ModuleImage:
    """Two commands, of which the flag of the input chooses one."""
    return guarded([(0, 1, 64, [(VECTORS, 1)]), (0, 2, 64, [(VECTORS, 0)])])


@pytest.mark.parametrize("threads", [1, 2])
def test_events_are_of_what_ran(threads: int) -> None:
    with Module(switch(), threads) as module:
        for flag in (0, 1):
            events = module.timeline([np.array([flag, 0, 0], bool)])
            assert {event.command for event in events if event.tiles} == {1 - flag}
            assert sum(event.tiles for event in events) == 64
            times = module.profiles([np.array([flag, 0, 0], bool)], 3)
            assert (times[:, 1 - flag] >= times[:, flag]).all()


def test_guards_are_in_the_artifact(tmp_path: Path) -> None:
    save(switch(), tmp_path / "a.atm")
    assert load_image(tmp_path / "a.atm").commands == switch().commands


def test_a_refusal_is_the_error_where_the_boolean_is_true() -> None:
    made = guarded([(0, 1, 64, [(VECTORS, 1)])])
    where = Binding("input", 0, 1, 1)
    checks = (IndexCheck(0, 0, where, 1, 1, 0, 1, 1, 0, 1, "not at these sizes"),)
    with Module(replace(made, checks=checks), 1) as module:
        for flags in ([0, 0, 0], [1, 0, 1], [0, 1, 0]):  # in the last one the check is not made
            module(np.array(flags, bool))
        for _ in range(2):
            with pytest.raises(InputError, match=r"^not at these sizes$"):
                module(np.array([1, 1, 0], bool))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: _with_guard(m, Guard(Binding("input", 0, 3, 1), 1)), "guard 0: bytes 3 to 4 of input 0"),
        (lambda m: _with_guard(m, Guard(Binding("input", 0, 0, 2), 1)), "guard 0: 2 bytes that are to be 1"),
        (lambda m: _with_guard(m, Guard(Binding("input", 0, 0, 1), 2)), "guard 0: 1 bytes that are to be 2"),
        (lambda m: _with_guard(m, Guard(Binding("output", 0, 64 * 8, 1), 1)), "commands 0 and 1 may run at"),
    ],
)
def test_wrong_guards_are_refused(change: Callable[[ModuleImage], ModuleImage], message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        verify(change(switch()))


def _with_guard(made: ModuleImage, guard: Guard) -> ModuleImage:
    """Return the image with another guard of its last command, beside the first one."""
    first, last = made.commands
    return replace(made, commands=(first, replace(last, guards=(guard,), beside=1)))


def test_other_devices_refuse_guards() -> None:
    device = CpuDriver().open("cpu")
    with pytest.raises(UsageError, match=r"branches of which one runs: .* not on cpu"):
        load_on_device(device, switch())
    device.close()
