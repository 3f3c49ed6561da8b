"""The measuring pool of this machine: builders on all cores, and one candidate at a time is timed.

Building and timing never overlap: a compiler running on the other core would be measured too. Builds that wait go on
whenever nothing is timed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from autotune.database.records import Footprint, Latency, Outcome
from autotune.errors import NoReferenceError
from autotune.tuning.measure.interface import Built, BuiltOption, Candidate
from autotune.tuning.measure.outcome import Measurement, of_death
from autotune.workers.cores import CORES
from autotune.workers.pool import WorkerPool
from autotune.workers.process import Died, WorkerProcess, python_module

WORKER = python_module("autotune.tuning.measure.worker")
_PACKING_RATE = 50e6
"""Bytes a second at which constants are packed at the very least."""
_ROOM, _COPIES = 2 << 30, 16
"""The memory of a candidate beside what the worker holds: so many bytes, and its tensors so many times over (an
algorithm by transforms keeps several copies of weights and values)."""


@dataclass(frozen=True)
class Limits:
    """Limits of one candidate: seconds to build, to compute the reference, to run; and bytes.

    ``start_s`` is for a worker to get ready, which no candidate is charged with. ``memory_bytes`` is for a whole
    worker, ``room_bytes`` for a candidate in addition to what the worker holds.
    """

    build_s: float = 20.0
    prepare_s: float = 300.0
    run_s: float = 5.0
    start_s: float = 120.0
    memory_bytes: int | None = None
    room_bytes: int = _ROOM

    @staticmethod
    def of_machine() -> Limits:
        """Return limits that leave a quarter of the memory to everybody else."""
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

        self._workers = WorkerPool()
        self._roles = [*["builder"] * builders, "runner"]
        for role in self._roles:
            greeting = {"do": "warm_up", "role": role}
            worker = WorkerProcess(command, environment, self.limits.start_s, greeting=greeting)
            self._workers.add(role, worker)

    @staticmethod
    def started(builders: int) -> ProcessPool:
        """Return a pool that is warming up."""
        pool = ProcessPool(builders)
        pool.warm_up()
        return pool

    def warm_up(self) -> None:
        """Start the workers in the background, while the caller still prepares the job.

        What goes wrong shows again at the first candidate.
        """
        for role in self._roles:
            self._workers.submit(role, WorkerProcess.start)

    def build(self, candidates: Sequence[Candidate]) -> list[Built]:
        """Build all of them, one a builder at a time."""
        return self._workers.map("builder", [partial(self._build_one, c) for c in candidates])

    def _build_one(self, candidate: Candidate, worker: WorkerProcess) -> Built:
        if candidate.refused:
            return _failed(candidate, Measurement(Outcome.ILLEGAL, message=candidate.refused.splitlines()[0]))
        try:
            request = {"do": "build", **vars(candidate)}
            with CORES.work():
                answer = worker.call(request, self.limits.build_s, "building", self.limits.room_bytes)
        except Died as death:
            return _failed(candidate, of_death(death))
        if "failed" in answer:
            return _failed(candidate, _measurement(answer["failed"]), answer)
        footprint = Footprint(**answer["footprint"])
        return Built(
            candidate,
            answer["trace_key"],
            answer["trace_json"],
            payload=answer["payload"],
            footprint=footprint,
            fenced=answer["fenced"],
        )

    def measure(self, built: Built, default_ns: float) -> Measurement:
        """Check against the reference, then time, in the one runner."""
        if built.failed is not None:
            return built.failed
        request = {
            "do": "measure",
            **vars(built.candidate),
            "payloads": [dict(built.payload)],
            "fenced": built.fenced,
            "default_ns": default_ns if default_ns < float("inf") else None,
        }
        try:
            limit, room = self._prepare(built.candidate)
            if default_ns < float("inf"):
                limit += 100 * default_ns / 1e9
            with CORES.measure():
                measured = _measurement(self._workers.call("runner", request, limit, "running", room))
        except Died as death:
            return of_death(death)
        self._replace_if_harmed(measured)
        return measured

    def _replace_if_harmed(self, measured: Measurement) -> None:
        """Replace a runner in which a candidate wrote where it must not: it is not trusted with another one."""
        if measured.outcome in (Outcome.OUT_OF_BOUNDS, Outcome.WRONG_RESULT):
            self._workers.kill("runner")

    def _prepare(self, what: Candidate | BuiltOption) -> tuple[float, int]:
        """Have the inputs and the reference computed under a limit of their own.

        Returns the seconds that a candidate may run, more where large weights have to be packed, and the bytes
        that it may take. Raises NoReferenceError.
        """
        request = {"do": "prepare", "workload": what.workload, "target": what.target, "seed": what.seed}
        try:
            answer = self._workers.call("runner", request, self.limits.prepare_s, "computing the reference")
        except Died as death:
            raise NoReferenceError(f"its candidates cannot be checked: {death}") from death
        nbytes = int(answer["nbytes"])
        return self.limits.run_s + nbytes / _PACKING_RATE, self.limits.room_bytes + _COPIES * nbytes

    def check(self, option: BuiltOption) -> Measurement:
        """Check a whole option in the one runner."""
        request = {"do": "check", **vars(option), "payloads": dict(option.payloads)}
        try:
            limit, room = self._prepare(option)
            limit += self.limits.prepare_s
            checked = _measurement(
                self._workers.call("runner", request, limit, f"checking {option.name}", room)
            )
        except Died as death:
            return of_death(death)
        self._replace_if_harmed(checked)
        return checked

    def rest(self) -> None:
        """Kill all workers and drop waiting builds; the next candidate starts workers again."""
        for role in {*self._roles}:
            self._workers.drop(role)
            self._workers.kill(role)

    def close(self) -> None:
        """Kill all workers; waiting builds end with them."""
        self._workers.close()


def _failed(candidate: Candidate, measurement: Measurement, answer: Mapping[str, Any] | None = None) -> Built:
    """Return a candidate without code; one without a trace is identified by its configuration."""
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
