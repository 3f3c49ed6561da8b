"""What one slow worker costs, with tiles stolen from it alone and with shares that follow what workers did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from autotune.bench.problem import Case
from autotune.bench.tables import Table, duration, geometric_mean, ratio
from autotune.codegen.jit import LoadedCode
from autotune.compiler import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.runtime import layout
from autotune.runtime.arguments import Signature
from autotune.runtime.balance import TILES_OF_A_WINDOW
from autotune.runtime.device import HOST_MEMORY, address_of
from autotune.runtime.image import ModuleImage
from autotune.runtime.instance import Instance
from results.bench.slowed_workers import SlowedWorkers

_TURN_NS = 15_000_000
_LEAST_RUNS = 5
_SETTLING_TILES = 16 * TILES_OF_A_WINDOW
"""Run after each change, before what is timed."""
_SETTLING_RUNS = (5, 2000)


@dataclass(frozen=True)
class Balance:
    """One model with its last worker ``factor`` times as slow: ns of a run, medians of the turns [turns].

    ``share`` is what the slow worker begins with at the end of a turn, where shares follow; ``stolen`` are parts of all
    tiles that several workers have to do with, without and with that.
    """

    model: str
    factor: float
    fixed_ns: tuple[float, ...]
    following_ns: tuple[float, ...]
    share: float
    stolen: tuple[float, float]

    @property
    def gain(self) -> float:
        """How many times as fast it is with shares that follow: the median over pairs of turns."""
        return median(a / b for a, b in zip(self.fixed_ns, self.following_ns, strict=True))


def measure(
    cases: Iterable[Case],
    factors: Sequence[float],
    workers: int,
    rounds: int,
    say: Callable[[str], None],
) -> list[Balance]:
    """Each model with each factor, in turns; raises what compiling raises."""
    found = []
    for case in cases:
        say(f"{case.name}: {len(factors)} factors, {rounds} rounds")
        problem = case.build()
        image = compile_in_detail(CompileRequest(problem.graph, threads=workers)).image
        subject = _Subject(image, problem.inputs, workers)
        turns = {factor: list[tuple[_Turn, _Turn]]() for factor in factors}
        for number in range(rounds):
            for factor in factors:
                first = subject.turn(factor, follow=bool(number % 2))
                other = subject.turn(factor, follow=not number % 2)
                turns[factor].append((other, first) if number % 2 else (first, other))
        subject.close()
        found += [_balance(case.name, factor, pairs) for factor, pairs in turns.items()]
    return found


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
        self._inputs, self._outputs = signature.inputs(signature.by_name(inputs)), signature.fresh_outputs()
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


def _balance(model: str, factor: float, pairs: Sequence[tuple[_Turn, _Turn]]) -> Balance:
    fixed, following = [each for each, _ in pairs], [each for _, each in pairs]
    return Balance(
        model,
        factor,
        tuple(turn.ns for turn in fixed),
        tuple(turn.ns for turn in following),
        median(turn.share for turn in following),
        (median(turn.stolen for turn in fixed), median(turn.stolen for turn in following)),
    )


def tables(found: Sequence[Balance], workers: int) -> list[Table]:
    """A row a model and factor, and the gains in the mean."""
    rows = [
        (
            f"{each.model}, {each.factor:g}",
            duration(median(each.fixed_ns)),
            duration(median(each.following_ns)),
            ratio(each.gain, 3),
            f"{each.share:.1%}",
            f"{each.stolen[0]:.1%}",
            f"{each.stolen[1]:.1%}",
        )
        for each in found
    ]
    factors = dict.fromkeys(each.factor for each in found)
    means = [
        (f"{factor:g}", ratio(geometric_mean(each.gain for each in found if each.factor == factor), 3))
        for factor in factors
    ]
    columns = (
        "model, times as slow",
        "equal shares",
        "shares that follow",
        "gain",
        "its share",
        "stolen, equal",
        "stolen, following",
    )
    notes = (
        "medians of turns in one process; a gain above 1 says that shares that follow are faster",
        "stolen: the part of the tiles of commands that have several",
    )
    return [
        Table(f"One of {workers} workers is slow", columns, tuple(rows), notes),
        Table("Gain, geometric mean over the models", ("times as slow", "gain"), tuple(means)),
    ]


__all__ = ["Balance", "measure", "tables"]
