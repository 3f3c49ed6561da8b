"""What each part of the graph compiler is worth: dispatches, bytes, memory and time of models with it switched off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autotune.bench.suites import models
from autotune.bench.tables import Table, duration, geometric_mean, ratio
from autotune.compiler import Compilation, compile_in_detail, divide
from autotune.compiler.request import CompileRequest
from autotune.database.records import Ratio
from autotune.graph.ir import Graph
from autotune.passes.fusion.fuse import FusionOptions
from autotune.passes.partition import OF_A_MODEL, Partition, PartitionOptions
from autotune.passes.pipeline import optional_passes
from autotune.runtime.image import ModuleImage
from autotune.target import Target
from autotune.tuning.paired import Readings, across_processes
from autotune.tuning.turns import Rounds, Turns

CANONICAL = frozenset({"attention", "canonical_forms"})
"""Passes that recognise an operation where a model writes it out."""

_ROUNDS = Rounds(most=5, least=5, processes=1, every=2)
"""Of each process: their median passes over what disturbs single ones."""


@dataclass(frozen=True)
class Switch:
    """A part of the compiler that is off: how a model is compiled without it."""

    name: str
    about: str
    layout: str = "NHWC"
    options: PartitionOptions = OF_A_MODEL
    passes: frozenset[str] = frozenset()


SWITCHES = (
    Switch(
        "fusion",
        "every operation is a dispatch",
        options=PartitionOptions(FusionOptions(epilogues=False, producers="none")),
    ),
    Switch(
        "simplification",
        "without the passes that rewrite graphs but the next two",
        passes=optional_passes() - CANONICAL - {"convert_layout"},
    ),
    Switch(
        "canonical forms",
        f"without the passes {' and '.join(sorted(CANONICAL))}",
        passes=CANONICAL,
    ),
    Switch("layout", "convolutions keep the order of axes that the model has", layout="NCHW"),
    Switch(
        "views",
        "joins, slices and transposes are copies",
        options=replace(OF_A_MODEL, views=False, in_place_concat=False),
    ),
    Switch(
        "results in place",
        "no result takes the memory of an operand",
        options=replace(OF_A_MODEL, overwriting=False),
    ),
)


@dataclass(frozen=True)
class Work:
    """What a run of a model has to do: its dispatches, the bytes of their operands and results, and the arena.

    ``regions`` and ``region_bytes`` are the same of the divided graph, before algorithms of several dispatches are
    chosen.
    """

    regions: int
    region_bytes: int
    dispatches: int
    bytes_moved: int
    arena_bytes: int

    @staticmethod
    def of(divided: Partition, compiled: Compilation) -> Work:
        """That of a compiled model; an operand counts once in each dispatch that reads it, weights as well."""
        counts = [
            (len(parts.dispatches), sum(dispatch.workload.bytes for dispatch in parts.dispatches))
            for parts in (divided, compiled.partition)
        ]
        return Work(*counts[0], *counts[1], compiled.image.arena_bytes)


@dataclass(frozen=True)
class Without:
    """A model with one part of the compiler off. ``ratio`` is its latency over that with everything on.

    It is None where timing failed; ``same`` says that the part changes nothing of this model.
    """

    switch: str
    work: Work
    ratio: Ratio | None = None
    same: bool = False


@dataclass(frozen=True)
class Ablation:
    """A model with everything on, and without each part; ``latency_ns`` is None where it was never timed."""

    model: str
    work: Work
    latency_ns: float | None
    without: tuple[Without, ...]


def measure(
    names: Sequence[str], switches: Sequence[Switch], threads: int, processes: int, say: Callable[[str], None]
) -> list[Ablation]:
    """Each model without each part beside the whole, in turns, in fresh processes; raises what compiling does."""
    return [
        _model(case.name, case.build().graph, switches, threads, processes, say)
        for case in models.models(names)
    ]


def _model(
    name: str,
    graph: Graph,
    switches: Sequence[Switch],
    threads: int,
    processes: int,
    say: Callable[[str], None],
) -> Ablation:
    whole = compile_in_detail(CompileRequest(graph, threads=threads))
    target, divided = whole.image.target, _divided(graph, Switch("", ""), whole.image.target)
    work, images, found = Work.of(divided, whole), [whole.image], list[Without]()
    for switch in switches:
        parts = _divided(graph, switch, target)
        if _text(parts) == _text(divided) and (parts.overwriting or not whole.memory_plan.taken):
            found.append(Without(switch.name, work, same=True))
            continue
        say(f"{name} without {switch.name}")
        other = compile_in_detail(
            CompileRequest(
                graph, threads=threads, layout=switch.layout, partition=switch.options, without=switch.passes
            )
        )
        if other.image.same_code(whole.image):
            found.append(Without(switch.name, work, same=True))
            continue
        images.append(other.image)
        found.append(Without(switch.name, Work.of(parts, other)))
    say(f"{name}: {len(images)} versions in {processes} processes")
    latency_ns, ratios = _timed(images, processes)
    rest = iter(ratios)
    return Ablation(
        name,
        work,
        latency_ns,
        tuple(each if each.same else replace(each, ratio=next(rest)) for each in found),
    )


def _timed(images: Sequence[ModuleImage], processes: int) -> tuple[float | None, list[Ratio | None]]:
    """The first version's median latency in ns, and the ratios of the others to it; all take turns in each process."""
    read = list[Sequence[Readings | None]]()
    with Turns(0) as turns:
        turns.start(processes)
        for image in images:
            turns.add(image)
        for _ in range(processes):
            read.append(turns.time(_ROUNDS, lambda: False))
    pairs = [
        [(each[0], each[number]) for each in read if each[0] is not None and each[number] is not None]
        for number in range(len(images))
    ]
    ratios = [across_processes(each) if each else None for each in pairs]  # type: ignore[arg-type]
    first = [np.median(before) for before, _ in pairs[0] if before is not None]
    return float(np.median(first)) if first else None, ratios[1:]


def _divided(graph: Graph, switch: Switch, target: Target) -> Partition:
    return divide(
        graph,
        layout=switch.layout,
        activations=target.activations,
        options=switch.options,
        without=switch.passes,
    )


def _text(parts: Partition) -> list[Any]:
    """What two divisions of a model that are the same have in common."""
    return [
        parts.outputs,
        *((d.workload.key, d.inputs, d.outputs, *map(parts.reach, d.inputs)) for d in parts.dispatches),
    ]


def tables(found: Sequence[Ablation], switches: Sequence[Switch], threads: str) -> list[Table]:
    """The means of each part, and a row for each model with everything on and without each part."""
    return [_summary(found, switches, threads), _models(found, threads)]


_COUNTS = ("regions", "bytes of regions", "dispatches", "bytes of dispatches", "arena")
_FIELDS = ("regions", "region_bytes", "dispatches", "bytes_moved", "arena_bytes")


def _summary(found: Sequence[Ablation], switches: Sequence[Switch], threads: str) -> Table:
    rows = []
    for switch in switches:
        pairs = [
            (model.work, each) for model in found for each in model.without if each.switch == switch.name
        ]
        changed = [(whole, each) for whole, each in pairs if not each.same]
        means = [
            geometric_mean(getattr(each.work, name) / max(1, getattr(whole, name)) for whole, each in pairs)
            for name in _FIELDS
        ]
        taken = [1.0 if each.same else None if each.ratio is None else each.ratio.median for _, each in pairs]
        rows.append(
            (
                switch.name,
                f"{len(changed)} of {len(pairs)}",
                *map(ratio, means),
                ratio(geometric_mean(taken)),
                switch.about,
            )
        )
    return Table(
        f"Off over on, {threads}",
        ("without", "models changed", *_COUNTS, "latency", "what that is"),
        tuple(rows),
        ("geometric means over all models: those that a part does not change count as 1.00",),
    )


def _models(found: Sequence[Ablation], threads: str) -> Table:
    rows = []
    for model in found:
        rows.append(
            (model.model, "–", *_columns(model.work, model.work), duration(model.latency_ns), "1.00", "–")
        )
        for each in model.without:
            if not each.same:
                rows.append((model.model, each.switch, *_columns(each.work, model.work), "", *_taken(each)))
    return Table(
        f"Models, {threads}",
        (
            "model",
            "without",
            *(column for name in _COUNTS for column in (name, "off/on")),
            "latency",
            "off/on",
            "95 %",
        ),
        tuple(rows),
        (
            "regions: what the graph is divided into; an algorithm of several steps, such as Winograd's, makes several "
            "dispatches of one. Bytes: operands (weights too) and results of all, MB",
            "latencies: medians of processes, and the interval of their ratios; above 1 the part is worth something",
            "a part that changes nothing of a model has no row",
        ),
    )


def _columns(work: Work, whole: Work) -> Iterator[str]:
    """Each count, and over that of the whole."""
    for name in _FIELDS:
        mine, its = getattr(work, name), getattr(whole, name)
        yield f"{mine / 1e6:.2f}" if "bytes" in name else str(mine)
        yield ratio(mine / max(1, its))


def _taken(each: Without) -> tuple[str, str]:
    if each.ratio is None:
        return "failed", "–"
    interval = each.ratio.interval
    return ratio(each.ratio.median), "–" if interval is None else " to ".join(map(ratio, interval))


__all__ = ["CANONICAL", "SWITCHES", "Ablation", "Switch", "Without", "Work", "measure", "tables"]
