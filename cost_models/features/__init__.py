"""Features of candidates for the learned models: arithmetic over loop nests, whole populations at once.

All features are dimensionless or logarithms, and mean the same for every family of spaces, so that a model
trained on some workloads ranks the candidates of others. A workload is described by what it computes, not by the
name of its family: a new family leaves the features, and the models that read them, as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autotune.schedule.knob import Config
from cost_models.features import buffers, execution, memory, sharing, workload
from cost_models.machine import Machine
from cost_models.terms import terms
from search_spaces.population import Population

if TYPE_CHECKING:
    from search_spaces.space import Space

Matrix = NDArray[np.float32]


def extract(space: Space, configs: Sequence[Config] | Population) -> Matrix:
    """Return features float32 [n, len(names())] of candidates of one space; finite and deterministic."""
    population = configs if isinstance(configs, Population) else space.of(configs)
    machine = Machine.of(space.target)
    matrix = np.empty((len(population), len(names())), dtype=np.float32)
    matrix[:, : len(workload.NAMES)] = workload.described(space.workload)
    for rows, nest in space.loop_nests(population):
        t = terms(nest, machine)
        found = {
            **sharing.sharing(nest, machine, t),
            **execution.execution(nest, machine, t),
            **memory.memory(nest, machine, t),
            **buffers.buffers(nest, machine),
        }
        for position, name in enumerate(_CANDIDATE, start=len(workload.NAMES)):
            matrix[rows, position] = found[name]
    return matrix


_CANDIDATE = (*sharing.NAMES, *execution.NAMES, *memory.NAMES, *buffers.NAMES)


@cache
def names() -> tuple[str, ...]:
    """Return the names of the features, in order."""
    return (*workload.NAMES, *_CANDIDATE)


@cache
def schema() -> str:
    """Return SHA-256 (hex) of the names: a stored model only reads features of its own schema."""
    return hashlib.sha256("\n".join(names()).encode()).hexdigest()


__all__ = ["Matrix", "extract", "names", "schema"]
