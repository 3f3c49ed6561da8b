"""The time of queries to a tuning database: each of many workloads is asked for, and each time is stored."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from autotune.errors import MeasureError
from autotune.settings import environment_name
from autotune.target import Target
from results.bench.queries.asking import Questions
from results.bench.queries.filling import Filled
from results.bench.queries.material import TunedModel, held_out
from results.bench.queries.times import Times


def questions(where: str, filled: Filled, models: Sequence[TunedModel], count: int, seed: int) -> Questions:
    """Up to ``count`` workloads of each kind of question; one of each kind of workload is asked for beforehand."""
    here, rng = Target.detect(), random.Random(seed)
    known = {one.workload.key for one in filled.tuned if one.target == here}
    all_of_models = dict.fromkeys(workload for model in models for workload in model.workloads)
    tuned = [workload for workload in all_of_models if workload.key in known]
    first = {workload.kind: workload for workload in reversed(tuned)}
    others = [workload for workload in tuned if workload is not first[workload.kind]] or tuned
    missing = [workload for model in models for workload in held_out(model)]
    return Questions(
        where,
        tuple(workload.key for workload in rng.sample(others, min(count, len(others)))),
        tuple(workload.text for workload in rng.sample(missing, min(count, len(missing)))),
        tuple(workload.key for workload in first.values()),
    )


def timed(asked: Questions, home: Path) -> Iterator[Times]:
    """Ask from a process, then once more from another one; ``home`` has what they keep, which is nothing before."""
    yield from _process(asked, home)
    yield from _process(replace(asked, again=True), home)


def _process(asked: Questions, home: Path) -> Iterator[Times]:
    words = [sys.executable, "-m", "results.bench.queries.asking"]
    environment = {**os.environ, environment_name("home"): str(home), environment_name("defaults"): ""}
    with subprocess.Popen(words, env=environment, text=True, stdin=-1, stdout=-1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(asked.to_json())
        process.stdin.close()
        for line in process.stdout:
            yield Times(**json.loads(line))
    if process.returncode:
        raise MeasureError(f"the process that asks the database ended with {process.returncode}")


def command(where: str, model: str, home: Path, count: int, *options: str) -> Times:
    """The command ``autotune query`` for a model, a process each time; the first, which keeps what it chose, is not
    counted."""
    words = [sys.executable, "-m", "autotune.cli.main", "query", model, "--db", where, *options]
    environment = {**os.environ, environment_name("home"): str(home), environment_name("defaults"): ""}
    found = Times(" ".join(["autotune query", model, *options]))
    for _ in range(count + 1):
        before = _of_children()
        found.add(lambda: subprocess.run(words, check=True, capture_output=True, env=environment))
        found.processor[-1] = _of_children() - before
    del found.wall[0], found.processor[0]
    return found


def _of_children() -> float:
    """Seconds of processor time of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


__all__ = ["command", "questions", "timed"]
