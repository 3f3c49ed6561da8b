"""What a model gives a tuning job: its workloads, and the whole of it to time before and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.compiler import distinct_workloads
from autotune.compiler.assemble import BuiltWorkload, assemble
from autotune.compiler.choice import Choice, choose
from autotune.compiler.driver import build_workloads
from autotune.database import Database
from autotune.database.records import Latency
from autotune.target import Target
from autotune.tuning.job import Subject
from autotune.tuning.measure import wire
from autotune.tuning.measure.interface import Built
from autotune.tuning.measure.timing import Sample, time_rivals

if TYPE_CHECKING:
    from autotune.graph.region import Workload
    from autotune.passes.partition import Partition
    from autotune.runtime.image import ModuleImage
    from autotune.runtime.module import Module

ROUNDS = 30
LIMIT_S = 10.0

Known = Mapping[tuple[str, str], Built]
"""Built code by workload key and trace key."""


def subjects_of(parts: Partition, target: Target) -> list[Subject]:
    """The distinct workloads of a model, each with the dispatches that have it."""
    names: dict[str, list[str]] = {}
    for dispatch in parts.dispatches:
        names.setdefault(dispatch.workload.key, []).append(dispatch.name)
    return [subject_of(w, target, tuple(names[w.key])) for w in distinct_workloads(parts)]


def subject_of(workload: Workload, target: Target, names: tuple[str, ...]) -> Subject:
    """One workload with its space and its default schedule."""
    from cost_models import analytic
    from search_spaces.spaces import space_for

    space = space_for(workload, target)
    return Subject(names, workload, space, analytic.default_config(space))


def time_whole_model(
    parts: Partition, target: Target, database: Database, seed: int, known: Known
) -> tuple[Latency, Latency]:
    """The model untuned and with the database's schedules, timed taking turns, on random inputs.

    Code in ``known`` is not built again.
    """
    from autotune.runtime.module import Module

    inputs = _random_inputs(parts, seed)
    untuned = Module(_image(parts, target, None, known))
    tuned = Module(_image(parts, target, database, known))
    with untuned, tuned:
        before, after = time_rivals([_sampler(m, inputs) for m in (untuned, tuned)], ROUNDS, LIMIT_S)
    return before, after


def _sampler(module: Module, inputs: Mapping[str, Any]) -> Sample:
    module.time(inputs, warmup=1, repeat=1)

    def sample(repeat: int) -> NDArray[Any]:
        return module.time(inputs, warmup=0, repeat=repeat).astype(np.float64)

    return sample


def _image(parts: Partition, target: Target, database: Database | None, known: Known) -> ModuleImage:
    """As the compiler makes it, from known code where there is some."""
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
        if found.dtype.startswith("float"):
            arrays[name] = rng.standard_normal(found.shape).astype(found.dtype)
        else:
            arrays[name] = np.zeros(found.shape, found.dtype)
    return arrays


__all__ = ["Known", "subject_of", "subjects_of", "time_whole_model"]
