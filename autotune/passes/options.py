"""The options of a workload: in one dispatch as it is, or by a rule that makes several of it.

They follow from the workload alone, whatever model it is part of. So an option is measured once, and what was
found is stored under the workload's key.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from autotune.errors import UsageError
from autotune.extensions import RULES as EXTENSIONS
from autotune.extensions import extensions
from autotune.graph import evaluate
from autotune.graph.ir import Array, Graph, Node
from autotune.graph.ops.common import STORED
from autotune.graph.region import Workload
from autotune.passes.algorithms.attention_blocks import AttentionBlocks
from autotune.passes.algorithms.causal_rows import CausalRows
from autotune.passes.algorithms.columns_apart import ColumnsApart
from autotune.passes.algorithms.implicit_gemm import ImplicitGemm
from autotune.passes.algorithms.library_kernel import library_kernels
from autotune.passes.algorithms.matrix_product import MatrixProduct
from autotune.passes.algorithms.row_sums import RowSums
from autotune.passes.algorithms.separable_pool import SeparablePool
from autotune.passes.algorithms.separate_attention import SeparateAttention
from autotune.passes.algorithms.split_sums import SplitSums
from autotune.passes.algorithms.strassen import Strassen
from autotune.passes.algorithms.winograd import Winograd
from autotune.passes.base import PROMISING, Algorithm
from autotune.passes.fusion.apart import Apart
from autotune.passes.fusion.chains import LONGEST
from autotune.passes.fusion.producers_apart import ProducersApart
from autotune.passes.layout.stored_weights import StoredWeights
from autotune.passes.layout.views import is_dense
from autotune.passes.partition import Dispatch, Partition, partition
from autotune.passes.preference import Preference
from autotune.suggest import listing
from autotune.target import Target

APART = Apart()
RULES: tuple[Algorithm, ...] = (
    APART,
    *(Apart((number,)) for number in range(1, LONGEST)),
    *(Winograd(tile, fused) for fused in (False, True) for tile in (2, 4, 6)),
    *(Winograd(tile, axes=1) for tile in (2, 4, 6)),
    *(Winograd(tile, taps=5, axes=axes) for axes in (1, 2) for tile in (2, 4)),
    *(Winograd(tile, taps=taps, stride=2) for tile, taps in ((5, 3), (7, 3), (4, 5), (5, 7))),
    *(Strassen(few) for few in (False, True)),
    RowSums(),
    SplitSums(),
    SeparablePool(),
    *(MatrixProduct(short) for short in (True, False)),
    ImplicitGemm(),
    *(MatrixProduct(short, "ShortConv") for short in (True, False)),
    ImplicitGemm("ShortConv"),
    AttentionBlocks(),
    CausalRows(),
    SeparateAttention(),
    ProducersApart(),
    ColumnsApart(),
    *(StoredWeights(dtype) for dtype in STORED),
    *(StoredWeights("float16", Winograd(tile)) for tile in (2, 4, 6)),
)
"""The rules that are tried on every workload; those that cannot compute it drop out."""


def rules() -> tuple[Algorithm, ...]:
    """Return the rules that there are in this process: ours, those of installed packages, and one for each library
    kernel of an operator."""
    return (*RULES, *extensions(EXTENSIONS), *library_kernels())


DIRECT = "direct"
"""The option of every workload with one anchor at most: one dispatch, as exact as a sum is."""

TOGETHER = "together"
"""The same of a chain of anchors."""

_OF_ANCHOR = " of anchor "
"""Between the label of a rule and the number of the only anchor that it was applied to."""


@dataclass(frozen=True, eq=False)
class Option:
    """One way to compute ``workload``; ``error`` is the declared bound, 0 for the direct one.

    ``steps`` divides the workload's graph into dispatches (None: the workload is one); ``prologue``
    computes constants of these dispatches from constant inputs of the workload, at compile time.
    ``growth``, ``promising``, ``speculative`` and ``feature`` are what :class:`Algorithm` says of them.
    """

    workload: Workload
    name: str = DIRECT
    error: float = 0.0
    growth: float = 1.0
    promising: float = PROMISING
    steps: Partition | None = None
    prologue: Graph | None = None
    speculative: bool = False
    feature: str = ""

    def suits(self, target: Target) -> bool:
        """Return whether the target has the instructions that make it worth a try."""
        return not self.feature or target.arch != "x86_64" or self.feature in target.features

    @property
    def plain(self) -> bool:
        """Return whether this is the one that others must clearly beat: a dispatch for each anchor, as
        exact as a sum is."""
        return self.name in (DIRECT, APART.label)

    @property
    def regions(self) -> tuple[Workload, ...]:
        """The workload of each dispatch, in order."""
        if self.steps is None:
            return (self.workload,)
        return tuple(dispatch.workload for dispatch in self.steps.dispatches)

    def constants(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the constants of the steps by name, from the workload's constant inputs by name."""
        if self.steps is None or self.prologue is None:
            return {}
        made = evaluate.run(self.prologue, {v: inputs[v] for v in self.prologue.inputs})
        return {v: made.get(v, array) for v, array in self.steps.constants.items()}


def allowed(
    workload: Workload,
    preference: Preference,
    *,
    speculative: bool = False,
    names: Collection[str] | None = None,
) -> list[Option]:
    """Return the options that may be used, the plain one first; speculative ones if they are asked for, or named.

    ``names``: only these are of interest, unless the preference names one; others may be left out. Raises UsageError
    for an unknown algorithm.
    """
    wanted = preference.algorithm
    known = tuple(dict.fromkeys((DIRECT, TOGETHER, *(rule.label for rule in rules()))))
    if wanted is not None and wanted not in known:
        raise UsageError(f"unknown algorithm {wanted!r}\n  one of {listing(wanted, known)}")
    several = speculative or wanted is not None
    names = names if wanted is None else None
    exact = options_of(
        workload, speculative=several, tolerance=preference.tolerance_of(workload.key), names=names
    )
    if preference.finite:
        exact = tuple(option for option in exact if option.growth <= 1)
    named = [option for option in exact if option.name == wanted]
    return list(named or (exact if wanted is None else exact[:1]))


def options_of(
    workload: Workload,
    *,
    speculative: bool = True,
    tolerance: float = math.inf,
    names: Collection[str] | None = None,
) -> tuple[Option, ...]:
    """Return all ways to compute a workload so exactly, the plain one first and speculative ones last, if at all.

    With ``names`` only the rules are tried that make these.
    """
    labels = None if names is None else {name.partition(_OF_ANCHOR)[0] for name in names}
    whole = _whole(workload)
    found, known = [whole], {whole.regions}
    for late in (False, True) if speculative else (False,):
        for rule in rules():
            if rule.speculative != late or rule.error > tolerance:
                continue
            if labels is not None and rule.label not in labels:
                continue
            for option in _options(workload, rule):
                if option.regions not in known:
                    found.append(option)
                    known.add(option.regions)
    return tuple(sorted(found, key=lambda option: not option.plain))


@lru_cache(maxsize=4096)
def _whole(workload: Workload) -> Option:
    """Return the workload as one dispatch."""
    return Option(workload, TOGETHER if len(workload.region.anchors) > 1 else DIRECT)


@lru_cache(maxsize=1 << 16)
def _options(workload: Workload, rule: Algorithm) -> tuple[Option, ...]:
    """Return the options that a rule offers for a workload."""
    graph, found = _opened(workload), list[Option]()
    for label, changed in _changed(rule, graph):
        body, prologue = _folded(changed, graph)
        steps = rule.divide(body)
        if _placeable(steps, workload):
            figures = rule.error, rule.growth, rule.promising
            found.append(Option(workload, label, *figures, steps, prologue, rule.speculative, rule.feature))
    return tuple(found)


def _changed(rule: Algorithm, graph: Graph) -> Iterator[tuple[str, Graph]]:
    """Yield the graphs that a rule makes, by label; of a chain also at one anchor alone, where it applies
    to several."""
    changed = rule.apply(graph)
    if changed is graph:
        return
    yield rule.label, changed
    parts = [_part(graph, dispatch) for dispatch in partition(graph).dispatches]
    alone = [rule.apply(part) for part in parts]
    if sum(new is not old for new, old in zip(alone, parts, strict=True)) < 2:
        return
    for number, (new, old) in enumerate(zip(alone, parts, strict=True)):
        if new is not old:
            nodes = [node for part in (*parts[:number], new, *parts[number + 1 :]) for node in part.nodes]
            whole = graph.replace(
                nodes=tuple(nodes),
                types={**graph.types, **new.types},
                constants={**graph.constants, **new.constants},
            )
            yield f"{rule.label}{_OF_ANCHOR}{number + 1}", whole


def _part(graph: Graph, dispatch: Dispatch) -> Graph:
    """Return the part of a graph that one dispatch computes, under the names of the graph."""
    return graph.replace(
        inputs=tuple(v for v in dispatch.inputs if v not in graph.constants),
        outputs=dispatch.outputs,
        nodes=dispatch.region.graph.nodes,
        constants={v: graph.constants[v] for v in dispatch.inputs if v in graph.constants},
    )


@lru_cache(maxsize=64)
def _opened(workload: Workload) -> Graph:
    """Return the region with constants for its constant inputs; their elements do not matter, and take no room."""
    region = workload.region
    constants = {v: _stand_in(region.graph, v) for v in sorted(region.constant_inputs)}
    inputs = tuple(v for v in region.graph.inputs if v not in constants)
    return region.graph.replace(inputs=inputs, constants=constants)


def _stand_in(graph: Graph, value: str) -> Array:
    found = graph.type_of(value)
    return np.broadcast_to(np.zeros((), found.dtype), found.shape)


def _folded(graph: Graph, region: Graph) -> tuple[Graph, Graph]:
    """Return the rest of a rewritten region, and the part that computes its constants before."""
    folded, rest = _of_constants(graph)
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
    return body, prologue


def _of_constants(graph: Graph) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """Return the nodes that read constants only, and the others."""
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
    """Return whether every argument that has strides of its own stays where it is."""
    graph = workload.region.graph
    strided = {v for v in (*graph.inputs, *graph.outputs) if not _is_plain(graph, v)}
    return all(steps.placements[v].root == v for v in strided & steps.placements.keys())


def _is_plain(graph: Graph, value: str) -> bool:
    found = graph.type_of(value)
    return found.strides is None or is_dense(found.shape, found.strides)


__all__ = ["DIRECT", "RULES", "TOGETHER", "Option", "allowed", "options_of"]
