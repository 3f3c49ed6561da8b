"""How long questions to a tuning database take: each of many workloads is asked for, and each time is kept."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from autotune.bench.queries.filling import Filled
from autotune.bench.queries.material import TunedModel, another_target, held_out
from autotune.database import WorkloadRow
from autotune.database.store import Database
from autotune.graph.region import Workload
from autotune.target import Target
from autotune.tuning.api import query
from search_spaces.spaces import space_for


@dataclass
class Times:
    """Seconds that each repetition of a question took: on the clock, and of this process's processor time."""

    name: str
    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def add(self, ask: Callable[[], object]) -> None:
        """Ask once more."""
        wall, processor = time.perf_counter(), time.process_time()
        ask()
        self.wall.append(time.perf_counter() - wall)
        self.processor.append(time.process_time() - processor)


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of the others does not exceed.

    >>> quantile([3.0, 1.0, 2.0], 0.5)
    2.0
    """
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def timed(where: str, filled: Filled, models: Sequence[TunedModel], count: int, seed: int) -> Iterator[Times]:
    """Ask a filled database from this process, for up to ``count`` workloads by each kind of question."""
    here, other, rng = Target.detect(), another_target(), random.Random(seed)
    tuned = [one.workload for one in filled.tuned if one.target == here]
    chosen = rng.sample(tuned, min(count, len(tuned)))
    left_out = [workload for model in models for workload in held_out(model)]
    missing = rng.sample(left_out, min(count, len(left_out)))
    keys = {w: (w.key, here.key, space_for(w, here).key) for w in (*chosen, *missing)}
    with Database(where, read_only=True) as database:
        query(chosen[0].key, database=database)  # what is imported at first is not counted
        for name, workloads, ask in (
            ("Database.lookup, exact", chosen, lambda w: database.lookup(*keys[w])),
            ("Database.lookup, a miss", missing, lambda w: database.lookup(*keys[w])),
            (
                "Database.near, other sizes",
                missing,
                lambda w: database.near(WorkloadRow.of(w), here, keys[w][2]),
            ),
            ("autotune.query, exact", chosen, lambda w: query(w.key, database=database)),
            ("the same, the database by its path", chosen, lambda w: query(w.key, database=where)),
            (
                "autotune.query, another target",
                chosen,
                lambda w: query(w.key, database=database, target=other),
            ),
            ("Database.runs of a workload", chosen[:5], lambda w: database.runs(workload=w.key)),
            ("Database.workloads", chosen[:3], lambda _: database.workloads()),
            ("Database.summary", chosen[:3], lambda _: database.summary()),
            ("Database.tuned_keys", chosen[:3], lambda _: database.tuned_keys()),
        ):
            yield _each(name, workloads, ask)


def command(where: str, model: str, only: str, count: int) -> Times:
    """The command ``autotune query``, a process each time; only the clock counts what it takes."""
    words = [sys.executable, "-m", "autotune.cli.main", "query", model, "--db", where, "--only", only]
    found = Times(f"autotune query {model} --only {only}")
    for _ in range(count):
        found.add(lambda: subprocess.run(words, check=True, capture_output=True))
    found.processor.clear()
    return found


def _each(name: str, workloads: Sequence[Workload], ask: Callable[[Workload], object]) -> Times:
    found = Times(name)
    for workload in workloads:
        found.add(partial(ask, workload))
    return found


__all__ = ["Times", "command", "quantile", "timed"]
