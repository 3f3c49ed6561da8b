"""What a model gives a tuning job: its workloads, and the whole of it to time before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.compiler import distinct_workloads
from autotune.compiler.assemble import BuiltWorkload, assemble
from autotune.compiler.choice import Choice, choose
from autotune.compiler.decision import PROMISING, chosen, decide, decide_all
from autotune.compiler.driver import build_workloads
from autotune.database import Database
from autotune.database.records import Latency
from autotune.passes.alternatives import Alternative
from autotune.passes.preference import Preference
from autotune.passes.substitute import substitute
from autotune.target import Target
from autotune.te.dtypes import is_float
from autotune.tuning.job import Subject
from autotune.tuning.measure import wire
from autotune.tuning.measure.interface import Built
from autotune.tuning.measure.timing import Sample, time_rivals
from autotune.tuning.objective import Fork

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.passes.partition import Partition
    from autotune.runtime.image import ModuleImage
    from autotune.runtime.module import Module

ROUNDS = 30
LIMIT_S = 10.0

Known = Mapping[tuple[str, str], Built]
"""Built code by workload key and trace key."""


def work_of(parts: Partition, target: Target, preference: Preference) -> tuple[list[Subject], list[Fork]]:
    """The workloads to tune: those that the untuned model executes, then those of other alternatives.

    Alternatives that are estimated to take over twice the time of the best are left out.
    """
    names: dict[str, list[str]] = {}
    for dispatch in parts.dispatches:
        names.setdefault(dispatch.workload.key, []).append(dispatch.name)
    now, later, forks = list[_Use](), list[_Use](), list[Fork]()
    for workload in distinct_workloads(parts):
        mine = tuple(names[workload.key])
        decision = decide(workload, target, None, preference, within=PROMISING)
        if decision is None:
            now.append(_Use(mine, workload))
            continue
        forks.append(Fork(mine, workload, decision.promising, decision.chosen))
        for alternative in decision.promising:
            uses = now if alternative is decision.chosen else later
            uses += _uses(mine, alternative)
    return _subjects([*now, *later], target), forks


@dataclass(frozen=True)
class _Use:
    """Dispatches that execute a workload, directly or as a step of an alternative."""

    names: tuple[str, ...]
    workload: Workload


def _uses(names: Sequence[str], alternative: Alternative) -> list[_Use]:
    if alternative.steps is None:
        return [_Use(tuple(names), alternative.workload)]
    return [
        _Use(tuple(f"{name}/{alternative.name}/{step.name}" for name in names), step.workload)
        for step in alternative.steps.dispatches
    ]


def _subjects(uses: Sequence[_Use], target: Target) -> list[Subject]:
    """The distinct workloads, each with all dispatches that execute it."""
    names: dict[str, list[str]] = {}
    for use in uses:
        names.setdefault(use.workload.key, []).extend(use.names)
    workloads = {use.workload.key: use.workload for use in uses}
    return [subject_of(workloads[key], target, tuple(found)) for key, found in names.items()]


def subject_of(workload: Workload, target: Target, names: tuple[str, ...]) -> Subject:
    """One workload with its space and its default schedule."""
    from cost_models import analytic
    from search_spaces.spaces import space_for

    space = space_for(workload, target)
    return Subject(names, workload, space, analytic.default_config(space))


def time_whole_model(
    parts: Partition,
    target: Target,
    database: Database,
    preference: Preference,
    seed: int,
    known: Known,
) -> tuple[Latency, Latency]:
    """The model untuned and with the database's schedules, timed taking turns, on random inputs.

    Code in ``known`` is not built again.
    """
    from autotune.runtime.module import Module

    inputs = _random_inputs(parts, seed)
    untuned = Module(_image(parts, target, None, preference, known))
    tuned = Module(_image(parts, target, database, preference, known))
    with untuned, tuned:
        before, after = time_rivals([_sampler(m, inputs) for m in (untuned, tuned)], ROUNDS, LIMIT_S)
    return before, after


def _sampler(module: Module, inputs: Mapping[str, Any]) -> Sample:
    module.time(inputs, warmup=1, repeat=1)

    def sample(repeat: int) -> NDArray[Any]:
        return module.time(inputs, warmup=0, repeat=repeat).astype(np.float64)

    return sample


def _image(
    parts: Partition,
    target: Target,
    database: Database | None,
    preference: Preference,
    known: Known,
) -> ModuleImage:
    """As the compiler makes it, from known code where there is some."""
    decisions = decide_all(distinct_workloads(parts), target, database, preference)
    parts = substitute(parts, chosen(decisions))
    choices = [choose(w, target, database, {}) for w in distinct_workloads(parts)]
    built = {choice.workload.key: _code(choice, target, known) for choice in choices}
    return assemble(parts, built, target, {})[0]


def _code(choice: Choice, target: Target, known: Known) -> BuiltWorkload:
    key = choice.workload.key
    found = known.get((key, choice.trace.key))
    if found is None:
        return build_workloads([choice], target, None)[key]
    return BuiltWorkload(choice, wire.from_json(found.payload))


def _random_inputs(parts: Partition, seed: int) -> dict[str, NDArray[Any]]:
    """Standard normal floats, and zeros for integers, which may be indexes."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for name in parts.inputs:
        found = parts.types[name]
        if is_float(found.dtype):
            arrays[name] = rng.standard_normal(found.shape).astype(found.dtype)
        else:
            arrays[name] = np.zeros(found.shape, found.dtype)
    return arrays


__all__ = ["Known", "subject_of", "time_whole_model", "work_of"]
