"""A model in parts: imported, simplified by the graph passes, and divided into dispatches."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TypeAlias

from autotune.compiler.dynamic.load import load
from autotune.errors import UsageError
from autotune.foreign import printable
from autotune.frontends.models import ReadModel
from autotune.frontends.onnx.read import ModelSource
from autotune.frontends.sizes import Given
from autotune.graph.devices import is_annotated, without_devices
from autotune.graph.ir import Graph
from autotune.graph.region import Workload
from autotune.passes.origins import with_own_names
from autotune.passes.partition import OF_A_MODEL, Partition, PartitionOptions, partition
from autotune.passes.pipeline import Observer, run_passes, standard_passes
from autotune.target import Target

_LOG = logging.getLogger("autotune.compiler")

Model: TypeAlias = "ModelSource | ReadModel | Graph"


def divide(
    model: Model,
    *,
    layout: str = "NHWC",
    shapes: Given | None = None,
    options: PartitionOptions | None = None,
    observer: Observer | None = None,
    without: Collection[str] = (),
    target: Target | None = None,
) -> Partition:
    """Import a model, run the graph passes and divide it into dispatches, each computed directly.

    Quantised activations and products are brought to what ``target`` has instructions for; without one to what any
    has. ``without`` are the names of passes that are left out. Devices that the model names are left out, and a
    warning says so: models on several are compiled by :mod:`autotune.compiler.devices.segments`.
    """
    graph = on_one_device(imported(model, shapes))
    activations = "uint8" if target is None else target.activations
    byte_dots = target is not None and target.has_byte_dots
    passes = standard_passes(layout, activations, without, byte_dots)
    return partition(run_passes(graph, passes, observer), options or OF_A_MODEL)


def imported(model: Model, shapes: Given | None) -> Graph:
    """Return the graph of a model before any pass; ``shapes`` gives sizes that the model leaves open."""
    if not isinstance(model, Graph):
        return load(model, shapes=shapes)
    if shapes:
        raise UsageError("shapes were given for a graph, which has fixed ones; they are for models")
    return with_own_names(model)


def on_one_device(graph: Graph) -> Graph:
    """Return the graph without the devices that it names, with a warning where it names any."""
    if is_annotated(graph):
        _LOG.warning(
            "%s names devices: they are left out here, it counts as a model of one device",
            printable(graph.name),
        )
    return without_devices(graph)


def distinct_workloads(*parts: Partition) -> list[Workload]:
    """Return the workloads of partitions, each once, in the order of their first dispatch."""
    return list({d.workload.key: d.workload for each in parts for d in each.dispatches}.values())


__all__ = ["Model", "distinct_workloads", "divide", "imported", "on_one_device"]
