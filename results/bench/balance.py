"""The cost of one slow worker, with tiles stolen from it alone and with shares that follow what workers did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

import numpy as np

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView
from autotune.bench.interleaved import interleaved
from autotune.bench.suites import models
from autotune.bench.tables import duration, geometric_mean, number, percent
from autotune.codegen.jit import LoadedCode
from autotune.compiler import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.runtime.arguments import Signature
from autotune.runtime.cpu import layout
from autotune.runtime.cpu.balance import TILES_OF_A_WINDOW
from autotune.runtime.cpu.device import HOST_MEMORY, address_of
from autotune.runtime.cpu.instance import Instance
from autotune.runtime.image import ModuleImage
from results.bench.slowed_workers import SlowedWorkers

_TURN_NS = 15_000_000
_LEAST_RUNS = 5
_SETTLING_TILES = 16 * TILES_OF_A_WINDOW
"""Run after each change, before what is timed."""
_SETTLING_RUNS = (5, 2000)


MODELS = ("mlp", "encoder", "squeezenet", "shufflenet", "mobilenetv2")


def measure(
    say: Say, names: Sequence[str], threads: int, rounds: int, factors: Sequence[float]
) -> Iterator[Sequence[Record]]:
    """Yield a record for each factor of one model after the other; raises what compiling raises."""
    for case in models.models(names or MODELS):
        say(f"{case.name}: {len(factors)} factors, {rounds} rounds")
        problem = case.build()
        image = compile_in_detail(CompileRequest(problem.graph, threads=threads)).image
        subject = _Subject(image, problem.inputs, threads)
        found = {factor: {"fixed": list[_Turn](), "following": list[_Turn]()} for factor in factors}
        for count in range(rounds):
            for factor in factors:
                turns = {
                    "fixed": partial(subject.turn, factor, follow=False),
                    "following": partial(subject.turn, factor, follow=True),
                }
                for _, way, turn in interleaved(turns, 1, count):
                    found[factor][way].append(turn)
        subject.close()
        yield [{"model": case.name, "workers": threads, **_record(f, **both)} for f, both in found.items()]


@dataclass(frozen=True)
class _Turn:
    ns: float
    share: float
    stolen: float


class _Subject:
    """A model whose workers can be slowed."""

    def __init__(self, image: ModuleImage, inputs: Mapping[str, np.ndarray], workers: int) -> None:
        # Without scratch memory the workers could not be told apart.
        commands = tuple(replace(each, scratch_bytes=max(1, each.scratch_bytes)) for each in image.commands)
        image = replace(image, commands=commands)
        signature = Signature(image.name, image.inputs, image.outputs)
        self._inputs = signature.inputs([inputs[spec.name] for spec in image.inputs])
        self._outputs = signature.fresh_outputs()
        constants = HOST_MEMORY.constants(image.constants)
        self._code = LoadedCode(image.objects)
        self._instance = Instance(image, self._code, constants, workers, HOST_MEMORY)
        self._slowed = SlowedWorkers(self._instance.program)
        self._tiles = self._instance.program.memory[0].view(np.int64)[layout.SHARED_TILES]

    def turn(self, factor: float, *, follow: bool) -> _Turn:
        """Runs from equal shares on; those in which the shares settle are not timed."""
        pool = self._instance.pool
        self._slowed.slow([1.0] * (pool.workers - 1) + [factor])
        pool.balance(TILES_OF_A_WINDOW if follow else 0)
        least, most = _SETTLING_RUNS
        settling = self._times(int(np.clip(_SETTLING_TILES // max(1, self._tiles), least, most)))
        times = self._times(max(_LEAST_RUNS, int(_TURN_NS // max(1.0, median(settling)))))
        stolen, share = self._stolen(), pool.shares[-1]
        pool.balance()
        return _Turn(float(median(times)), share, stolen)

    def close(self) -> None:
        """Free its memory and code."""
        self._instance.close()
        self._code.close()

    def _times(self, runs: int) -> np.ndarray:
        times = np.zeros(runs, np.int64)
        self._run(runs, times=address_of(times))
        return times

    def _stolen(self, runs: int = 5) -> float:
        """The part of the tiles that another worker ran than the one in whose range they were."""
        shape = (runs, len(self._instance.dispatch_of), self._instance.pool.workers, layout.EVENT_SLOTS)
        events = np.zeros(shape, np.int64)
        self._run(runs, events=address_of(events))
        return float(events[..., layout.TILES_STOLEN].sum() / max(1, runs * self._tiles))

    def _run(self, runs: int, times: int = 0, events: int = 0) -> None:
        self._instance.run(self._inputs[1] + self._outputs[1], runs, times, events)


def _record(factor: float, fixed: Sequence[_Turn], following: Sequence[_Turn]) -> Record:
    """Return the turns of a model with its last worker ``factor`` times as slow.

    ``share`` is what the slow worker begins with at the end of a turn, where shares follow; ``gain`` how many times as
    fast the model is then, the median over pairs of turns.
    """
    return {
        "factor": factor,
        "fixed_ns": [turn.ns for turn in fixed],
        "following_ns": [turn.ns for turn in following],
        "gain": median(a.ns / b.ns for a, b in zip(fixed, following, strict=True)),
        "share": median(turn.share for turn in following),
        "stolen_fixed": median(turn.stolen for turn in fixed),
        "stolen_following": median(turn.stolen for turn in following),
    }


ABOUT = (
    "One worker is made to spin after each chunk of tiles, so that it takes a number of times as long. Others steal "
    "from it either way; what it begins with is as much as the others', or follows how fast the workers were "
    "in the runs before, as it does in use. Both are interleaved in one process."
)


def _gain(rows: FrameRows) -> float | None:
    return geometric_mean(rows.all("gain"))


EXPERIMENT = Experiment(
    title="Balance of unequal workers",
    about=ABOUT,
    summary="Measure one slow worker, with and without shares that follow; NAMES are zoo models or ONNX files.",
    example="squeezenet --factors 1,2,4 -o results/balance.md",
    options=(
        options.words(),
        options.workers("Workers, the last of which is slow.", least=2),
        options.number("--rounds", 7, "Turns of each."),
        options.numbers("--factors", "1,1.5,2,3,4", "How many times as slow.", float, 1.0, 1000.0),
    ),
    measure=measure,
    views=(
        TableView(
            "One of {workers} workers is slow",
            ("model", "factor"),
            (
                Column("model, times as slow", lambda rows: f"{rows.get('model')}, {rows.get('factor'):g}"),
                Column("equal shares", lambda rows: median(rows.get("fixed_ns")), duration),
                Column("shares that follow", lambda rows: median(rows.get("following_ns")), duration),
                Column("gain", "gain", number(3)),
                Column("its share", "share", percent(1, "%")),
                Column("stolen, equal", "stolen_fixed", percent(1, "%")),
                Column("stolen, following", "stolen_following", percent(1, "%")),
            ),
            notes=(
                "medians of turns in one process; a gain above 1 says that shares that follow are faster",
                "stolen: the part of the tiles of commands that have several",
            ),
        ),
        TableView(
            "Gain, geometric mean over the models",
            ("factor",),
            (Column("times as slow", "factor", "{:g}".format), Column("gain", _gain, number(3))),
        ),
    ),
)

__all__ = ["EXPERIMENT"]
