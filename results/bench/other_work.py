"""Other work beside comparisons: how much their ratios move and scatter while other processes are busy."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView
from autotune.bench.suites import models
from autotune.bench.tables import number, percent
from autotune.compiler import compile_in_detail, distinct_workloads
from autotune.compiler.request import CompileRequest
from autotune.database.posterior import ROUNDS
from autotune.graph.ir import Graph
from autotune.graph.region import Workload
from autotune.runtime.image import ModuleImage
from autotune.schedule.trace import Trace
from autotune.target import Target
from autotune.tuning.compare.interleaved import EVERY, PROCESSES
from autotune.tuning.compare.paired import Readings, Series, ratio
from autotune.tuning.measure.turns import Rounds, Turns

CANDIDATES = 3
"""Versions with other schedules; one more has the code of the default."""
_SAMPLED, _NEAR = 64, 1.3
"""Candidates that are drawn of a space, of which those count that are predicted to take so many times the default's."""
_LEAST_NS = 10_000
"""Shorter dispatches are left out: a job has nothing to gain there."""


def measure(
    say: Say, names: Sequence[str], seed: int, comparisons: int, busy: Sequence[int]
) -> Iterator[Sequence[Record]]:
    """Yield a record for each site and version, of each model at each number of busy processes."""
    for case in models.models(names or ("squeezenet",)):
        images = _versions(case.build().graph, seed)
        found = dict[int, list[tuple[float, NDArray[np.float64]]]]()
        sites = list[int]()
        for _ in range(2):  # what drifts meets all levels of load
            for processes in busy:
                say(f"{case.name}: {comparisons} comparisons beside {processes} busy processes")
                with spinning(processes):
                    for count in range(comparisons // 2):
                        load, read = _compared(images, seed + count)
                        sites = sites or [
                            n for n, ns in enumerate(np.median(read[0], axis=0)) if ns > _LEAST_NS
                        ]
                        found.setdefault(processes, []).append((load, _logs(read, sites)))
        quiet = np.array([logs for _, logs in found[busy[0]]])
        yield [
            {"model": case.name, "busy": processes, "contender": kind, **_record(read, quiet, mine)}
            for processes, read in found.items()
            for kind, mine in (("the same code", slice(0, 1)), ("others", slice(1, None)))
        ]


@contextmanager
def spinning(processes: int) -> Iterator[None]:
    """Keep so many processes busy meanwhile."""
    with ExitStack() as stack:
        for _ in range(processes):
            spinner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(spinner.wait)
            stack.callback(spinner.kill)
        yield


def _versions(graph: Graph, seed: int) -> list[ModuleImage]:
    """Return the model with its default schedules twice, then with others of each workload."""
    default = compile_in_detail(CompileRequest(graph))
    target = default.image.target
    rng = np.random.default_rng(seed)
    chosen = {w.key: _others(w, target, rng) for w in distinct_workloads(default.partition)}
    images = [default.image, default.image]
    for count in range(CANDIDATES):
        mine = {key: traces[count % len(traces)] for key, traces in chosen.items() if traces}
        images.append(compile_in_detail(CompileRequest(graph, schedules=mine)).image)
    return images


def _others(workload: Workload, target: Target, rng: np.random.Generator) -> list[Trace]:
    """Return candidates that are predicted to be about as fast as the default."""
    from cost_models import analytic
    from search_spaces.spaces import space_for

    space = space_for(workload, target)
    if space.sketch is None:
        return []
    population = space.sample(rng, _SAMPLED)
    near = analytic.predict(space, population) <= _NEAR * analytic.default_seconds(space)
    picked = [population.config(int(row)) for row in np.flatnonzero(near)[:CANDIDATES]]
    return [space.sketch.bind(config) for config in picked]


def _compared(images: Sequence[ModuleImage], seed: int) -> tuple[float, list[Readings]]:
    """Return the load during a comparison, and the latencies [round, dispatch] of its versions."""
    with Turns(seed) as turns:
        turns.start(PROCESSES)
        for image in images:
            turns.add(image)
        rounds = Rounds(ROUNDS * PROCESSES, ROUNDS, PROCESSES, every=EVERY)
        latencies = [ns for ns in turns.profile(rounds, lambda: False) if ns is not None]
        return turns.load, latencies


def _logs(read: Sequence[Readings], sites: Sequence[int]) -> NDArray[np.float64]:
    """Return the logs of the ratios [version, site] of a comparison."""
    first, *others = read
    return np.array([[_log(ns[:, n], first[:, n]) for n in sites] for ns in others])


def _log(mine: Series, beside: Series) -> float:
    return math.log(ratio(mine, beside, ROUNDS).median)


def _record(
    read: Sequence[tuple[float, NDArray[np.float64]]], quiet: NDArray[np.float64], versions: slice
) -> Mapping[str, float]:
    """Return how ratios scatter between comparisons, and how far their means are from those of a quiet machine beyond
    what that scatter explains, both as standard deviations of the log of one ratio."""
    logs, quiet = np.array([logs[versions] for _, logs in read]), quiet[:, versions]
    scatter, usual = (float(np.sqrt(np.mean(np.var(each, axis=0, ddof=1)))) for each in (logs, quiet))
    shift = logs.mean(axis=0) - quiet.mean(axis=0)
    by_chance = scatter**2 / len(logs) + usual**2 / len(quiet)
    return {
        "load": fmean(load for load, _ in read),
        "comparisons": len(read),
        "sites": logs.shape[2],
        "scatter": scatter,
        "shift": math.sqrt(max(0.0, float(np.mean(shift**2)) - by_chance)) if shift.any() else 0.0,
    }


ABOUT = (
    "Versions of a model are compared as a job compares them, beside processes that do nothing but take a processor: "
    "one version has the default's machine code, the others have other schedules. A comparison gives a ratio for each "
    "dispatch. They scatter between comparisons, and beside other work they are others in the mean, too: that does not "
    "average out."
)


def _slope(rows: FrameRows) -> float | None:
    """Return the shift for each processor that others took, by least squares."""
    pairs = [(r["load"], r["shift"]) for r in rows if r["contender"] == "others" and r["shift"]]
    return math.sqrt(sum(s * s for _, s in pairs) / sum(x * x for x, _ in pairs)) if pairs else None


def _factor(rows: FrameRows) -> float | None:
    """Return by how much the variance grows for each processor that others took, over that of a quiet machine."""
    found = list[float]()
    for several in rows.by("model", "contender").values():
        quiet = several[0]
        found += [
            ((r["scatter"] / quiet["scatter"]) ** 2 - 1) / (r["load"] - quiet["load"]) for r in several[1:]
        ]
    return fmean(found) if found else None


EXPERIMENT = Experiment(
    title="Other work",
    about=ABOUT,
    summary="Compare versions of a model beside busy processes; NAMES are zoo models or ONNX files.",
    example="squeezenet --comparisons 12 -o results/other-work.md",
    options=(
        options.words(),
        options.seed(),
        options.number("--comparisons", 12, "Comparisons at each number of busy processes."),
        options.numbers("--busy", "0,1,2", "Busy processes, the quiet machine first.", int, 0, 64),
    ),
    measure=measure,
    views=(
        TableView(
            "Ratios beside other work",
            ("model", "contender", "busy"),
            (
                Column("model, version", lambda rows: f"{rows.get('model')}, {rows.get('contender')}"),
                Column("busy processes", "busy"),
                Column("processors taken", "load", number(2)),
                Column("comparisons", "comparisons"),
                Column("dispatches", "sites"),
                Column("scatter", "scatter", percent(1, "%")),
                Column("shift", "shift", percent(1, "%")),
            ),
            notes=(
                "processors taken: by other processes, the mean over the turns, as the database stores it",
                "scatter: standard deviation of a ratio between comparisons",
                "shift: standard deviation of the mean's distance from that of the quiet machine, less chance",
            ),
        ),
        TableView(
            "For each processor that others take",
            (),
            (
                Column("variance grows by", _factor, number(1)),
                Column("ratios shift by", _slope, percent(1, "%")),
            ),
        ),
    ),
)

__all__ = ["EXPERIMENT", "spinning"]
