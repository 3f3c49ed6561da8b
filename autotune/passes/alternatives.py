"""The ways to compute a dispatch: in one region as it is, or by an algorithm that makes several of it.

Both follow from the workload alone, whatever model it is part of. So an alternative is measured once, and
the decision is stored under the workload's key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from autotune.errors import UsageError
from autotune.graph import evaluate
from autotune.graph.ir import Array, Graph, Node
from autotune.graph.region import Workload
from autotune.passes.attention_blocks import AttentionBlocks
from autotune.passes.base import Algorithm
from autotune.passes.causal_rows import CausalRows
from autotune.passes.implicit_gemm import ImplicitGemm
from autotune.passes.matrix_product import MatrixProduct
from autotune.passes.partition import Partition, partition
from autotune.passes.preference import Preference
from autotune.passes.separate_attention import SeparateAttention
from autotune.passes.views import is_dense
from autotune.passes.winograd import Winograd
from autotune.suggest import listing

ALGORITHMS: tuple[Algorithm, ...] = (
    Winograd(2),
    Winograd(4),
    Winograd(6),
    MatrixProduct(),
    ImplicitGemm(),
    AttentionBlocks(),
    CausalRows(),
    SeparateAttention(),
)
"""What is tried on every workload; those that cannot compute it drop out."""

DIRECT = "direct"
"""The alternative that every workload has: one dispatch, as exact as a sum is."""


@dataclass(frozen=True, eq=False)
class Alternative:
    """One way to compute ``workload``; ``error`` is the declared bound, 0 for the direct one.

    ``steps`` divides the workload's graph into dispatches (None: the workload is one); ``prologue``
    computes constants of these dispatches from constant inputs of the workload, at compile time.
    ``speculative`` ones are estimated for tuning only. ``growth`` is what :attr:`Algorithm.growth` says.
    """

    workload: Workload
    name: str = DIRECT
    error: float = 0.0
    steps: Partition | None = None
    prologue: Graph | None = None
    speculative: bool = False
    growth: float = 1.0

    @property
    def regions(self) -> tuple[Workload, ...]:
        """The workload of each dispatch, in order."""
        if self.steps is None:
            return (self.workload,)
        return tuple(dispatch.workload for dispatch in self.steps.dispatches)

    def constants(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The constants of the steps by name, from the workload's constant inputs by name."""
        if self.steps is None or self.prologue is None:
            return {}
        made = evaluate.run(self.prologue, {v: inputs[v] for v in self.prologue.inputs})
        return {v: made.get(v, array) for v, array in self.steps.constants.items()}


def allowed(workload: Workload, preference: Preference) -> tuple[Alternative, ...]:
    """The alternatives that may be used, the direct one first. Raises UsageError for an unknown algorithm."""
    names = (DIRECT, *(algorithm.label for algorithm in ALGORITHMS))
    if preference.algorithm not in (None, *names):
        known = listing(str(preference.algorithm), names)
        raise UsageError(f"unknown algorithm {preference.algorithm!r}\n  one of {known}")
    found = [a for a in alternatives_of(workload) if a.error <= preference.tolerance]
    named = [a for a in found if a.name == preference.algorithm]
    return tuple(named or (found[:1] if preference.algorithm else found))


@lru_cache(maxsize=4096)
def alternatives_of(workload: Workload) -> tuple[Alternative, ...]:
    """All ways to compute a workload, the direct one first."""
    graph = _opened(workload)
    found = [Alternative(workload)]
    for algorithm in ALGORITHMS:
        changed = algorithm.apply(graph)
        if changed is not graph:
            steps, prologue = _divided(changed, graph)
            if _placeable(steps, workload):
                found.append(
                    Alternative(
                        workload,
                        algorithm.label,
                        algorithm.error,
                        steps,
                        prologue,
                        algorithm.speculative,
                        algorithm.growth,
                    )
                )
    return tuple(found)


def _opened(workload: Workload) -> Graph:
    """The region with constants for its constant inputs; their elements do not matter, and take no room."""
    region = workload.region
    constants = {v: _stand_in(region.graph, v) for v in sorted(region.constant_inputs)}
    inputs = tuple(v for v in region.graph.inputs if v not in constants)
    return region.graph.replace(inputs=inputs, constants=constants)


def _stand_in(graph: Graph, value: str) -> Array:
    found = graph.type_of(value)
    return np.broadcast_to(np.zeros((), found.dtype), found.shape)


def _divided(graph: Graph, region: Graph) -> tuple[Partition, Graph]:
    """The dispatches of a rewritten region, and what is computed of its constants before."""
    folded, rest = _folded(graph)
    made = {v for node in folded for v in node.present_outputs}
    read = [v for node in rest for v in node.present_inputs if v in made]
    results = tuple(dict.fromkeys(read))
    boundary = (*region.inputs, *region.outputs)
    body = graph.replace(
        nodes=rest,
        types={**graph.types, **{v: region.type_of(v) for v in boundary}},
        constants={**graph.constants, **{v: _stand_in(graph, v) for v in results}},
    ).pruned()
    given = {v for node in folded for v in node.present_inputs} & set(region.constants)
    prologue = Graph(
        graph.name,
        tuple(v for v in region.constants if v in given),
        results,
        folded,
        graph.types,
        {v: array for v, array in graph.constants.items() if v not in region.constants},
    ).pruned()
    return partition(body), prologue


def _folded(graph: Graph) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """The nodes that read constants only, and the others."""
    known = set(graph.constants)
    folded, rest = list[Node](), list[Node]()
    for node in graph.nodes:
        if known.issuperset(node.present_inputs):
            folded.append(node)
            known.update(node.present_outputs)
        else:
            rest.append(node)
    return tuple(folded), tuple(rest)


def _placeable(steps: Partition, workload: Workload) -> bool:
    """Whether every argument that has strides of its own stays where it is."""
    graph = workload.region.graph
    strided = {v for v in (*graph.inputs, *graph.outputs) if not _is_plain(graph, v)}
    return all(steps.placements[v].root == v for v in strided & steps.placements.keys())


def _is_plain(graph: Graph, value: str) -> bool:
    found = graph.type_of(value)
    return found.strides is None or is_dense(found.shape, found.strides)


__all__ = [
    "ALGORITHMS",
    "DIRECT",
    "Alternative",
    "allowed",
    "alternatives_of",
]
