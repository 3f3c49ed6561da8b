"""A job on a fleet whose nodes fail and lie, compared with the same job on one machine, as an experiment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

import autotune
from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, Record, Say, TableView
from autotune.bench.tables import number, ratio
from autotune.compiler import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.database import Database
from autotune.database.records import Run
from autotune.files import scratch_folder
from autotune.frontends.zoo_built import mlp
from autotune.runtime.image import ModuleImage
from autotune.tuning.jobs.budget import Budget
from autotune.tuning.jobs.task import Task
from autotune.tuning.measure.gain import gain_of
from autotune.tuning.report.result import Report
from autotune.tuning.report.status import Progress, Status
from results.bench.fleet.faults import Faults
from results.bench.fleet.nodes import RayNodes
from results.bench.texts import interval

HONEST = 4
"""Nodes that say what they measure; beside them are one of each kind of lie, and one of another target."""
OTHER = "x86-64-v2"
TOLERANCE = 0.05
"""Plans of two jobs that differ by less in their latency are the same: where arrays lie makes as much
(results/same_code.md)."""
_SIZES = (64, 48, 80, 32, 56)


@dataclass
class Watched(Progress):
    """Follows a job: what it has measured, and its nodes."""

    say: Say
    faults: Faults | None = None
    measured_runs: list[Run] = field(default_factory=list)
    status: Status | None = None
    _said: str = ""

    def started(self, status: Status) -> None:
        """Keep the status."""
        self.status = status

    def phase(self, status: Status) -> None:
        """Say what is new of nodes."""
        if status.note != self._said and ("is left out" in status.note or "is lost" in status.note):
            self._said = status.note
            self.say(status.note)

    def measured(self, status: Status, task: Task, run: Run) -> None:
        """Count a run that the job says it has stored."""
        self.measured_runs.append(run)
        if self.faults is not None:
            self.faults.measured()

    @property
    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes as the job knows them."""
        return [] if self.status is None else self.status.nodes()


def measure(
    say: Say, candidates: int, faults: int, seconds: float, processes: int, seed: int
) -> Iterator[Sequence[Record]]:
    """Yield a record of the fleet's job, one for each node, and one of both plans. Raises what tuning does."""
    with scratch_folder("autotune-bench-") as folder:
        model = folder / "mlp.onnx"
        onnx.save(mlp(16, _SIZES), model)
        budget = Budget(seconds, trials=candidates)
        watched = Watched(say)
        report = _on_fleet(model, folder, budget, watched, faults, seed)
        yield [_counted(folder / "fleet.db", report, watched)]
        yield [_node(node, watched) for node in watched.nodes]
        say("the same on one machine")
        alone = Watched(say)
        _tuned(model, folder / "alone.db", budget, alone, seed)
        before, after = (_compiled(model, folder / name) for name in ("alone.db", "fleet.db"))
        yield [_plans(before, after, len(alone.measured_runs), processes)]


def _on_fleet(model: Path, folder: Path, budget: Budget, watched: Watched, faults: int, seed: int) -> Report:
    with RayNodes(folder / "nodes") as cluster:
        for kind in [""] * HONEST + ["liar", "wrong"]:
            cluster.add(kind)
        cluster.add("other", host=OTHER)
        watched.faults = Faults(cluster, faults, budget.trials or 1, seed, watched.say)
        try:
            return _tuned(model, folder / "fleet.db", budget, watched, seed, fleet=cluster.address)
        finally:
            watched.faults.close()


def _tuned(
    model: Path, database: Path, budget: Budget, watched: Watched, seed: int, fleet: str | None = None
) -> Report:
    return autotune.tune(
        str(model),
        budget=budget,
        seed=seed,
        database=database,
        threads=1,
        time_model=False,
        sites=(),
        fleet=fleet,
        progress=watched,
    )


def _compiled(model: Path, database: Path) -> ModuleImage:
    return compile_in_detail(CompileRequest(str(model), database=database, threads=1)).image


def _counted(database: Path, report: Report, watched: Watched) -> Record:
    """Return what the database has of a job, compared with what the job has said."""
    runs = list[Run]()
    with Database(database, read_only=True) as store:
        store.each_record(runs.append)
        compared = store.comparisons()
    stored = Counter((run.key, run.trace_key, run.code) for run in runs)
    said = {(run.key, run.trace_key, run.code) for run in watched.measured_runs}
    assert watched.faults is not None
    return {
        "of": "job",
        "candidates": len(runs),
        "comparisons": len(compared),
        "steps": compared["created"].nunique(),
        "twice": sum(times > 1 for times in stored.values()),
        "lost": len(said - stored.keys()),
        "killed": watched.faults.done["killed"],
        "frozen": watched.faults.done["frozen"],
        "seconds": report.seconds,
    }


def _node(node: dict[str, Any], watched: Watched) -> Record:
    assert watched.faults is not None
    kind = watched.faults.cluster.kinds.get(node["name"].rpartition("/")[-1], "")
    named = {name: node[name] for name in ("name", "state", "reason", "measurements", "set_aside")}
    return {"of": "node", "kind": kind or "honest", **named}


def _plans(before: ModuleImage, after: ModuleImage, candidates: int, processes: int) -> Record:
    gain = gain_of(before, after, 0, lambda: False, processes, patience_s=float("inf"))
    found: dict[str, Any] = {"of": "plans", "alone": candidates, "same": before.same_code(after)}
    if gain is not None:
        found |= {"ratio": gain.ratio.median, "interval": gain.ratio.interval}
    return found


ABOUT = (
    "One job on a Ray cluster in processes of this machine: four nodes that say what they measure, one that says of "
    "every candidate that it is three times as fast, one that finds other numbers, and one of another target. While it "
    "runs nodes are killed, and others come in their place, or frozen for 5 to 40 seconds. Nodes share the cores: this "
    "is about what is stored and used, not about speed. Then the same job measures on this machine alone, and "
    "both plans are interleaved in fresh processes."
)

EXPERIMENT = Experiment(
    title="A fleet whose nodes fail and lie",
    about=ABOUT,
    summary="Tune on nodes that are killed, frozen, and lie, and compare the plan with that of one machine.",
    example="--candidates 2000 --faults 20 -o results/fleet.md",
    options=(
        options.number("--candidates", 2000, "Candidates to measure.", least=20),
        options.number("--faults", 20, "Nodes that are killed or frozen.", least=0),
        options.seconds("--seconds", 1200.0, "The longest that each job takes."),
        options.number("--processes", 18, "Fresh processes in which both plans are interleaved.", least=6),
        options.number("--seed", 0, "Seed of the search and of the faults.", least=0),
    ),
    measure=measure,
    views=(
        TableView(
            "What was stored",
            ("of",),
            (
                Column("candidates", "candidates"),
                Column("compared", "comparisons"),
                Column("comparisons", "steps"),
                Column("stored twice", "twice"),
                Column("lost", "lost"),
                Column("killed", "killed"),
                Column("frozen", "frozen"),
                Column("time", "seconds", number(0, " s", 1.0)),
            ),
            of="job",
        ),
        TableView(
            "Nodes",
            ("name",),
            (
                Column("node", "name"),
                Column("is", "kind"),
                Column("state", "state"),
                Column("measured", "measurements"),
                Column("set aside", "set_aside"),
                Column("why", "reason"),
            ),
            of="node",
        ),
        TableView(
            "The plan, compared with that of one machine",
            ("of",),
            (
                Column("candidates of one machine", "alone"),
                Column("same code", "same"),
                Column("latency ÷ of one machine", "ratio", ratio),
                Column("95 %", "interval", interval),
            ),
            of="plans",
        ),
    ),
)

__all__ = ["EXPERIMENT"]
