"""Competitors interleaved at one problem, each in a process of its own; what was read of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from autotune.bench.interleaved import interleaved
from autotune.bench.systems import System
from autotune.database.records import Latency
from autotune.errors import MeasureError
from autotune.graph.ir import Array
from autotune.tuning.measure.timing import statistics
from autotune.workers.pool import WorkerPool
from autotune.workers.process import Died, WorkerProcess

_LOAD_S = 900.0
_RUN_S = 300.0
_NATIVE_ROUNDS = 3


@dataclass(frozen=True)
class Pace:
    """The extent of a measurement: ``rounds`` of about ``turn_s`` seconds each, at least ``least`` runs.

    They are shared by ``processes`` fresh ones of each competitor: where its code and arrays lie is drawn once in each.

    Between rounds everybody rests for ``rest_s``: the threads of the one before may still spin, those of
    ONNX Runtime and OpenBLAS for tens of milliseconds.
    """

    rounds: int = 10
    processes: int = 3
    turn_s: float = 0.1
    rest_s: float = 0.1
    least: int = 2
    most: int = 2000
    native: bool = False
    """Also time without Python's share, where a system can."""


@dataclass(frozen=True)
class Competitor:
    """One system at a problem: which system runs which file; ``inputs`` are .npy paths by name.

    ``trials`` is how many a competitor that tunes gets, in ``tune_s`` seconds at most.
    """

    name: str
    system: System
    model: str
    inputs: Mapping[str, str]
    trials: int = 0
    tune_s: float = 0.0


@dataclass(frozen=True)
class Tuned:
    """The work of a competitor's tuner, earlier runs of the benchmark included; ``failure`` says why it stopped."""

    trials: int
    seconds: float
    until_best_s: float
    failure: str = ""


@dataclass(frozen=True)
class CompetitorResult:
    """One competitor's latency, outputs and time to load; ``failure`` says why there are none."""

    latency: Latency | None = None
    outputs: tuple[Array, ...] = ()
    load_s: float = 0.0
    failure: str = ""
    kinds: Mapping[str, float] | None = None
    """Nanoseconds of a run by kind of dispatch, for our own modules."""

    native_ns: float | None = None
    """The fastest run without Python's share, where it was asked for."""

    tuned: Tuned | None = None
    """For a competitor that tunes."""


class SideBySide:
    """Worker processes for a number of threads; they start when first needed, and anew for each part of the rounds."""

    def __init__(self, threads: int, folder: Path, pace: Pace | None = None) -> None:
        self.threads = threads
        self.pace = pace or Pace()
        self.versions: dict[str, str] = {}
        self._folder = folder
        self._workers = WorkerPool()

    def __enter__(self) -> SideBySide:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._workers.close()

    def run(self, entries: Sequence[Competitor]) -> dict[str, CompetitorResult]:
        """Load everybody, run once, then time them interleaved; readings by name.

        A competitor that fails is a reading with its failure; the others go on.
        """
        readings = {entry.name: self.prepare(entry) for entry in entries}
        able = [entry for entry in entries if not readings[entry.name].failure]
        times: dict[str, list[int]] = {entry.name: [] for entry in able}
        native: dict[str, float] = {}
        turns = {entry.name: partial(self._turn, entry) for entry in able}
        each = -(-self.pace.rounds // self.pace.processes)
        for begin in range(0, self.pace.rounds, each):
            if begin:
                self._load_anew(able)
            for _, name, ns in interleaved(turns, min(each, self.pace.rounds - begin), begin):
                times[name] += ns
            if self.pace.native:
                self._native(able, native)
        for entry in able:
            taken, before = times[entry.name], readings[entry.name]
            if not taken:
                readings[entry.name] = CompetitorResult(failure="stopped while it was timed")
                continue
            readings[entry.name] = replace(
                before,
                latency=statistics(np.asarray(taken, dtype=np.float64)),
                kinds=self._ask(entry, {"do": "profile"}).get("kinds"),
                native_ns=native.get(entry.name),
            )
        return readings

    def _native(self, entries: Sequence[Competitor], found: dict[str, float]) -> None:
        """Keep the fastest of a few turns of each."""

        def turn(entry: Competitor) -> float | None:
            time.sleep(self.pace.rest_s)
            return self._ask(entry, {"do": "native", "seconds": self.pace.turn_s}).get("ns")

        turns = {entry.name: partial(turn, entry) for entry in entries}
        for _, name, ns in interleaved(turns, _NATIVE_ROUNDS):
            if ns is not None:
                found[name] = min(found.get(name, ns), ns)

    def prepare(self, entry: Competitor) -> CompetitorResult:
        """Load a competitor, tuned if it tunes, and run it once; of one that fails the result has the failure."""
        tuned = self._tune(entry) if entry.system.tunes else None
        loaded = self._ask(entry, {"do": "load", **self._subject(entry)}, _LOAD_S)
        if "error" in loaded:
            return CompetitorResult(failure=loaded["error"], tuned=tuned)
        self.versions[entry.system.label] = loaded["version"]
        folder = self._folder / f"outputs-{entry.name}"
        folder.mkdir(parents=True, exist_ok=True)
        ran = self._ask(entry, {"do": "outputs", "folder": str(folder)})
        if "error" in ran:
            return CompetitorResult(failure=ran["error"], tuned=tuned)
        outputs = tuple(np.load(path, allow_pickle=False) for path in ran["paths"])
        return CompetitorResult(outputs=outputs, load_s=loaded["seconds"], tuned=tuned)

    def _load_anew(self, entries: Sequence[Competitor]) -> None:
        """Load everybody in fresh processes; who fails has no more turns."""
        for entry in entries:
            self._workers.kill(entry.name)
        for entry in entries:
            self._ask(entry, {"do": "load", **self._subject(entry)}, _LOAD_S)

    def _tune(self, entry: Competitor) -> Tuned:
        """A tuner that dies or takes too long counts with what it had found."""
        request = {"do": "tune", **self._subject(entry)}
        answer = self._ask(entry, {**request, "trials": entry.trials}, entry.tune_s)
        failure = answer.get("error", "")
        if failure:
            answer = self._ask(entry, {**request, "trials": 0})
        return Tuned(0, 0.0, 0.0, failure) if "error" in answer else Tuned(**answer, failure=failure)

    def _subject(self, entry: Competitor) -> dict[str, Any]:
        return {"model": entry.model, "threads": self.threads, "inputs": dict(entry.inputs)}

    def _turn(self, entry: Competitor) -> list[int]:
        pace = self.pace
        time.sleep(pace.rest_s)
        request = {"do": "time", "seconds": pace.turn_s, "least": pace.least, "most": pace.most}
        return list(self._ask(entry, request).get("ns", ()))

    def _ask(
        self, entry: Competitor, request: Mapping[str, Any], timeout_s: float = _RUN_S
    ) -> dict[str, Any]:
        """Return the answer of a competitor's own worker: two competitors of one system do not share it."""
        if not self._workers.has(entry.name):
            environment = entry.system.environment(self.threads)
            self._workers.add(entry.name, WorkerProcess(entry.system.command, environment))
        try:
            return self._workers.call(entry.name, request, timeout_s, str(request["do"]))
        except (Died, MeasureError) as error:
            return {"error": str(error)}


def difference(ours: Sequence[Array], theirs: Sequence[Array], adapt: Callable[[Array], Array]) -> float:
    """Largest difference of all outputs, relative to the largest value of theirs; infinite for other shapes."""
    if len(ours) != len(theirs):
        return float("inf")
    worst = 0.0
    for mine, other in zip(ours, map(adapt, theirs), strict=True):
        if mine.shape != other.shape:
            return float("inf")
        if mine.size:
            scale = float(np.abs(other).max()) or 1.0
            distance = float(np.abs(mine.astype(np.float64) - other).max()) / scale
            worst = max(worst, distance if np.isfinite(distance) else float("inf"))
    return worst


__all__ = ["Competitor", "CompetitorResult", "Pace", "SideBySide", "Tuned", "difference"]
