"""The worth of each part of the graph compiler: dispatches, bytes, memory and time of models with it switched off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import click
import numpy as np

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView
from autotune.bench.suites import models
from autotune.bench.tables import duration, geometric_mean, number, plain, ratio
from autotune.compiler import Compilation, compile_in_detail, divide
from autotune.compiler.request import CompileRequest
from autotune.database.records import SAME_CODE, Ratio
from autotune.errors import UsageError
from autotune.graph.ir import Graph
from autotune.passes.fusion.fuse import FusionOptions
from autotune.passes.partition import OF_A_MODEL, Partition, PartitionOptions
from autotune.passes.pipeline import optional_passes
from autotune.runtime.image import ModuleImage
from autotune.suggest import listing
from autotune.target import Target
from autotune.tuning.compare.paired import Readings, across_processes
from autotune.tuning.measure.turns import Rounds, Turns
from results.bench.texts import interval

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
    """The work of a run of a model: its dispatches, the bytes of their operands and results, and the arena.

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


def measure(
    say: Say, names: Sequence[str], only: Sequence[str], threads: int, processes: int
) -> Iterator[Sequence[Record]]:
    """Measure each model without each part and whole, interleaved in fresh processes; raises what compiling does."""
    known = [switch.name for switch in SWITCHES]
    for name in only:
        if name not in known:
            raise UsageError(
                f"--without {name!r} is no part that can be switched off\n  one of {listing(name, known)}"
            )
    switches = [switch for switch in SWITCHES if not only or switch.name in only]
    for case in models.models(names or models.DEFAULT):
        found = _model(case.name, case.build().graph, switches, threads, processes, say)
        yield [{"model": case.name, "threads": threads, **record} for record in found]


def _model(
    name: str, graph: Graph, switches: Sequence[Switch], threads: int, processes: int, say: Say
) -> list[Record]:
    """Return the record of the whole model, then one for each part: ``ratio`` is its latency over that of the whole.

    It is None where timing failed; ``same`` says that the part changes nothing of this model.
    """
    whole = compile_in_detail(CompileRequest(graph, threads=threads))
    target, divided = whole.image.target, _divided(graph, Switch("", ""), whole.image.target)
    work, images = Work.of(divided, whole), [whole.image]
    found: list[tuple[Switch, Work, bool]] = []
    for switch in switches:
        parts = _divided(graph, switch, target)
        if _text(parts) == _text(divided) and (parts.overwriting or not whole.memory_plan.taken):
            found.append((switch, work, True))
            continue
        say(f"{name} without {switch.name}")
        other = compile_in_detail(
            CompileRequest(
                graph, threads=threads, layout=switch.layout, partition=switch.options, without=switch.passes
            )
        )
        if other.image.same_code(whole.image):
            found.append((switch, work, True))
            continue
        images.append(other.image)
        found.append((switch, Work.of(parts, other), False))
    say(f"{name}: {len(images)} versions in {processes} processes")
    latency_ns, ratios = _timed(images, processes)
    rest = iter(ratios)
    records: list[Record] = [{**_counts(work, work), "latency_ns": latency_ns, "off_over_on": 1.0}]
    for switch, its, same in found:
        taken = SAME_CODE if same else next(rest)
        records.append(
            {
                "switch": switch.name,
                "about": switch.about,
                "same": same,
                **_counts(its, work),
                "off_over_on": taken and taken.median,
                "interval": taken and taken.interval,
            }
        )
    return records


def _counts(work: Work, whole: Work) -> Record:
    """Return each count, and over that of the whole model."""
    mine, its = asdict(work), asdict(whole)
    return mine | {f"{name}_over_whole": mine[name] / max(1, its[name]) for name in mine}


def _timed(images: Sequence[ModuleImage], processes: int) -> tuple[float | None, list[Ratio | None]]:
    """The first version's median latency in ns, and the ratios of the others to it, interleaved in each process."""
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
        target=target,
        options=switch.options,
        without=switch.passes,
    )


def _text(parts: Partition) -> list[Any]:
    """Return a text that is the same for two divisions of a model that are the same."""
    return [
        parts.outputs,
        *((d.workload.key, d.inputs, d.outputs, *map(parts.reach, d.inputs)) for d in parts.dispatches),
    ]


ABOUT = (
    "What each part of the graph compiler is worth: untuned models with everything on beside the same with one part "
    "switched off, their dispatches, the bytes that these move, memory between them, and latency. Both versions of a "
    "model are interleaved in fresh processes."
)

_COUNTS = {
    "regions": "regions",
    "region_bytes": "bytes of regions",
    "dispatches": "dispatches",
    "bytes_moved": "bytes of dispatches",
    "arena_bytes": "arena",
}


def _changed(rows: FrameRows) -> str:
    return f"{sum(not row['same'] for row in rows)} of {len(rows)}"


def _mean(column: str) -> Callable[[FrameRows], float | None]:
    return lambda rows: geometric_mean(rows.all(column))


def _count(name: str) -> tuple[Column, Column]:
    text = number(2, scale=1e6) if "bytes" in name else plain
    return Column(_COUNTS[name], name, text), Column("off/on", f"{name}_over_whole", ratio)


def _taken(rows: FrameRows) -> str:
    return ratio(rows.get("off_over_on")) if rows.get("off_over_on") is not None else "failed"


EXPERIMENT = Experiment(
    title="Parts of the graph compiler switched off",
    about=ABOUT,
    summary="Measure models with parts of the graph compiler switched off; NAMES are zoo models or ONNX files.",
    example="squeezenet encoder -o results/ablation.md",
    options=(
        options.words(),
        click.Option(
            ["--without", "only"],
            multiple=True,
            metavar="PART",
            help="Switch off this part only; may be repeated.",
        ),
        options.workers(),
        options.number("--processes", 6, "Fresh processes."),
    ),
    measure=measure,
    views=(
        TableView(
            "Off over on, {threads}",
            ("switch",),
            (
                Column("without", "switch"),
                Column("models changed", _changed),
                *(Column(head, _mean(f"{name}_over_whole"), ratio) for name, head in _COUNTS.items()),
                Column("latency", _mean("off_over_on"), ratio),
                Column("what that is", "about"),
            ),
            where=lambda rows: rows.get("switch"),
            notes=("geometric means over all models: those that a part does not change count as 1.00",),
        ),
        TableView(
            "Models, {threads}",
            ("model", "switch"),
            (
                Column("model", "model"),
                Column("without", "switch"),
                *(column for name in _COUNTS for column in _count(name)),
                Column("latency", "latency_ns", lambda ns: "" if ns is None else duration(ns)),
                Column("off/on", _taken),
                Column("95 %", "interval", interval),
            ),
            where=lambda rows: not rows.get("same"),
            notes=(
                "regions: what the graph is divided into; an algorithm of several steps, such as Winograd's, makes "
                "several dispatches of one. Bytes: operands (weights too) and results of all, MB",
                "latencies: medians of processes, and the interval of their ratios; above 1 the part gains something",
                "a part that changes nothing of a model has no row",
            ),
        ),
    ),
)

__all__ = ["CANONICAL", "EXPERIMENT", "SWITCHES", "Switch", "Work"]
