"""What a model gives a tuning job: its workloads, and the whole of it to time before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.compiler import compile_in_detail
from autotune.database import Database
from autotune.database.records import Latency
from autotune.target import Target
from autotune.tuning.job import Subject
from autotune.tuning.measure.timing import Sample, time_rivals

if TYPE_CHECKING:
    from autotune.graph.ir import Graph
    from autotune.graph.region import Workload
    from autotune.passes.partition import Partition

ROUNDS = 30


def subjects_of(parts: Partition, target: Target) -> list[Subject]:
    """The distinct workloads of a model, each with the dispatches that have it."""
    names: dict[str, list[str]] = {}
    workloads: dict[str, Workload] = {}
    for dispatch in parts.dispatches:
        workloads.setdefault(dispatch.workload.key, dispatch.workload)
        names.setdefault(dispatch.workload.key, []).append(dispatch.name)
    return [subject_of(workloads[key], target, tuple(names[key])) for key in workloads]


def subject_of(workload: Workload, target: Target, names: tuple[str, ...]) -> Subject:
    """One workload with its space and its default schedule."""
    from cost_models import analytic
    from search_spaces.spaces import space_for

    space = space_for(workload, target)
    return Subject(names, workload, space, analytic.default_config(space))


def time_whole_model(graph: Graph, target: Target, database: Database, seed: int) -> tuple[Latency, Latency]:
    """The model untuned and with the database's schedules, timed taking turns, on random inputs."""
    from autotune.runtime.module import Module

    inputs = random_inputs(graph, seed)
    untuned = Module(compile_in_detail(graph, target=target).image)
    tuned = Module(compile_in_detail(graph, target=target, database=database).image)
    with untuned, tuned:
        samples: list[Sample] = []
        for module in (untuned, tuned):
            module.time(inputs, repeat=1)

            def sample(repeat: int, module: Module = module) -> NDArray[Any]:
                return module.time(inputs, warmup=0, repeat=repeat).astype(np.float64)

            samples.append(sample)
        before, after = time_rivals(samples, ROUNDS)
    return before, after


def random_inputs(graph: Graph, seed: int) -> dict[str, NDArray[Any]]:
    """Standard normal floats, and zeros for integers, which may be indexes."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for name in graph.inputs:
        found = graph.type_of(name)
        if found.dtype.startswith("float"):
            arrays[name] = rng.standard_normal(found.shape).astype(found.dtype)
        else:
            arrays[name] = np.zeros(found.shape, found.dtype)
    return arrays


__all__ = ["random_inputs", "subject_of", "subjects_of", "time_whole_model"]
