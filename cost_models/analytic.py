"""The analytic cost model: a cold start for the search, and the zero-trial default schedule."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autotune.garbage import collector_paused
from autotune.schedule.knob import Config, Value
from cost_models import kept_defaults
from cost_models.machine import Machine
from cost_models.peak import peak
from cost_models.terms import overlapped, terms
from cost_models.terms.memory import refusal
from search_spaces.device.spaces import runs_groups
from search_spaces.nest import Numbers
from search_spaces.population import Population

if TYPE_CHECKING:
    from autotune.graph.program import AnyWorkload
    from autotune.graph.region import Workload
    from autotune.target import Target
    from search_spaces.space import Space

_ENUMERATE = 20_000
_SAMPLES = 2048
_ROUNDS = 12
_SURVIVORS = 16
_LEADERS = 2
"""The search goes on while one of so many best candidates is new."""
_LONG_FLOPS = 2**30
_LONG_SURVIVORS = 64
"""A kernel that runs for milliseconds is worth a few more of search: ways to a better tile lead through worse ones."""


def predict(space: Space, configs: Sequence[Config] | Population) -> Numbers:
    """Return predicted seconds [n] of candidates of one space, float64, many times too many where they take more
    than their share of scratch memory (:mod:`cost_models.terms.memory`). Raises KnobError for unknown knobs."""
    population = configs if isinstance(configs, Population) else space.of(configs)
    machine = Machine.of(space.target)
    seconds = np.zeros(len(population))
    for rows, nest in space.loop_nests(population):
        seconds[rows] = terms(nest, machine).total * refusal(nest, machine, space.workload.bytes)
    return seconds


def floor(workload: AnyWorkload, target: Target) -> float:
    """Return seconds that no schedule undercuts: arithmetic at the peak rate of its type, or operands moved once from
    the second-level cache."""
    machine = Machine.of(target)
    traffic = machine.l2_bytes_per_cycle * machine.hertz * machine.threads
    return max(workload.flops / peak(machine, target, workload.dtype), workload.bytes / traffic)


def in_model(seconds: float, workload: Workload, target: Target) -> float:
    """Return seconds inside of a model of an execution that takes so many alone, where its constants are in a cache.

    The other weights of a model pass through the caches between two calls. What comes from memory then hides behind
    arithmetic as other transfers do: measured on 3x3 convolutions of 7² to 14² by Winograd's algorithm on a Zen 4,
    where the sum of both would have F(2x2) for F(4x4), which is 1.25× as fast.
    """
    graph = workload.region.graph
    size = sum(graph.type_of(value).nbytes for value in workload.region.constant_inputs)
    machine = Machine.of(target)
    if workload.bytes > machine.l3:
        return seconds  # counted already
    streamed = size / min(machine.core_stream * machine.threads, machine.all_streams) / machine.hertz
    return float(overlapped(seconds, streamed, machine))


def default_config(space: Space) -> dict[str, Value]:
    """Return the candidate that the model likes best: deterministic, hence the same on every machine.

    The model knows cores alone: of a device that runs groups of threads it is what the space declares.
    A space of up to 20,000 candidates is enumerated; a larger one is sampled with a fixed seed and
    descended from the best samples, one knob a step. What was chosen once on a machine is kept
    (:mod:`cost_models.kept_defaults`).
    """
    return dict(_default(space)[0])


def default_seconds(space: Space) -> float:
    """Return the model's prediction for that candidate."""
    return _default(space)[1]


def _default(space: Space) -> tuple[dict[str, Value], float]:
    identity = (space.workload.key, space.target.key, space.key)
    if identity not in _DEFAULTS and runs_groups(space.target):
        remember([(*identity, space.default(), floor(space.workload, space.target))])
    if identity not in _DEFAULTS:
        chosen = kept_defaults.find(space) or _chosen(space)
        remember([(*identity, *chosen)])
    return _DEFAULTS[identity]


def _chosen(space: Space) -> kept_defaults.Chosen:
    """Return the default by a search, which is kept."""
    best, seconds = _best(space)
    chosen = best.config(0), float(seconds[0])
    kept_defaults.keep(space, chosen)
    return chosen


Default = tuple[str, str, str, dict[str, Value], float]
"""Keys of workload, target and space, the configuration, and its predicted seconds."""

_DEFAULTS: dict[tuple[str, str, str], tuple[dict[str, Value], float]] = {}
_ROOM = 4096


def remember(defaults: Iterable[Default]) -> None:
    """Store default configurations that another process has found; the oldest make room for them."""
    for workload, target, space, config, seconds in defaults:
        _DEFAULTS[workload, target, space] = config, seconds
        while len(_DEFAULTS) > _ROOM:
            del _DEFAULTS[next(iter(_DEFAULTS))]


def forget() -> None:
    """Choose default configurations anew: the machine has been measured since."""
    _DEFAULTS.clear()
    kept_defaults.forget()


def remembered(workloads: Collection[str]) -> list[Default]:
    """Return the default configurations found so far for workloads with these keys."""
    return [(*identity, *found) for identity, found in _DEFAULTS.items() if identity[0] in workloads]


@collector_paused()
def _best(space: Space) -> tuple[Population, Numbers]:
    """Return the best candidates that the model finds (up to 16), best first, and their predicted seconds."""
    if space.exact and space.size() <= _ENUMERATE:
        everything = space.enumerate()
        rows, seconds = _order(everything, predict(space, everything), _SURVIVORS)
        return everything.take(rows), seconds
    survivors = _SURVIVORS if space.workload.flops < _LONG_FLOPS else _LONG_SURVIVORS
    best, seconds = _descended(space, survivors)
    return best.take(slice(_SURVIVORS)), seconds[:_SURVIVORS]


def _descended(space: Space, survivors: int) -> tuple[Population, Numbers]:
    """Return the best of samples, and of what lies around the best, with their predicted seconds.

    No candidate is predicted twice, nor are the neighbours looked for of one whose neighbours are known.
    """
    seen = space.population(np.random.default_rng(0), _SAMPLES)
    rows, seconds = _order(seen, predict(space, seen), survivors)
    best = promoted = seen.take(rows)
    for _ in range(_ROUNDS):
        known = len(seen)
        seen = Population.concatenate([seen, space.neighbourhood(promoted)]).distinct()
        fresh = seen.take(slice(known, None))
        pool = Population.concatenate([best, fresh])
        rows, seconds = _order(pool, np.concatenate([seconds, predict(space, fresh)]), survivors)
        new = rows >= len(best)
        best, promoted = pool.take(rows), pool.take(rows[new])
        if not new[:_LEADERS].any():
            break
    return best, seconds


def _order(population: Population, seconds: Numbers, most: int) -> tuple[NDArray[np.intp], Numbers]:
    """Return the rows of the best candidates of a population, best first, and their predicted seconds.

    Of candidates that the model cannot tell apart, those come first with fewer knobs off their default.
    """
    wanted = np.asarray([knob.default_index for knob in population.knobs])
    departures = np.count_nonzero(population.indexes != wanted, axis=1)
    rows = np.lexsort((departures, seconds))[:most]
    return rows, seconds[rows]


__all__ = [
    "default_config",
    "default_seconds",
    "floor",
    "forget",
    "in_model",
    "predict",
    "remember",
    "remembered",
]
