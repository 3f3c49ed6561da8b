"""Time and memory of learning from a large tuning database, and what is lost by learning from a sample of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import numpy as np

from autotune.bench.experiment import Column, Experiment, Record, Say, TableView
from autotune.bench.tables import duration, number
from autotune.database.store import Database
from autotune.database.training import MOST, training_table
from autotune.errors import MeasureError
from autotune.files import scratch_folder
from autotune.settings import environment_name
from cost_models import dataset, folds
from cost_models.dataset import Dataset
from cost_models.evaluate import judge
from cost_models.feature_cache import FeatureCache
from cost_models.ranker import Ranker, analytic_scores

_COMMANDS = (
    ("retrain", "--dry-run"),
    ("models", "evaluate", "--rankings", "random,analytic,lambdarank"),
)
_SHARES = (8, 16, 32, 64, 128)
"""Runs of each workload and target that a ranker learns from."""


def measure(say: Say, database: str, commands: bool, shares: bool) -> Iterator[Sequence[Record]]:
    """Yield a record for each command, the first time and once more, then one for each number of runs learnt from."""
    with scratch_folder("autotune-bench-") as folder:
        for words in _COMMANDS if commands else ():
            for cache in ("empty", "known"):
                say(f"{' '.join(words)}, {cache} cache of features")
                yield [{"cache": cache, **_command(words, database, folder / words[0])}]
    if shares:
        say("reading runs")
        with Database(database, read_only=True) as store:
            table = training_table(store, most=MOST, say=say)
        data = dataset.build(table, FeatureCache.of_user())
        for count in _SHARES:
            say(f"{count} runs of each workload and target")
            yield [_judged(data.take(data.valid), count)]


def _command(words: Sequence[str], database: str, home: Path) -> Record:
    """Return what a command takes in a process of its own; raises MeasureError where it fails."""
    line = [sys.executable, "-m", "autotune.cli.main", *words, "--db", database]
    begin = time.perf_counter()
    process = subprocess.Popen(
        line,
        env={**os.environ, environment_name("home"): str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise MeasureError(f"autotune {' '.join(words)} ended with {process.returncode}")
    return {
        "command": f"autotune {' '.join(words)}",
        "clock": time.perf_counter() - begin,
        "processor": used.ru_utime + used.ru_stime,
        "memory": 1024 * used.ru_maxrss,
    }


def _judged(data: Dataset, count: int) -> Record:
    """Judge a ranker that learns from ``count`` runs of each workload on all runs of workloads held out."""
    dealt = folds.by_workload(data.workloads, "")
    some = data.take(_first_of_group(data, count))
    begin = time.process_time()
    ranker = Ranker.fit(some, dealt)
    seconds = time.process_time() - begin
    found = judge(ranker.held_out(data), data)
    before = judge(analytic_scores(data.x), data)
    return {
        "share": count,
        "learnt": len(some),
        "seconds": seconds,
        **{name: found.interval(name).mean for name in ("pairwise", "top1", "top5")},
        **{f"{name} analytic": before.interval(name).mean for name in ("pairwise", "top1")},
    }


def _first_of_group(data: Dataset, count: int) -> np.ndarray:
    """Return which rows are among the first so many of their group; bool [n]."""
    order = np.argsort(data.groups, kind="stable")
    groups = data.groups[order]
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    sizes = np.diff([*starts, len(groups)])
    found = np.empty(len(groups), dtype=np.bool_)
    found[order] = np.arange(len(groups)) - np.repeat(starts, sizes) < count
    return found


EXPERIMENT = Experiment(
    title="Learning from a large tuning database",
    about=(
        "What retraining and evaluating cost models take on a database of millions of runs, each in a process of its "
        "own: first with an empty cache of features, then once more. Runs are made up of real workloads and random "
        "configurations; their latencies are those that a model of recorded runs predicts, with noise "
        "(`python -m results.bench queries --db URL` fills a database). Processor time is that of the command, without "
        f"the server's. At most {MOST} runs are learnt from, an equal share of each workload and target. Shares: "
        "rankers that learn from so many runs of each, judged on the same runs of workloads that they have not seen."
    ),
    summary="Measure time and memory of retraining and of evaluating on a large database.",
    example="--db postgresql://tuner@server/tuning -o results/learning.md",
    options=(
        click.Option(
            ["--db", "database"], metavar="FILE|URL", required=True, help="A database that is filled."
        ),
        click.Option(["--commands/--no-commands"], default=True, help="Time commands."),
        click.Option(["--shares/--no-shares"], default=True, help="Judge rankers of several shares."),
    ),
    measure=measure,
    views=(
        TableView(
            "Commands",
            ("command", "cache"),
            (
                Column("command", "command"),
                Column("features", "cache"),
                Column("clock", lambda rows: 1e9 * rows.get("clock"), duration),
                Column("processor", lambda rows: 1e9 * rows.get("processor"), duration),
                Column("peak memory", "memory", number(0, " MB", 1e6)),
            ),
            where=lambda rows: rows.get("command"),
        ),
        TableView(
            "Shares",
            ("share",),
            (
                Column("runs of each", "share"),
                Column("runs", "learnt"),
                Column("training", lambda rows: 1e9 * rows.get("seconds"), duration),
                Column("pairwise", "pairwise", number(3)),
                Column("top-1", "top1", number(3)),
                Column("top-5", "top5", number(3)),
                Column("pairwise, analytic", "pairwise analytic", number(3)),
                Column("top-1, analytic", "top1 analytic", number(3)),
            ),
            where=lambda rows: rows.get("share"),
        ),
    ),
)

__all__ = ["EXPERIMENT"]
