"""Commands that run again and again on memory that moves, some within others, some only while booleans say so."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from autotune.errors import ArtifactError, UsageError
from autotune.runtime import unrolled as unrolling
from autotune.runtime.artifacts.artifact import load_image, save
from autotune.runtime.conflicts import conflicts, overlapping
from autotune.runtime.cpu import program
from autotune.runtime.hal.cpu.driver import CpuDriver
from autotune.runtime.hal.recording import load_image as load_on_device
from autotune.runtime.image import Binding, Guard, ModuleImage, RepeatedCommands
from autotune.runtime.module import Module
from autotune.runtime.unrolled import unrolled
from autotune.runtime.verify import verify
from tests.runtime.kernels import binding, image, spec

SIZE, VECTORS = 64, 12


@dataclass
class Step:
    """The target becomes the source, plus one, and mirrored where they are never the same; both move by vectors with
    each repeat around."""

    source: int
    target: int
    tiles: int
    moves: tuple[tuple[int, int], ...] = ()

    @property
    def mirrors(self) -> bool:
        """Return whether both move alike, and so are never the same."""
        return self.source != self.target and all(one == other for one, other in self.moves)


@dataclass
class Again:
    """Steps that are repeated, while the first byte of a vector is as wanted where there is one."""

    count: int
    inside: list[Step | Again] = field(default_factory=list)
    going: tuple[int, int] | None = None


Program = list[Step | Again]


def random_program(rng: random.Random, counts: tuple[int, ...] = (), guarded: bool = True) -> Program:
    """Return steps and repeats in ``counts`` others."""
    found = Program()
    for _ in range(rng.randint(1, 4)):
        if len(counts) < 3 and rng.random() < 0.5:
            count = rng.choice((1, 2, 3, 5))
            going = (rng.randrange(VECTORS), rng.randint(0, 1)) if guarded and rng.random() < 0.4 else None
            found.append(Again(count, random_program(rng, (*counts, count), guarded), going))
        else:
            moves = tuple((_move(rng, count), _move(rng, count)) for count in counts)
            moves = tuple((one, one) for one, _ in moves) if rng.random() < 0.5 else moves
            source, target = (_begin(rng, [m[i] for m in moves], counts) for i in range(2))
            found.append(Step(source, target, rng.choice((1, 1, 7, 64)), moves))
    return found


def _move(rng: random.Random, count: int) -> int:
    return rng.choice((-1, 0, 0, 1)) if count <= 3 else 0


def _begin(rng: random.Random, moves: list[int], counts: tuple[int, ...]) -> int:
    last = [move * (count - 1) for move, count in zip(moves, counts, strict=True)]
    least, most = -sum(min(each, 0) for each in last), VECTORS - 1 - sum(max(each, 0) for each in last)
    return rng.randint(least, most)


def made(steps: Program) -> ModuleImage:
    """Return an image of a program."""
    flat, repeats = list[Step](), list[RepeatedCommands]()

    def walk(inside: Program) -> None:
        for each in inside:
            if isinstance(each, Step):
                flat.append(each)
                continue
            begin, place = len(flat), len(repeats)
            walk(each.inside)
            guards = () if each.going is None else (_guard(*each.going),)
            repeats.insert(place, RepeatedCommands(begin, len(flat), each.count, guards))

    walk(steps)
    recorded = []
    for each in flat:
        places = _moving(each, 0, each.source), _moving(each, 1, each.target)
        recorded.append(("late" if each.mirrors else "increment", *places, each.tiles))
    found = image(recorded, outputs=(spec("y", VECTORS * SIZE),))
    return replace(found, commands=overlapping(found.commands, (), repeats), repeats=tuple(repeats))


def _moving(step: Step, side: int, vector: int) -> Binding:
    advances = tuple(8 * SIZE * move[side] for move in step.moves)
    return replace(binding("output", SIZE, offset=8 * SIZE * vector), advances=advances)


def _guard(vector: int, wanted: int) -> Guard:
    return Guard(Binding("output", 0, 8 * SIZE * vector, 1), wanted)


def expected(steps: Program, runs: int = 1) -> np.ndarray:
    """Return the results of the steps one after another."""
    y = np.zeros((VECTORS, SIZE), np.int64)

    def walk(inside: Program, times: tuple[int, ...]) -> None:
        for each in inside:
            if isinstance(each, Step):
                source, target = (
                    vector + sum(m[i] * t for m, t in zip(each.moves, times, strict=True))
                    for i, vector in enumerate((each.source, each.target))
                )
                read = y[source, ::-1] if each.mirrors else y[source]
                y[target, : each.tiles] = read[: each.tiles] + 1
                continue
            for time in range(each.count):
                walk(each.inside, (*times, time))
                if each.going is not None and (y[each.going[0], 0] % 256 != 0) != each.going[1]:
                    break

    for _ in range(runs):
        walk(steps, ())
    return y


def check(seed: int) -> None:
    rng = random.Random(seed)
    steps = random_program(rng)
    threads, runs = rng.choice((1, 2, 2, 3)), rng.randint(1, 3)
    y = np.zeros(VECTORS * SIZE, np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "_SMALL_BYTES", rng.choice((0, 8 * SIZE * VECTORS + 1)))
        found = Module(made(steps), threads)
    with found as module:
        arrays = module.loaded._signature.inputs([])
        module.loaded._run(arrays, module.loaded._signature.given_outputs([y], arrays), runs)
        module.timeline([])
    assert np.array_equal(y.reshape(VECTORS, SIZE), expected(steps, runs)), (seed, steps)


@pytest.mark.parametrize("block", range(4))
def test_random_repeats_compute_what_one_worker_would(block: int) -> None:
    for seed in range(10 * block, 10 * block + 10):
        check(seed)


@pytest.mark.slow
def test_many_random_repeats() -> None:
    for seed in range(1000, 2000):
        check(seed)


def test_unrolled_images_compute_the_same() -> None:
    for seed in range(12):
        steps = random_program(random.Random(seed), guarded=False)
        flat = unrolled(made(steps))
        verify(flat)
        assert not flat.repeats
        assert not [*conflicts(flat.commands, ())]
        y = np.zeros(VECTORS * SIZE, np.int64)
        with Module(flat, 2) as module:
            arrays = module.loaded._signature.inputs([])
            module.loaded._run(arrays, module.loaded._signature.given_outputs([y], arrays))
        assert np.array_equal(y.reshape(VECTORS, SIZE), expected(steps))


def twice() -> ModuleImage:
    """Two commands in a repeat, which goes on while the first vector says so."""
    return made([Again(3, [Step(0, 1, 64, ((0, 1),)), Step(5, 6, 64, ((0, 0),))], (0, 0))])


def test_too_many_commands_are_not_unrolled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(unrolled(twice()).commands) == 6
    monkeypatch.setattr(unrolling, "MOST_COMMANDS", 5)
    with pytest.raises(UsageError, match="runs more than 5 commands in all steps of its loops"):
        unrolled(twice())


def test_other_devices_run_what_is_unrolled() -> None:
    device = CpuDriver().open("cpu")
    loaded = load_on_device(device, twice())
    assert (len(loaded.image.commands), loaded.image.repeats) == (6, ())
    device.close()


@pytest.mark.parametrize("threads", [1, 2])
def test_events_add_up_what_is_repeated(threads: int) -> None:
    with Module(_with(twice(), guards=()), threads) as module:
        tiles = [0, 0]
        for event in module.timeline([]):
            tiles[event.dispatch] += event.tiles
        assert tiles == [3 * 64, 3 * 64]
        assert (module.profiles([], 3) > 0).all()


def test_repeats_are_in_the_artifact(tmp_path: Path) -> None:
    save(twice(), tmp_path / "a.atm")
    again = load_image(tmp_path / "a.atm")
    assert (again.commands, again.repeats) == (twice().commands, twice().repeats)


def _with(made: ModuleImage, **changes: object) -> ModuleImage:
    (repeat,) = made.repeats
    return replace(made, repeats=(replace(repeat, **changes),))


def _unmoved(made: ModuleImage) -> ModuleImage:
    commands = (
        replace(command, bindings=tuple(replace(each, advances=()) for each in command.bindings))
        for command in made.commands
    )
    return replace(made, commands=tuple(commands))


def _with_binding(made: ModuleImage, **changes: object) -> ModuleImage:
    first, last = made.commands
    changed = replace(first.bindings[1], **changes)
    return replace(made, commands=(replace(first, bindings=(first.bindings[0], changed)), last))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: _with(m, count=0), "repeat 0: 0 times from 0 to 2"),
        (lambda m: _with(m, count=1 << 41), "repeat 0: 2199023255552 times from 0 to 2"),
        (lambda m: _with(m, end=3), "repeat 0: 3 times from 0 to 3"),
        (lambda m: _with(m, begin=-1), "repeat 0: 3 times from -1 to 2"),
        (lambda m: _with(m, guards=(Guard(Binding("output", 0, 0, 2), 1),)), "2 bytes that are to be 1"),
        (lambda m: _with(m, count=12), r"binding 1: bytes 512 to 6656 of output 0, which has 6144"),
        (lambda m: replace(m, repeats=()), "binding 0: it moves with 1 repeats, and is in 0"),
        (
            lambda m: replace(m, repeats=(RepeatedCommands(0, 1, 1), RepeatedCommands(0, 2, 1))),
            "repeat 1: from 0 to 2, and another from 0",
        ),
        (lambda m: replace(m, repeats=(*m.repeats * 17,)), "repeat 16: inside of 16 others"),
        (
            lambda m: _with(_unmoved(m), begin=1),
            "command 1 may run beside others across the border of a repeat",
        ),
        (lambda m: _with_binding(m, offset=8 * SIZE * 4), "commands 0 and 1 may run at the same time"),
        (lambda m: _with_binding(m, advances=(-512 * 2,)), "bytes -1536 to 1024 of output 0"),
    ],
)
def test_wrong_repeats_are_refused(change: Callable[[ModuleImage], ModuleImage], message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        verify(change(twice()))
