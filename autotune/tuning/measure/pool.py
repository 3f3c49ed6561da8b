"""The measuring pool of this machine: builders on all cores, then one candidate at a time is timed.

Building and timing never overlap: a compiler running on the other core would be measured too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import queue
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from autotune.database.records import Latency, Outcome
from autotune.errors import MeasureError
from autotune.tuning.measure.interface import Built, Candidate, Contest
from autotune.tuning.outcome import Measurement, of_death
from autotune.workers.process import Died, WorkerProcess, python_module

WORKER = python_module("autotune.tuning.measure.worker")
_PACKING_RATE = 50e6
"""Bytes a second at which constants are packed at the very least."""


@dataclass(frozen=True)
class Limits:
    """What one candidate may use: seconds to build, to compute the reference, to run; and bytes."""

    build_s: float = 20.0
    prepare_s: float = 300.0
    run_s: float = 5.0
    memory_bytes: int | None = None

    @staticmethod
    def of_machine() -> Limits:
        """Limits that leave a quarter of the memory to everybody else."""
        import psutil

        return Limits(memory_bytes=int(psutil.virtual_memory().total * 0.75))


class ProcessPool:
    """A Measurer of worker processes: a candidate that crashes, hangs or is wrong costs one record."""

    def __init__(
        self,
        builders: int,
        limits: Limits | None = None,
        command: Sequence[str] = WORKER,
    ) -> None:
        self.limits = limits or Limits.of_machine()
        memory = str(self.limits.memory_bytes or "")
        environment = {"AUTOTUNE_WORKER_MEMORY": memory, "OMP_NUM_THREADS": "1"}
        self._builders = [WorkerProcess(command, environment) for _ in range(builders)]
        self._runner = WorkerProcess(command, environment)
        self._free: queue.SimpleQueue[WorkerProcess] = queue.SimpleQueue()
        for worker in self._builders:
            self._free.put(worker)
        self._threads = ThreadPoolExecutor(builders + 1, thread_name_prefix="measure")
        self._warm: Future[None] | None = None

    def warm_up(self) -> None:
        """Start the workers in the background, while the caller still prepares the job."""
        for _ in self._builders:
            self._threads.submit(self._warm_builder)
        self._warm = self._threads.submit(self._warm_one, self._runner, "runner")

    def _warm_builder(self) -> None:
        worker = self._free.get()
        try:
            self._warm_one(worker, "builder")
        finally:
            self._free.put(worker)

    def _warm_one(self, worker: WorkerProcess, role: str) -> None:
        """Have the worker load what it needs; what goes wrong shows again at the first candidate."""
        with contextlib.suppress(Died, MeasureError):
            worker.call({"do": "warm_up", "role": role}, self.limits.prepare_s, "starting")

    def build(self, candidates: Sequence[Candidate]) -> list[Built]:
        """Build all of them, one a builder at a time."""
        return list(self._threads.map(self._build_one, candidates))

    def _build_one(self, candidate: Candidate) -> Built:
        worker = self._free.get()
        try:
            answer = worker.call({"do": "build", **vars(candidate)}, self.limits.build_s, "building")
        except Died as death:
            return _failed(candidate, of_death(death))
        finally:
            self._free.put(worker)
        if "failed" in answer:
            return _failed(candidate, _measurement(answer["failed"]), answer)
        return Built(candidate, answer["trace_key"], answer["trace_json"], payload=answer["payload"])

    def measure(self, built: Built, incumbent_ns: float) -> Measurement:
        """Check against the reference, then time, in the one runner."""
        if built.failed is not None:
            return built.failed
        request = {
            "do": "measure",
            **vars(built.candidate),
            "payloads": [dict(built.payload)],
            "incumbent_ns": incumbent_ns if incumbent_ns < float("inf") else None,
        }
        try:
            limit = self._prepare(built.candidate.workload, built.candidate.seed)
            if incumbent_ns < float("inf"):
                limit += 100 * incumbent_ns / 1e9
            return _measurement(self._runner.call(request, limit, "running"))
        except Died as death:
            return of_death(death)

    def _prepare(self, workload: str, seed: int) -> float:
        """Have the inputs and the reference computed under a limit of their own.

        Returns the seconds that a candidate may run: more where large weights have to be packed.
        """
        if self._warm is not None:
            self._warm.result()
        request = {"do": "prepare", "workload": workload, "seed": seed}
        answer = self._runner.call(request, self.limits.prepare_s, "computing the reference")
        return self.limits.run_s + float(answer["nbytes"]) / _PACKING_RATE

    def contest(self, contest: Contest, rounds: int) -> list[Measurement]:
        """Check and time whole alternatives in the one runner; all fail when one of them ends it."""
        entries = [{"name": e.name, "payloads": dict(e.payloads)} for e in contest.entries]
        request = {"do": "contest", **vars(contest), "entries": entries, "rounds": rounds}
        try:
            limit = self._prepare(contest.workload, contest.seed) + self.limits.prepare_s
            answer = self._runner.call(request, limit, "comparing alternatives")
        except Died as death:
            return [of_death(death)] * len(entries)
        return [_measurement(result) for result in answer["results"]]

    def close(self) -> None:
        """Kill all workers; waiting builds end with them."""
        for worker in (*self._builders, self._runner):
            worker.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


def _failed(candidate: Candidate, measurement: Measurement, answer: Mapping[str, Any] | None = None) -> Built:
    """A candidate without code; one without a trace is identified by its configuration."""
    if answer and answer.get("trace_key"):
        return Built(candidate, answer["trace_key"], answer["trace_json"], measurement)
    text = "config:" + json.dumps(dict(candidate.config), sort_keys=True)
    return Built(candidate, hashlib.sha256(text.encode()).hexdigest(), "", measurement)


def _measurement(answer: Mapping[str, Any]) -> Measurement:
    latency = answer.get("latency")
    return Measurement(
        Outcome(answer["outcome"]),
        Latency(**latency) if latency else None,
        answer.get("error"),
        answer.get("message", ""),
    )


__all__ = ["WORKER", "Limits", "ProcessPool"]
