"""The driver of the graph passes: the pipeline, one named pass a line, and what happens between.

After every pass the graph is verified, devices among it, the pass is timed, and with ``AUTOTUNE_DUMP=folder`` the text
of the graph is written to ``folder/<graph>/<nn>_<pass>.txt``. The bodies of loops go the same way after their graph.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from autotune import settings
from autotune.errors import GraphError, InternalError, UsageError
from autotune.foreign import file_name
from autotune.graph.devices import check_devices
from autotune.graph.ir import Graph
from autotune.graph.text_file import write_file
from autotune.graph.verify import verify
from autotune.passes.algorithms.block_sums import BlockSums
from autotune.passes.algorithms.sibling_products import SiblingProducts
from autotune.passes.algorithms.split_groups import SplitGroups
from autotune.passes.algorithms.split_phases import SplitPhases
from autotune.passes.algorithms.split_taps import SplitTaps
from autotune.passes.apply_to_parts import ApplyToParts
from autotune.passes.base import GraphPass
from autotune.passes.canonical.attention import Attention
from autotune.passes.canonical.canonical_forms import CanonicalForms
from autotune.passes.canonical.common_subexpressions import CommonSubexpressions
from autotune.passes.canonical.dead_code import DeadCode
from autotune.passes.canonical.dead_taps import DeadTaps
from autotune.passes.canonical.empty_tensors import EmptyTensors
from autotune.passes.canonical.explicit_bias import ExplicitBias
from autotune.passes.canonical.fold_affine import FoldAffine
from autotune.passes.canonical.fold_batch_norm import FoldBatchNorm
from autotune.passes.canonical.fold_constants import FoldConstants
from autotune.passes.canonical.nest_concats import NestConcats
from autotune.passes.canonical.simplify import Simplify
from autotune.passes.canonical.sink_shuffles import SinkShuffles
from autotune.passes.graphs_inside import with_graphs_changed
from autotune.passes.layout.convert_layout import ConvertLayout
from autotune.passes.layout.group_axis import GroupAxis
from autotune.passes.placement.affinity import PlaceOnDevices
from autotune.passes.placement.device_rules import DeviceRules
from autotune.passes.quantized.block_weights import BlockWeights
from autotune.passes.quantized.byte_rows import ByteRows
from autotune.passes.quantized.few_channels import FewChannels
from autotune.passes.quantized.filled_columns import FilledColumns
from autotune.passes.quantized.integer_products import IntegerProducts
from autotune.passes.quantized.quantized_operators import QuantizedOperators
from autotune.passes.quantized.short_values import ShortValues
from autotune.passes.quantized.whole_columns import WholeColumns
from autotune.suggest import listing

NEEDED = frozenset({"empty_tensors", "block_weights", "integer_products", "fold_constants", "dead_code"})
"""Passes without which some operators have no dispatch."""


def standard_passes(
    layout: str = "NHWC", activations: str = "uint8", without: Collection[str] = (), byte_dots: bool = False
) -> tuple[GraphPass, ...]:
    """Return the pipeline from an imported model to the graph that is divided into dispatches.

    ``activations`` is the type that quantised ones are brought to (:attr:`autotune.target.Target.activations`);
    ``without`` names passes that are left out, of :func:`optional_passes`; ``byte_dots`` says whether the target
    has dot products of bytes (:attr:`autotune.target.Target.has_byte_dots`).

    Raises:
        UsageError: ``layout`` is unknown, or a pass that is to be left out is, or it is needed.
    """
    everything = _all_passes(layout, activations, byte_dots)
    if without:
        known = _optional(everything)
        for name in without:
            if name not in known:
                raise UsageError(
                    f"cannot leave out the pass {name!r}\n  one of {listing(name, sorted(known))}"
                )
    return tuple(each for each in everything if each.name not in without)


def optional_passes() -> frozenset[str]:
    """Return the names of the passes that may be left out."""
    return _optional(_all_passes())


def _optional(passes: Sequence[GraphPass]) -> frozenset[str]:
    return frozenset(each.name for each in passes) - NEEDED


def _all_passes(
    layout: str = "NHWC", activations: str = "uint8", byte_dots: bool = False
) -> tuple[GraphPass, ...]:
    return (
        EmptyTensors(),
        BlockWeights(),
        QuantizedOperators(activations),
        IntegerProducts(activations),
        FoldConstants(),
        Simplify(),
        CanonicalForms(),
        DeadTaps(),
        ExplicitBias(),
        FoldBatchNorm(),
        FoldAffine(),
        ConvertLayout(layout),
        BlockSums(),
        FoldConstants(),
        Simplify(),
        SplitTaps(),
        ApplyToParts(),
        SplitPhases(),
        SinkShuffles(),
        GroupAxis(),
        SplitGroups(),
        Attention(),
        SiblingProducts(),
        ByteRows(byte_dots),
        CommonSubexpressions(),
        NestConcats(),
        ShortValues(),
        FewChannels(),
        WholeColumns(),
        FilledColumns(),
        ApplyToParts(),
        DeadCode(),
    )


def placed_passes(
    rules: DeviceRules,
    layout: str = "NHWC",
    activations: str = "uint8",
    without: Collection[str] = (),
    byte_dots: bool = False,
) -> tuple[GraphPass, ...]:
    """Return the pipeline of a model on several devices: what crosses is settled first, so that no pass can."""
    return (PlaceOnDevices(rules), *standard_passes(layout, activations, without, byte_dots))


@dataclass(frozen=True)
class PassRecord:
    """The record of one pass: its text, its time and the number of nodes before and after."""

    name: str
    seconds: float
    nodes_before: int
    nodes_after: int

    def __str__(self) -> str:
        milliseconds = 1e3 * self.seconds
        return f"{self.name:<24}{milliseconds:9.1f} ms  {self.nodes_before} -> {self.nodes_after}"


CONSTANTS = "constants.npz"
"""Of a folder of dumps: the constants of all its texts."""

Observer = Callable[[PassRecord, Graph], None]


def run_passes(graph: Graph, passes: Sequence[GraphPass], observer: Observer | None = None) -> Graph:
    """Apply passes in order; ``observer`` sees each record and the graph after it.

    Raises:
        InternalError: a pass broke the rules of the graph IR; the message names the pass.
    """
    folder = settings.current().dump
    _dump(graph, folder, 0, "input")
    for number, graph_pass in enumerate(passes, start=1):
        before = graph
        start = time.perf_counter()
        graph = graph_pass.apply(graph)
        seconds = time.perf_counter() - start
        if graph is not before:
            _verify_after(graph, graph_pass)
        _dump(graph, folder, number, graph_pass.name)
        if observer is not None:
            observer(PassRecord(str(graph_pass), seconds, len(before.nodes), len(graph.nodes)), graph)
    inner = [each for each in passes if not isinstance(each, PlaceOnDevices)]  # a body is where its loop is
    return with_graphs_changed(graph, lambda body: run_passes(body, inner))


def _verify_after(graph: Graph, graph_pass: GraphPass) -> None:
    try:
        verify(graph)
        check_devices(graph)
    except GraphError as error:
        raise InternalError(f"pass {graph_pass} left a broken graph: {error}") from error


_SIZES: ContextVar[str] = ContextVar("sizes", default="")


@contextmanager
def dumped_for(sizes: Mapping[str, int]) -> Iterator[None]:
    """Give the dumps of a model with dynamic shapes a folder of their own for each of its sizes."""
    token = _SIZES.set(",".join(f"{symbol}={size}" for symbol, size in sizes.items()))
    try:
        yield
    finally:
        _SIZES.reset(token)


def dump_folder(root: str, graph_name: str) -> Path:
    """Return the folder of a graph's dumps, made if it is not there."""
    path = Path(root) / file_name(graph_name)
    if sizes := _SIZES.get():
        path /= file_name(sizes)
    path.mkdir(parents=True, exist_ok=True)
    return path


def _dump(graph: Graph, folder: str, number: int, name: str) -> None:
    if not folder:
        return
    write_file(graph, dump_folder(folder, graph.name) / f"{number:02d}_{name}.txt", CONSTANTS)


__all__ = [
    "NEEDED",
    "Observer",
    "PassRecord",
    "dump_folder",
    "dumped_for",
    "optional_passes",
    "placed_passes",
    "run_passes",
    "standard_passes",
]
