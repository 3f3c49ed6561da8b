"""The analytic cost model: a cold start for the search, and the zero-trial default schedule."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from cost_models.machine import Machine
from cost_models.terms import terms
from search_spaces.knob import Config, Value
from search_spaces.nest import Numbers
from search_spaces.population import Population

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.target import Target
    from search_spaces.space import Space

_ENUMERATE = 20_000
_SAMPLES = 2048
_ROUNDS = 12
_SURVIVORS = 16


def predict(space: Space, configs: Sequence[Config] | Population) -> Numbers:
    """Predicted seconds [n] of candidates of one space, float64. Raises KnobError for unknown knobs."""
    population = configs if isinstance(configs, Population) else space.of(configs)
    machine = Machine.of(space.target)
    parts = [
        terms(space.loop_nest(population.take(rows).columns()), machine).total for rows in population.chunks()
    ]
    return np.concatenate([np.zeros(0), *parts])


def predict_memory(space: Space, configs: Sequence[Config] | Population) -> Numbers:
    """Predicted bytes [n] of memory beside inputs and outputs: packed and padded copies, and all scratch."""
    population = configs if isinstance(configs, Population) else space.of(configs)
    nest = space.loop_nest(population.columns())
    total = np.zeros(len(population))
    for one in nest.passes:
        total = total + one.written
    if nest.scratch is not None:
        total = total + nest.scratch[0] * np.minimum(nest.tiles, space.target.threads)
    return total


def floor(workload: Workload, target: Target) -> float:
    """Seconds that no schedule undercuts: arithmetic at the peak rate, or operands moved once from the
    second-level cache."""
    machine = Machine.of(target)
    rate = 2.0 * machine.arithmetic_ports * target.lanes("float32") * machine.hertz
    traffic = machine.l2_bytes_per_cycle * machine.hertz
    return max(workload.flops / rate, workload.bytes / traffic) / machine.threads


def cold_seconds(workload: Workload, target: Target) -> float:
    """Seconds by which an execution inside of a model takes longer than `predict` says: its constants are in no cache.

    The other weights of a model pass through the caches between two calls. Few rows share what comes, so that hardly
    any arithmetic hides it: measured on 3x3 convolutions of 7² to 28² by Winograd's algorithm, the time is the sum.
    """
    graph = workload.region.graph
    size = sum(graph.type_of(value).nbytes for value in workload.region.constant_inputs)
    machine = Machine.of(target)
    if workload.bytes > machine.l3:
        return 0.0  # counted already
    return float(size / min(machine.core_stream * machine.threads, machine.all_streams) / machine.hertz)


def default_config(space: Space) -> dict[str, Value]:
    """The candidate that the model likes best: deterministic, hence the same on every machine.

    A space of up to 20,000 candidates is enumerated; a larger one is sampled with a fixed seed and
    descended from the best samples, one knob a step.
    """
    return dict(_default(_Keyed(space))[0])


def default_seconds(space: Space) -> float:
    """What `predict` says of the `default_config`."""
    return _default(_Keyed(space))[1]


def best_of(space: Space) -> Population:
    """The best candidates that the model finds, best first (up to 16)."""
    return _best_of(space)[0]


def _best_of(space: Space) -> tuple[Population, Numbers]:
    """The best candidates and their predicted seconds."""
    if space.exact and space.size() <= _ENUMERATE:
        population = space.enumerate()
        return _survivors(population, predict(space, population))
    return _descend(space)


def _descend(space: Space) -> tuple[Population, Numbers]:
    known = _Known(space)
    start = space.population(np.random.default_rng(0), _SAMPLES)
    best, seconds = _survivors(start, known.predict(start))
    for _ in range(_ROUNDS):
        pool = Population.concatenate([best, space.neighbourhood(best)]).distinct()
        grown, seconds = _survivors(pool, known.predict(pool))
        if np.array_equal(grown.indexes, best.indexes):
            break
        best = grown
    return best, seconds


def _survivors(population: Population, seconds: Numbers) -> tuple[Population, Numbers]:
    """The best, best first. Of candidates that the model cannot tell apart, those with fewer knobs off their
    default."""
    wanted = np.asarray([knob.default_index for knob in population.knobs])
    departures = np.count_nonzero(population.indexes != wanted, axis=1)
    rows = np.lexsort((departures, seconds))[:_SURVIVORS]
    return population.take(rows), seconds[rows]


class _Known:
    """Predictions of one space, each computed once: rounds of a descent share most of their neighbours."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._seconds: dict[object, float] = {}

    def predict(self, population: Population) -> Numbers:
        """Like :func:`predict`."""
        codes = population.codes().tolist()
        new = [row for row, code in enumerate(codes) if code not in self._seconds]
        found = predict(self._space, population.take(new)) if new else ()
        self._seconds.update(zip([codes[row] for row in new], map(float, found), strict=True))
        return np.asarray([self._seconds[code] for code in codes])


class _Keyed:
    """A space as a cache key: equal for equal workload, target and space."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.identity = (space.workload.key, space.target.key, space.key)

    def __hash__(self) -> int:
        return hash(self.identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and self.identity == other.identity


@lru_cache(maxsize=4096)
def _default(keyed: _Keyed) -> tuple[dict[str, Value], float]:
    best, seconds = _best_of(keyed.space)
    return best.config(0), float(seconds[0])


__all__ = [
    "best_of",
    "cold_seconds",
    "default_config",
    "default_seconds",
    "floor",
    "predict",
    "predict_memory",
]
