"""Fills an empty tuning database with made-up runs of real workloads."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.database import JobRow, Origin, Outcome, WorkloadRow, rows, schema
from autotune.database.records import RUNS, Comparison, Footprint, Key, Latency, Ratio, Run
from autotune.database.store import Database
from autotune.errors import UsageError
from autotune.schedule.knob import config_to_json
from autotune.target import Target
from results.bench.queries import bulk
from results.bench.queries.latencies import RecordedLatencies
from results.bench.queries.material import Schedule, Tuned, TunedModel, held_out, tuned
from search_spaces.spaces import space_for

RECORDED = Path(__file__).parents[2] / "runs" / "avx512"
"""The recordings that latencies are made up from."""
_SAID = 500_000
"""After so many runs it is said how many there are."""
_FAILED = (Outcome.COMPILE_ERROR, Outcome.TIMEOUT, Outcome.CRASHED)
_SHARE_FAILED, _SHARE_READ = 0.03, 0.5
"""Of the runs: those that failed, and those with in-model measurements, twice each."""
_DISTINCT = 512
"""So many configurations of a workload on a target at most; further runs are of these again."""
_COMPARED = 4
"""Candidates of a comparison."""
_SPREAD = 1.0
"""Standard deviation of the logarithm of the number of runs of a workload."""
_DAY_S = 86_400.0


@dataclass(frozen=True)
class Filled:
    """A filled database: what was tuned, and how long it took to write ``runs`` runs with all that belongs to them."""

    tuned: tuple[Tuned, ...]
    runs: int
    readings: int
    comparisons: int
    seconds: float


def fill(
    database: Database,
    models: Sequence[TunedModel],
    machines: Sequence[Target],
    runs: int,
    seed: int,
    say: Callable[[str], None],
) -> Filled:
    """Fill a database with about so many runs on these machines; raises UsageError unless it is empty."""
    if database.workload_rows():
        raise UsageError(f"{database.where} is not empty; the benchmark fills a database of its own")
    rng = np.random.default_rng(seed)
    known = dict[tuple[str, str], Tuned]()
    for model in models:
        for target in machines:
            say(f"{model.name}: schedules for {target.name}")
            left_out = held_out(model)
            wanted = [workload for workload in model.workloads if workload not in left_out]
            found = list(tuned(wanted, target, rng))
            _describe(database, model, target, found)
            for one in found:
                known.setdefault((one.workload.key, target.key), one)
    everything = tuple(known.values())
    say(f"{runs} runs of {len(everything)} workloads and targets")
    latencies = RecordedLatencies.of([RECORDED])
    weights = rng.lognormal(sigma=_SPREAD, size=len(everything))
    shares = np.maximum(1, runs * weights / weights.sum()).astype(int).tolist()
    begin, counts, done = time.perf_counter(), Counter[str](), 0
    with bulk.loading(database):
        for one, share in zip(everything, shares, strict=True):
            blocks = list(_Made(one, share, counts["runs"], counts["comparisons"], rng, latencies).blocks)
            bulk.insert(database, blocks)
            for block in blocks:
                counts[block.table.name] += block.rows
            if counts["runs"] // _SAID > done:
                done = counts["runs"] // _SAID
                say(f"{counts['runs']} runs in {time.perf_counter() - begin:.0f} s")
        say("indexes")
    seconds = time.perf_counter() - begin
    return Filled(everything, counts["runs"], counts["readings"], counts["comparisons"], seconds)


def _describe(database: Database, model: TunedModel, target: Target, found: Sequence[Tuned]) -> None:
    """Workloads, spaces and the job that runs refer to."""
    database.add_target(target)
    for one in found:
        database.add_workload(WorkloadRow.of(one.workload))
        database.add_space(one.space, one.workload.key, "{}")
    job = _job(model.name, target)
    database.claim_job(job, lambda owner: True)
    database.add_layers(
        job.id, {w.key: model.layers[w.key] for w in model.workloads if w not in held_out(model)}
    )


def _job(model: str, target: Target) -> JobRow:
    text = f"{model} {target.key}"
    name = hashlib.sha256(text.encode()).hexdigest()
    now = time.time()
    return JobRow(name[:32], name, model, target.key, "{}", JobRow.DONE, "bench", 3600.0, now, now)


def _base_ns(one: Tuned) -> float:
    """About what a workload takes: 100 GFLOP/s, or 10 GB/s."""
    return max(one.workload.flops / 100.0, one.workload.bytes / 10.0, 100.0)


@dataclass
class _Made:
    """The runs of a workload on a target, their in-model measurements and their comparisons; ``first`` and ``compared``
    rows of runs and comparisons were made before. The default is the first run, then comes what searches tried."""

    one: Tuned
    count: int
    first: int
    compared: int
    rng: np.random.Generator
    latencies: RecordedLatencies

    @property
    def blocks(self) -> Iterator[bulk.Block]:
        """Yield all rows, each after those that it refers to."""
        one, count = self.one, self.count
        configs, ratios = _candidates(one, min(count, _DISTINCT), self.rng, self.latencies)
        failed = self.rng.random(count) < _SHARE_FAILED
        failed[0] = False
        ns = np.resize(_base_ns(one) * ratios, count)
        texts = [f"{one.space} {one.target.key} {number}" for number in range(count)]
        traces = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
        for bad in (False, True):
            for turn, schedule in enumerate(one.schedules):
                here = np.flatnonzero((failed == bad) & (np.arange(count) % len(one.schedules) == turn))
                yield self._runs(schedule, bad, here, configs, ns, traces)
        good = np.flatnonzero(~failed)
        yield self._readings(good[1:])
        known = [(self.first + 1 + n, traces[n], float(ns[n])) for n in good[:_COMPARED].tolist()]
        yield from self._comparisons(known)

    def _runs(
        self,
        schedule: Schedule,
        bad: bool,
        here: NDArray[np.intp],
        configs: Sequence[str],
        ns: NDArray[np.float64],
        traces: Sequence[str],
    ) -> bulk.Block:
        """Return those with these numbers; a trace's key is made up, as several runs share a trace."""
        numbers = here.tolist()
        own: dict[str, Sequence[Any]] = {
            "id": (self.first + 1 + here).tolist(),
            "trace_key": [traces[n] for n in numbers],
            "created": (time.time() - _DAY_S + here / 1000).tolist(),
            "origin": [(Origin.SEARCH if n else Origin.DEFAULT).value for n in numbers],
            "config_json": [configs[n % len(configs)] for n in numbers],
        }
        if not bad:
            own["latency_min_ns"] = ns[here].tolist()
            own["latency_median_ns"] = (1.02 * ns[here]).tolist()
            own["latency_spread_ns"] = (0.03 * ns[here]).tolist()
        common = {name: v for name, v in _run(self.one, schedule, bad).items() if name not in own}
        return bulk.Block(schema.runs, common, own)

    def _readings(self, good: NDArray[np.intp]) -> bulk.Block:
        """Return those of half of the runs, in two processes each: a little slower than the default, as most of what is
        tried is."""
        read = good[self.rng.random(len(good)) < _SHARE_READ]
        common = {"rounds": 3, "default_ns": _base_ns(self.one), "load": 0.0, "inside": "bench"}
        now = time.time()
        own = {
            "run_id": np.repeat(self.first + 1 + read, 2).tolist(),
            "ratio": self.rng.lognormal(0.1, 0.05, 2 * len(read)).tolist(),
            "created": np.tile([now, now + 1], len(read)).tolist(),
        }
        return bulk.Block(schema.readings, {**common, **rows.key_columns(_key(self.one))}, own)

    def _comparisons(self, known: Sequence[tuple[int, str, float]]) -> Iterator[bulk.Block]:
        """Yield one of schedules, and one of options where there are several."""
        one, now = self.one, time.time()
        found = [("schedule", row) for row in _compared_schedules(known, one, self.rng)]
        found += [("option", row) for row in _compared_options(one)]
        for number, (site, row) in enumerate(found, 1):
            values = {**rows.comparison_to_row(row), "site": site, "inside": "bench", "created": now}
            values |= {"workload_key": one.workload.key, "target_key": one.target.key}
            own = {name: [value] for name, value in values.items()}
            yield bulk.Block(schema.comparisons, {"id": self.compared + number}, own)


def _key(one: Tuned) -> Key:
    return Key(one.workload.key, one.target.key, one.space)


def _candidates(
    one: Tuned, count: int, rng: np.random.Generator, latencies: RecordedLatencies
) -> tuple[list[str], NDArray[np.float64]]:
    """The default and random configurations as JSON texts, and their latencies over the default's."""
    space = space_for(one.workload, one.target)
    found = space.of([space.default(), *space.random(rng, count)][:count])
    return [config_to_json(config) for config in found.configs()], latencies.ratios(space, found, rng)


def _run(one: Tuned, schedule: Schedule, failed: bool) -> dict[str, Any]:
    """The columns that many runs of a workload have in common."""
    run = Run(
        key=_key(one),
        trace_key="",
        trace_json=schedule.trace_json,
        config_json=schedule.config_json,
        outcome=_FAILED[len(schedule.config_json) % len(_FAILED)] if failed else Outcome.OK,
        latency=None if failed else Latency(5, 1.0, 1.0, 0.0),
        error=None if failed else 1e-6,
        message="it took too long" if failed else "",
        host="bench",
        versions=_VERSIONS,
        footprint=None if failed else Footprint(4096 * (1 + len(schedule.trace_json) % 64), 9000, 1024),
    )
    return RUNS.to_row(run)


_VERSIONS = json.dumps({"autotune": "0.1.0", "llvmlite": "0.50.0", "numpy": "2.3.0", "python": "3.11.7"})


def _compared_options(one: Tuned) -> Iterator[Comparison]:
    for name, key in ({} if one.option is None else one.option.keys).items():
        won = one.option is not None and name == one.option.winner
        base = _base_ns(one) * (0.8 if won else 1.0)
        latency = Latency(5, base, base, 0.01 * base)
        yield Comparison(name, key, latency, won, Ratio(0.8 if won else 1.0, (0.78, 1.02)))


def _compared_schedules(
    found: Sequence[tuple[int, str, float]], one: Tuned, rng: np.random.Generator
) -> Iterator[Comparison]:
    winner = int(rng.integers(len(found)))
    for index, (number, trace, ns) in enumerate(found):
        ratio = Ratio(0.9, (0.88, 0.92)) if index == winner else Ratio(1.0, (0.98, 1.02))
        yield Comparison(
            trace, one.space, Latency(5, ns, 1.02 * ns, 0.02 * ns), index == winner, ratio, number
        )


__all__ = ["RECORDED", "Filled", "fill"]
