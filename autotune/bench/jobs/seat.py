"""The simulated seat of a job: a measurer, and a model whose versions are interleaved."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autotune.bench.jobs.machine import SimulatedMachine
from autotune.bench.jobs.truth import PlanInUse, Truth, candidate_of
from autotune.compiler.estimate import OptionTime, TimeSource
from autotune.compiler.plan import OPTION, Ranking, compared_time
from autotune.database import Database
from autotune.database.posterior import Standings, standings
from autotune.database.records import Latency, Outcome
from autotune.tuning.compare.paired import across_processes
from autotune.tuning.compare.sites import Site
from autotune.tuning.measure.gain import PROCESSES, Gain
from autotune.tuning.measure.interface import Built, BuiltOption, Candidate
from autotune.tuning.measure.outcome import Measurement
from autotune.tuning.measure.timing import statistics
from autotune.tuning.measure.turns import Rounds
from autotune.tuning.measure.whole_model import UNWATCHED, Code, Profile, Version, Watch

MOST = 16
"""Versions that a process has memory for."""
_REPEATS = 5
_GAIN_ROUNDS = Rounds(most=5, least=5, processes=1)


@dataclass
class SimulatedPool:
    """A Measurer whose candidates take what a truth says."""

    truth: Truth
    machine: SimulatedMachine
    _keys: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._keys = {w.text: key for key, w in self.truth.workloads.items()}

    def build(self, candidates: Sequence[Candidate]) -> list[Built]:
        """Return stand-ins for the code. Who measures a candidate waits for it: building goes on beside other work."""
        return [self._built(candidate) for candidate in candidates]

    def _built(self, candidate: Candidate) -> Built:
        key, number = self._keys[candidate.workload], candidate_of(candidate.config)
        trace = f"{key}-{number}"
        failed = not np.isfinite(self.truth.pools[key].alone_ns[number])
        if failed:
            return Built(candidate, trace, "[]", Measurement(Outcome.COMPILE_ERROR, message="as recorded"))
        return Built(candidate, trace, "[]", payload={"key": trace, "candidate": number})

    def measure(self, built: Built, default_ns: float) -> Measurement:
        """Return an isolated timing."""
        seconds = self.truth.recording.seconds
        self.machine.work(seconds.build + (0.0 if built.failed else seconds.time))
        if built.failed is not None:
            return built.failed
        key = self._keys[built.candidate.workload]
        ns = self.machine.alone(float(self.truth.pools[key].alone_ns[candidate_of(built.candidate.config)]))
        return Measurement(Outcome.OK, Latency(_REPEATS, ns, ns, 0.0), 1e-7)

    def check(self, option: BuiltOption) -> Measurement:
        """Find every option exact."""
        self.machine.work(self.truth.recording.seconds.check)
        return Measurement(Outcome.OK, error=1e-7)

    def rest(self) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing runs."""


@dataclass
class SimulatedModel:
    """A WholeModel whose versions take what a truth says, on a noisy machine."""

    truth: Truth
    machine: SimulatedMachine
    database: Database
    most: int = MOST
    name: str = field(init=False)
    nbytes: int = field(init=False)
    _ranked: dict[str, Ranking] | None = None
    """Looked up again after each measurement: comparisons follow from measurements alone."""

    def __post_init__(self) -> None:
        self.name, self.nbytes = self.truth.recording.model, self.truth.recording.nbytes

    def rankings(self) -> dict[str, Ranking]:
        """Return the options as a compilation would rank them now: by all comparisons, else the default first."""
        if self._ranked is None:
            self._ranked = self._rank()
        return self._ranked

    def _rank(self) -> dict[str, Ranking]:
        several = [site for site in self.truth.sites if len(site.options) > 1]
        keys = [site.workload.key for site in several]
        known = standings(self.database.comparison_histories(keys, self.truth.target.key, OPTION))
        return {s.workload.key: _ranking(s, known.get(s.workload.key, Standings())) for s in several}

    def read(
        self,
        versions: Sequence[Version],
        rounds: Rounds,
        out_of_time: Callable[[], bool],
        watch: Watch = UNWATCHED,
    ) -> list[Profile | None]:
        """Return the times of interleaved versions; None of all where time is up before the least number of rounds."""
        seconds, self._ranked = self.truth.recording.seconds, None
        self.machine.work(seconds.assemble * len(versions))
        found = [[*self.truth.dispatches(plan_of(version))] for version in versions]
        rows: list[list[NDArray[np.float64]]] = [[] for _ in versions]
        for number in range(rounds.processes):
            if out_of_time() and number * (rounds.most // rounds.processes) >= min(1, number) * rounds.least:
                break
            self._process(found, rounds, number, rows)
        if len(rows[0]) < rounds.least:
            return [None] * len(versions)
        named = [[(name, key) for name, key, _, _ in one] for one in found]
        return [Profile(names, np.array(ns)) for names, ns in zip(named, rows, strict=True)]

    def _process(
        self,
        versions: Sequence[Sequence[tuple[str, str, float, str]]],
        rounds: Rounds,
        number: int,
        rows: list[list[NDArray[np.float64]]],
    ) -> None:
        """Add the rounds of one fresh process to the rows of each version."""
        seconds, machine = self.truth.recording.seconds, self.machine
        machine.work(seconds.process + seconds.load * len(versions))
        steady = [
            np.log([ns for _, _, ns, _ in one])
            + machine.process_noise((len(one),))
            + [machine.drift(f"{name} {what}") for name, _, _, what in one]
            for one in versions
        ]
        whole_s = [sum(ns for _, _, ns, _ in one) / 1e9 for one in versions]
        each = -(-rounds.most // rounds.processes)
        for round_ in range(each * number, each * number + each):
            turns: dict[int, list[NDArray[np.float64]]] = {}
            for version in rounds.order(range(len(versions)), round_):
                slowness = machine.slowness
                machine.work(max(rounds.turn_ns / 1e9, 2 * whole_s[version]))
                noise = machine.round_noise(steady[version].shape)
                turns.setdefault(version, []).append(np.exp(steady[version] + noise) * slowness)
            for version, several in turns.items():
                rows[version].append(np.median(several, axis=0))

    def gain(self, untuned: Code, tuned: Code, out_of_time: Callable[[], bool]) -> Gain | None:
        """Return the model untuned and as a compilation would make it now, in several fresh processes."""
        used = {key: ranking.chosen for key, ranking in self.rankings().items()}
        versions = [Version({}, untuned), Version(used, tuned)]
        pairs = []
        for _ in range(PROCESSES):
            if out_of_time():
                break
            before, after = self.read(versions, _GAIN_ROUNDS, lambda: False)
            assert before is not None
            assert after is not None
            pairs.append((before.whole[:, None], after.whole[:, None]))
        if not pairs:
            return None
        before_ns, after_ns = (np.concatenate([pair[n] for pair in pairs]).ravel() for n in (0, 1))
        ratio = across_processes(pairs)
        return Gain(statistics(before_ns), statistics(after_ns), ratio, len(pairs))


def plan_of(version: Version) -> PlanInUse:
    """Return the options and candidates of a version."""
    return PlanInUse(
        {key: option.name for key, option in version.options.items()},
        {key: candidate_of(built.candidate.config) for key, built in version.code.items()},
    )


def _ranking(site: Site, known: Standings) -> Ranking:
    named = {option.name: option for option in site.options}
    times = [compared_time(named[one.name], one) for one in known.order]
    default = OptionTime(
        site.default, site.expected_ns.get(site.default.name, math.nan), TimeSource.ESTIMATED
    )
    return Ranking(site.options[0].workload, times or [default])


__all__ = ["MOST", "SimulatedModel", "SimulatedPool", "plan_of"]
