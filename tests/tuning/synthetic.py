"""A made-up space with a known best candidate, and a measurer that knows its latencies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune import te
from autotune.database import Latency, Outcome
from autotune.graph.region import RegionProgram
from autotune.schedule.knob import Config, Knob
from autotune.schedule.schedule import Schedule
from autotune.target import Target
from autotune.tuning.measure.interface import Candidate
from autotune.tuning.measure.outcome import Measurement
from search_spaces.constraint import Constraint
from search_spaces.nest import Body, Loop, LoopNest, TensorAccess
from search_spaces.population import Population
from search_spaces.sketch import Choices
from search_spaces.space import Space
from tests.tuning.simulated import SimulatedMeasurer

TARGET = Target.parse("x86-64-v3", threads=2)
KNOBS = (
    Knob.of("rows", tuple(range(1, 17)), 4),
    Knob.of("vectors", tuple(range(1, 17)), 2),
    Knob.of("unroll", (1, 2, 4, 8), 1),
    Knob.of("order", ("mn", "nm"), "mn"),
)
FITS = Constraint("fits", ("rows", "vectors"), lambda c: c["rows"] * c["vectors"] <= 64)


@dataclass(frozen=True)
class FakeWorkload:
    key: str
    text: str
    kind: str = "contraction"
    flops: int = 1 << 20
    bytes: int = 1 << 16

    @cached_property
    def expressions(self) -> RegionProgram:
        return self.program()

    def program(self) -> RegionProgram:
        """A product of 64x64 matrices, whose loops those of the made-up nests are."""
        a, b = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
        k = te.reduce_axis((0, 64), name="k")
        c = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
        return RegionProgram(inputs=(a, b), outputs=(c,), anchor=None, constants=frozenset(), strides={})


@dataclass(frozen=True)
class NoRecipe:
    def steps(self, schedule: Schedule, config: Choices) -> None:
        raise NotImplementedError


class MadeUpSpace(Space):
    """A space whose loop nests follow from no schedule."""

    def loop_nests(self, population: Population) -> Iterator[tuple[NDArray[np.intp], LoopNest]]:
        """A nest whose analytic cost has little to do with the real latency: learning must help."""
        n, columns = len(population), population.columns()
        one = np.ones(n)
        rows, vectors = columns["rows"].astype(float), columns["vectors"].astype(float)
        body = Body(one, rows * vectors, rows + vectors, one, rows * vectors, one * 8, rows * vectors)
        loops = (
            Loop("i", np.ceil(64 / rows), "parallel"),
            Loop("j", np.ceil(64 / vectors)),
            Loop("k", columns["unroll"].astype(float)),
        )
        tags = {"unroll": columns["unroll"].astype(float), "order": (columns["order"] == "mn") * one}
        extents = {"i": 64, "j": 64, "k": 64}
        accesses = (TensorAccess("A", 4, ((("i", 1),), (("k", 1),)), (64, 64)),)
        yield np.arange(n), LoopNest("contraction", 8, 1e6, extents, loops, accesses, body, tags=tags)


@dataclass
class Synthetic:
    """One workload; ``latency`` is a smooth bowl with its bottom at rows 6, vectors 10."""

    name: str = "a"
    scale: float = 1.0
    failing: bool = False
    flops: int = 1 << 20
    space: Space = field(init=False)
    workload: FakeWorkload = field(init=False)

    def __post_init__(self) -> None:
        self.workload = FakeWorkload((self.name * 64)[:64], f"text {self.name}", flops=self.flops)
        workload: Any = self.workload
        self.space = MadeUpSpace(workload, TARGET, "contraction", KNOBS, (FITS,), NoRecipe())

    def latency(self, config: Config) -> float:
        rows, vectors = int(config["rows"]), int(config["vectors"])
        bowl = (rows - 6) ** 2 + (vectors - 10) ** 2 + (0 if config["order"] == "nm" else 40)
        return self.scale * 1000 * (1 + bowl / 20 + 0.2 * abs(np.log2(int(config["unroll"])) - 2))

    def measurement(self, config: Config) -> Measurement:
        if self.failing:
            return Measurement(Outcome.CRASHED, message="the worker died (SIGSEGV)")
        if config["unroll"] == 8:
            return Measurement(Outcome.WRONG_RESULT, error=0.5, message="relative error 0.5")
        ns = self.latency(config)
        return Measurement(Outcome.OK, Latency(5, ns, ns, 0.0), 1e-7)

    @property
    def best(self) -> float:
        return min(self.measurement(c).latency_ns for c in self.space.enumerate())


def measurer(*synthetics: Synthetic) -> SimulatedMeasurer:
    table = {s.workload.text: s for s in synthetics}

    def answer(candidate: Candidate) -> Measurement:
        return table[candidate.workload].measurement(candidate.config)

    return SimulatedMeasurer(answer)
