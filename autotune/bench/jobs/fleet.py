"""A simulated fleet: its scheduler, its decisions and its database are those of ``tune --fleet``; its seats answer with
what a recording says, after the seconds that were recorded."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.bench.jobs.machine import MachineKind, SimulatedMachine
from autotune.bench.jobs.recording import RecordedJob
from autotune.bench.jobs.replay import JobOutcome, SimulatedSetting, job_outcome
from autotune.bench.jobs.seat import SimulatedModel, SimulatedPool, plan_of
from autotune.bench.jobs.truth import PlanInUse, Truth
from autotune.bench.jobs.virtual_time import VirtualTime
from autotune.database import Database
from autotune.database.records import Comparison, JobRow, Key, Reading, Run
from autotune.files import scratch_folder
from autotune.target import Target
from autotune.tuning.compare.paired import across_processes
from autotune.tuning.fleet.cluster import RemoteSeat
from autotune.tuning.fleet.fleet import Answered, Fleet, SeatWork
from autotune.tuning.fleet.measurer import FleetMeasurer
from autotune.tuning.fleet.node import FleetNode, NodeState
from autotune.tuning.fleet.opening import OnFleet
from autotune.tuning.fleet.trust import Trust
from autotune.tuning.jobs.policy import Policy
from autotune.tuning.measure.gain import PROCESSES, Gain
from autotune.tuning.measure.interface import Built, BuiltOption, Candidate
from autotune.tuning.measure.timing import statistics
from autotune.tuning.measure.turns import Rounds
from autotune.tuning.measure.whole_model import UNWATCHED, Code, Profile, Version, Watch

_REPEATS = 5
_GAIN_ROUNDS = Rounds(most=5, least=5, processes=1)


@dataclass
class FleetUse:
    """The use of a simulated fleet; ``proposals`` are candidates that were built, ``writes`` transactions."""

    seats: int
    ends: list[tuple[float, float]] = field(default_factory=list)
    """The moment at which each message was answered, and the seconds that it took."""
    proposals: int = 0
    writes: int = 0

    def share(self, begin: float, end: float) -> float:
        """Return the part of the time of all seats between two moments in which they measured."""
        busy = sum(max(0.0, min(end, at) - max(begin, at - took)) for at, took in self.ends)
        return busy / max(1e-9, self.seats * (end - begin))


class _SimulatedCluster:
    """A cluster whose seats are simulated."""

    def places(self) -> Mapping[str, str]:
        """Return none: nobody looks for more seats."""
        return {}

    def seat(self, place: str, key: bytes, job: str) -> RemoteSeat:
        """Refuse: there are none."""
        raise NotImplementedError

    def put(self, data: bytes) -> object:
        """Return the data itself."""
        return data

    def close(self) -> None:
        """Leave nothing."""


class SimulatedSeats:
    """The answers of seats, and the seconds that each takes."""

    def __init__(self, truth: Truth, kind: MachineKind, seed: int) -> None:
        self._truth, self._seconds = truth, truth.recording.seconds
        self._machine = SimulatedMachine(kind, seed)
        self._named = {w.text: key for key, w in truth.workloads.items()}

    def answer(self, work: SeatWork) -> tuple[dict[str, Any], float]:
        """Return the answer to a message, and the seconds until then."""
        message = work.message
        if message["do"] == "turns":
            return self._turns(message, work.contents)
        if message["do"] == "check":
            return {**_measured(None, 1e-7), "stolen_s": 0.0}, self._seconds.check
        candidate = message["candidate"]
        pool = self._truth.pools[self._named[candidate["workload"]]]
        ns = self._machine.alone(float(pool.alone_ns[int(message["payload"]["candidate"])]))
        return {**_measured(ns, 1e-7), "stolen_s": 0.0}, self._seconds.time

    def _turns(self, message: Mapping[str, Any], contents: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
        """Return the latencies of versions in a fresh process, [rounds, dispatches] each."""
        digests, machine = message["files"], self._machine
        texts = [contents[digests[name]] for name, _ in message["versions"]]
        versions = [[*self._truth.dispatches(PlanInUse(**json.loads(text)))] for text in texts]
        rounds = Rounds(**message["rounds"])
        steady = [
            np.log([ns for _, _, ns, _ in one]) + machine.process_noise((len(one),)) for one in versions
        ]
        took = self._seconds.process + self._seconds.load * len(versions)
        whole_s = [sum(ns for _, _, ns, _ in one) / 1e9 for one in versions]
        found: list[list[NDArray[np.float64]]] = [[] for _ in versions]
        for number in range(rounds.most):
            for version in rounds.order(range(len(versions)), number + int(message["first"])):
                took += max(rounds.turn_ns / 1e9, 2 * whole_s[version])
                if len(found[version]) <= number:  # of several turns of a version one is simulated
                    noise = machine.round_noise(steady[version].shape)
                    found[version].append(np.exp(steady[version] + noise))
        ns = [np.array(one).tolist() for one in found]
        if message["what"] == "time":
            ns = [[[float(sum(row))] for row in one] for one in ns]
        return {"ns": ns, "failures": {}, "took_s": (1.0, 0.0), "stolen_s": 0.0}, took


def _measured(ns: float | None, error: float) -> dict[str, Any]:
    latency = None if ns is None else {"n": _REPEATS, "min_ns": ns, "median_ns": ns, "spread_ns": 0.0}
    return {"outcome": "ok", "latency": latency, "error": error, "message": "", "details": ""}


class SimulatedFleet(Fleet):
    """A :class:`Fleet` whose seats are events instead of threads."""

    def __init__(self, seats: int, answers: SimulatedSeats, target: Target, time: VirtualTime) -> None:
        super().__init__(_SimulatedCluster(), target, "simulated")
        self.lanes = self.time = time
        self.use = FleetUse(seats)
        self._answers = answers
        self.nodes = {str(n): FleetNode(f"node{n}", NodeState.IDLE) for n in range(seats)}
        self._idle = deque(self.nodes.values())

    def __enter__(self) -> SimulatedFleet:
        return self

    def close(self) -> None:
        """Leave nothing."""

    def submit(self, work: SeatWork) -> SeatWork:
        """Have the next idle seat answer a message."""
        self.time.happen()
        self._waiting.append(work)
        self._assign(self.time.now())
        return work

    def _assign(self, now: float) -> None:
        """Give waiting messages to idle seats."""
        for _ in range(len(self._idle) if self._waiting else 0):
            node = self._idle.popleft()
            work = self._take(node)
            if work is None:
                self._idle.append(node)
                continue
            self._signer.sign(work.message)
            with self.time.free():
                answer, took = self._answers.answer(work)
            self.use.ends.append((now + took, took))
            self.time.at(now + took, partial(self._end, node, work, answer))
            if not self._waiting:
                break

    def _end(self, node: FleetNode, work: SeatWork, answer: Mapping[str, Any], second: float) -> None:
        if not work.future.cancelled():
            self._answered(node, work, answer)
        node.state = NodeState.IDLE
        self._idle.append(node)
        self._assign(second)

    def result(self, work: SeatWork) -> Answered:
        """Return the answer to a message, when it is there."""
        self.time.happen()
        if not work.future.done():
            self.time.wait(work.future.done)
        return work.future.result()


class SimulatedMeasurer(FleetMeasurer):
    """A :class:`FleetMeasurer` with simulated builders."""

    def __init__(self, trust: Trust, fleet: SimulatedFleet, builders: int, stand_ins: SimulatedPool) -> None:
        super().__init__(trust, 0)
        self._simulated, self._count, self._stand_ins = fleet, builders, stand_ins
        self._free_s = 0.0

    def build(self, candidates: Sequence[Candidate]) -> list[Built]:
        """Build all of them, after those that were given to the builders before."""
        time, each = self._simulated.time, self._stand_ins.truth.recording.seconds.build
        self._simulated.use.proposals += len(candidates)
        self._free_s = max(self._free_s, time.now()) + each * len(candidates) / self._count
        done = list[float]()
        if candidates:
            time.at(max(self._free_s, time.now() + each), done.append)
            time.wait(lambda: bool(done))
        with time.free():
            return self._stand_ins.build(candidates)

    def check(self, option: BuiltOption) -> Any:
        """Check a whole option on a seat; of a simulated one nothing is sent."""
        return self._sure(self._fleet.submit(SeatWork({"do": "check"})))


@dataclass
class FleetModel(SimulatedModel):
    """A model whose versions are interleaved on the seats of a fleet."""

    turns_of: Callable[[int], Any] = field(kw_only=True)
    time: VirtualTime = field(kw_only=True)

    def read(
        self,
        versions: Sequence[Version],
        rounds: Rounds,
        out_of_time: Callable[[], bool],
        watch: Watch = UNWATCHED,
    ) -> list[Profile | None]:
        """Return the times of versions; None of all where time is up."""
        self._ranked = None
        with self.turns_of(0) as turns:
            self._add(turns, versions)
            return list(turns.profiles(rounds, out_of_time, watch))

    def _add(self, turns: Any, versions: Sequence[Version]) -> None:
        for number, version in enumerate(versions):
            self.time.work(self.truth.recording.seconds.assemble)
            with self.time.free():
                plan = plan_of(version)
                path = turns.folder / f"{number}.json"
                path.write_text(json.dumps({"options": plan.options, "candidates": plan.candidates}))
                named = [(name, key) for name, key, _, _ in self.truth.dispatches(plan)]
            turns.add_file(path, 0, named, [1] * len(named))

    def gain(self, untuned: Code, tuned: Code, out_of_time: Callable[[], bool]) -> Gain | None:
        """Return the model untuned and as a compilation would make it now."""
        used = {key: ranking.chosen for key, ranking in self.rankings().items()}
        with self.turns_of(0) as turns:
            self._add(turns, [Version({}, untuned), Version(used, tuned)])
            rounds = Rounds(PROCESSES * _GAIN_ROUNDS.most, PROCESSES * _GAIN_ROUNDS.most, PROCESSES)
            before, after = turns.time(rounds, out_of_time)
        if before is None or after is None:
            return None
        processes = len(before) // _GAIN_ROUNDS.most
        pairs = list(zip(np.split(before, processes), np.split(after, processes), strict=True))
        return Gain(statistics(before.ravel()), statistics(after.ravel()), across_processes(pairs), processes)


@dataclass(frozen=True)
class SimulatedOnFleet(OnFleet):
    """A simulated fleet as a job sees it."""

    simulated: SimulatedMeasurer = field(kw_only=True)

    @cached_property
    def measurer(self) -> FleetMeasurer:
        """The measurer with simulated builders."""
        return self.simulated


class _Counting(Database):
    """A database that counts the transactions that write to it."""

    use: FleetUse

    def record_all(self, runs: Sequence[Run]) -> list[bool]:
        """Store runs."""
        self.use.writes += 1
        return super().record_all(runs)

    def read_inside(self, key: Key, readings: Sequence[Reading], inside: str, job: str = "") -> None:
        """Store in-model measurements."""
        self.use.writes += 1
        super().read_inside(key, readings, inside, job)

    def compared_sites(
        self, sites: Mapping[tuple[str, str, str], Sequence[Comparison]], inside: str, job: str = ""
    ) -> None:
        """Store comparisons."""
        self.use.writes += 1
        super().compared_sites(sites, inside, job)

    def update_job(self, job: JobRow, report: str | None = None) -> None:
        """Store the state of a job."""
        self.use.writes += 1
        super().update_job(job, report)


@dataclass(frozen=True)
class FleetOutcome:
    """The outcome of a simulated job on a fleet; ``seconds`` of virtual time, of which the searching process has
    computed ``computed_s``."""

    job: JobOutcome
    use: FleetUse
    seconds: float
    computed_s: float


def fleet_job(
    recording: RecordedJob,
    seats: int,
    builders: int,
    *,
    budget_s: float,
    seed: int,
    truth: Truth | None = None,
) -> FleetOutcome:
    """Do a job again on so many simulated seats, with so many builders on the searching machine."""
    truth = truth or Truth.of(recording, seed)
    kind, time = MachineKind.recorded(recording.noise), VirtualTime()
    time.seconds = recording.seconds.start
    fleet = SimulatedFleet(seats, SimulatedSeats(truth, kind, seed), truth.target, time)
    trust = Trust(fleet)
    measurer = SimulatedMeasurer(trust, fleet, builders, SimulatedPool(truth, SimulatedMachine(kind, seed)))
    on_fleet = SimulatedOnFleet(trust, 0, deque(), simulated=measurer)
    with scratch_folder("autotune-job-") as folder, ExitStack() as opened:
        database = _Counting(folder / "job.db")
        database.use = fleet.use
        opened.enter_context(database)
        model = FleetModel(
            truth, SimulatedMachine(kind, seed), database, turns_of=on_fleet.turns_of, time=time
        )
        setting = SimulatedSetting(truth, model, measurer, time.now, fleet=on_fleet, free=time.free)
        outcome = job_outcome(setting, Policy, budget_s=budget_s, seed=seed)
        return FleetOutcome(outcome, fleet.use, time.now(), time.computed_s)


__all__ = ["FleetOutcome", "FleetUse", "fleet_job"]
