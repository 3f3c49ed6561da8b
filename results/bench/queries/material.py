"""The content of a made-up database: real workloads, spaces and schedules; only the measured numbers are invented."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotune.bench.suites import operators
from autotune.compiler import distinct_workloads, divide
from autotune.compiler.plan import option_key
from autotune.graph.region import Workload
from autotune.passes.options import allowed
from autotune.passes.partition import Partition
from autotune.passes.preference import Preference
from autotune.schedule.knob import Value, config_to_json
from autotune.target import Target
from search_spaces.space import Space
from search_spaces.spaces import space_for

_LEVELS = (("x86-64-v3", 2), ("x86-64-v3", 4), ("x86-64-v4", 4))
"""Targets beside this machine that a shared database would have."""
_HELD_OUT = 10
"""One in so many workloads of a model is not in the database: what is nearest is looked for."""


@dataclass(frozen=True)
class Schedule:
    """A configuration of a space and its trace, as a database stores both."""

    config_json: str
    trace_json: str


@dataclass(frozen=True)
class OptionChoice:
    """The options of a workload by name, with the key of what each is made of; ``winner`` was found the fastest."""

    keys: dict[str, str]
    winner: str


@dataclass(frozen=True)
class Tuned:
    """A workload as it was tuned for a target: the default schedule first, then others; ``option`` where there are
    several ways to compute it."""

    workload: Workload
    target: Target
    space: str
    schedules: tuple[Schedule, ...]
    option: OptionChoice | None = None


@dataclass(frozen=True)
class TunedModel:
    """A model and the dispatches that have each of its workloads; some of these were never tuned."""

    name: str
    workloads: tuple[Workload, ...]
    layers: dict[str, list[str]]


def targets() -> list[Target]:
    """This machine, and levels of other machines."""
    return [Target.detect(), *(Target.parse(level, threads) for level, threads in _LEVELS)]


def another_target() -> Target:
    """A machine like this one that no run was measured on: with another number of threads."""
    here = Target.detect()
    return replace(here, threads=here.threads + 1, cores=here.cores + 1)


OPERATORS = "operators"
"""The name of the operator suite among those of zoo models."""


def models(names: Iterable[str]) -> Iterator[TunedModel]:
    """The workloads of zoo models; those of the operator suite are one model."""
    for name in names:
        if name == OPERATORS:
            cases = [operators.case(f, sizes) for f, several in operators.SHAPES.items() for sizes in several]
            yield _model(name, [divide(case.build().graph) for case in cases])
        else:
            yield _model(f"zoo:{name}", [divide(f"zoo:{name}")])


def _model(name: str, several: Sequence[Partition]) -> TunedModel:
    layers: dict[str, list[str]] = {}
    workloads: dict[str, Workload] = {}
    for parts in several:
        for dispatch in parts.dispatches:
            layers.setdefault(dispatch.workload.key, []).append(dispatch.name)
        workloads |= {workload.key: workload for workload in distinct_workloads(parts)}
    return TunedModel(name, tuple(workloads.values()), layers)


def held_out(model: TunedModel) -> tuple[Workload, ...]:
    """The workloads of a model that are left out of the database."""
    return model.workloads[_HELD_OUT - 1 :: _HELD_OUT]


def tuned(workloads: Iterable[Workload], target: Target, rng: np.random.Generator) -> Iterator[Tuned]:
    """Workloads as they were tuned for a target, followed by those of the dispatches that a winning option has."""
    for workload in workloads:
        options = [option for option in allowed(workload, Preference()) if option.suits(target)]
        if len(options) == 1 and options[0].steps is None:
            yield _tuned(workload, target, rng)
            continue
        winner = options[rng.integers(len(options))]
        keys = {option.name: option_key(option, target) for option in options}
        choice = OptionChoice(keys, winner.name)
        yield replace(_tuned(workload, target, rng), option=choice)
        if winner.steps is not None:
            yield from (_tuned(region, target, rng) for region in winner.regions)


def _tuned(workload: Workload, target: Target, rng: np.random.Generator) -> Tuned:
    space = space_for(workload, target)
    configs = [space.default(), *space.random(rng, 2)]
    return Tuned(workload, target, space.key, tuple(_schedule(space, workload, config) for config in configs))


def _schedule(space: Space, workload: Workload, config: dict[str, Value]) -> Schedule:
    trace = space.apply(workload.program(), config).trace
    return Schedule(config_to_json(config), trace.to_json())


__all__ = [
    "OPERATORS",
    "OptionChoice",
    "Schedule",
    "Tuned",
    "TunedModel",
    "another_target",
    "held_out",
    "models",
    "targets",
    "tuned",
]
