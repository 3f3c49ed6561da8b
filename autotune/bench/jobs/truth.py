"""The truth of a simulated job: what each option and candidate takes inside the model, drawn from a recording."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from autotune.bench.jobs.recording import RecordedCandidates, RecordedChoice, RecordedJob, RecordedPlace
from autotune.graph.region import Workload
from autotune.passes.options import Option
from autotune.schedule.knob import Config, Knob
from autotune.schedule.schedule import Schedule
from autotune.target import Target
from autotune.tuning.compare.sites import Site
from autotune.tuning.jobs.subject import Subject
from search_spaces.sketch import Choices
from search_spaces.space import Space

CANDIDATES = 240
"""Of each workload: the recorded ones, and as many near them as are missing."""
NEAR = 0.01
"""The standard deviation of the logs of candidates near a recorded one."""
KNOB = "candidate"


@dataclass(frozen=True)
class StandInWorkload:
    """A workload of which only the name is known."""

    key: str
    kind: str
    flops: int = 0
    bytes: int = 0

    @property
    def text(self) -> str:
        """The canonical text."""
        return f"recorded {self.kind} {self.key}"


@dataclass(frozen=True, eq=False)
class StandInOption(Option):
    """An option of which only the workloads of its dispatches are known."""

    parts: tuple[Workload, ...] = ()

    @property
    def regions(self) -> tuple[Workload, ...]:
        """The workload of each dispatch, in order."""
        return self.parts


class NoRecipe:
    """Nothing is built of a recorded candidate."""

    def steps(self, schedule: Schedule, config: Choices) -> None:
        """Refuse: there is no schedule."""
        raise NotImplementedError("recorded candidates have no schedules")


@dataclass(frozen=True)
class CandidatePool:
    """The candidates of a workload, the default first: latencies alone in ns, infinite for those that fail, and
    inside the model over the default's."""

    alone_ns: NDArray[np.float64]
    inside: NDArray[np.float64]


@dataclass(frozen=True)
class PlaceTruth:
    """A site: the ns that one of its dispatches takes with each option and all defaults, and the shares of the option's
    workloads in that."""

    place: RecordedPlace
    ns: Mapping[str, float]
    shares: Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class PlanInUse:
    """The plan in use: options by the keys of their sites, and candidates by those of workloads, else the default."""

    options: Mapping[str, str]
    candidates: Mapping[str, int]


@dataclass(frozen=True)
class Truth:
    """The model: its ``sites`` and ``subjects`` for a job, and what everything in them really takes."""

    recording: RecordedJob
    pools: Mapping[str, CandidatePool]
    places: Sequence[PlaceTruth]

    @staticmethod
    def of(recording: RecordedJob, seed: int) -> Truth:
        """Draw it: of what was measured well it is that, of the rest what is likely by all that was measured."""
        rng = np.random.default_rng(seed)
        pools = {found.key: _pool(found, rng) for found in recording.workloads}
        alone = {found.key: found.alone_ns for found in recording.workloads}
        return Truth(recording, pools, [_place(place, alone, rng) for place in recording.places])

    @cached_property
    def target(self) -> Target:
        """The target that was recorded."""
        return Target.from_json(self.recording.target)

    @cached_property
    def workloads(self) -> Mapping[str, Workload]:
        """Stand-ins for the workloads, by key."""
        return {w.key: cast("Workload", StandInWorkload(w.key, w.kind)) for w in self.recording.workloads}

    @cached_property
    def sites(self) -> list[Site]:
        """The sites of the model."""
        return [self._site(place) for place in self.recording.places]

    @cached_property
    def subjects(self) -> list[Subject]:
        """The workloads to tune, those of the untuned model first."""
        names: dict[str, list[str]] = {}
        ordered = [site.default for site in self.sites], [o for site in self.sites for o in site.options[1:]]
        owners = {option: site for site in self.sites for option in site.options}
        for option in (*ordered[0], *ordered[1]):
            for step, region in enumerate(option.regions):
                more = "" if option.name == owners[option].default.name else f"/{option.name}/{step}"
                names.setdefault(region.key, []).extend(name + more for name in owners[option].names)
        return [self._subject(key, tuple(found)) for key, found in names.items()]

    def dispatches(self, plan: PlanInUse) -> Iterator[tuple[str, str, float, str]]:
        """Yield the name of each dispatch of a version, its workload's key, what it takes in ns, and of what."""
        for found in self.places:
            option = plan.options.get(found.place.workload, found.place.choices[0].name)
            keys = next(choice.workloads for choice in found.place.choices if choice.name == option)
            for step, (key, share) in enumerate(zip(keys, found.shares[option], strict=True)):
                number = plan.candidates.get(key, 0)
                ns = found.ns[option] * share * self.pools[key].inside[number]
                for name in found.place.names:
                    yield f"{name}/{step}", key, ns, f"{key} {number} {option}"

    def latency(self, plan: PlanInUse) -> float:
        """Return what the whole model takes, in ns."""
        return sum(self.place_ns(found, plan) * len(found.place.names) for found in self.places)

    def place_ns(self, found: PlaceTruth, plan: PlanInUse) -> float:
        """Return what a dispatch of a site takes."""
        option = plan.options.get(found.place.workload, found.place.choices[0].name)
        return self.option_ns(found, option, plan.candidates)

    def option_ns(self, found: PlaceTruth, option: str, candidates: Mapping[str, int]) -> float:
        """Return what a dispatch of a site takes with an option."""
        keys = next(choice.workloads for choice in found.place.choices if choice.name == option)
        ratios = [self.pools[key].inside[candidates.get(key, 0)] for key in keys]
        return found.ns[option] * float(np.dot(found.shares[option], ratios))

    @cached_property
    def untuned_ns(self) -> float:
        """The latency of the untuned model."""
        return self.latency(PlanInUse({}, {}))

    @cached_property
    def best_ns(self) -> float:
        """The latency of the best plan that there is."""
        best = {
            key: int(np.where(np.isfinite(p.alone_ns), p.inside, np.inf).argmin())
            for key, p in self.pools.items()
        }
        return sum(
            len(found.place.names) * min(self.option_ns(found, option, best) for option in found.ns)
            for found in self.places
        )

    def _site(self, place: RecordedPlace) -> Site:
        workload = self.workloads.get(place.workload) or cast(
            "Workload", StandInWorkload(place.workload, "chain")
        )
        options = tuple(self._option(workload, choice) for choice in place.choices)
        expected = {choice.name: choice.expected_ns for choice in place.choices if choice.expected_ns}
        return Site(place.names, workload, options, expected)

    def _option(self, workload: Workload, choice: RecordedChoice) -> Option:
        parts = tuple(self.workloads[key] for key in choice.workloads)
        # All that is asked of steps is if there are any, and their names and workloads.
        named = [SimpleNamespace(name=str(number), workload=part) for number, part in enumerate(parts)]
        steps: Any = None if parts == (workload,) else SimpleNamespace(dispatches=named)
        return StandInOption(workload, choice.name, steps=steps, parts=parts)

    def _subject(self, key: str, names: tuple[str, ...]) -> Subject:
        found = next(w for w in self.recording.workloads if w.key == key)
        workload: Any = self.workloads[key]
        knobs = (Knob.of(KNOB, tuple(range(len(self.pools[key].inside))), 0),)
        space = Space(workload, self.target, "recorded", knobs, (), NoRecipe())
        return Subject(names, workload, space, {KNOB: 0}, found.floor_ns)


def candidate_of(config: Config) -> int:
    """Return the number of a candidate."""
    return int(config[KNOB])


def _pool(found: RecordedCandidates, rng: np.random.Generator) -> CandidatePool:
    """Return the default, the recorded candidates, and others near them that are no better than the best of these."""
    alone = np.array([1.0, *(one[0] for one in found.candidates)])
    logs = np.array([0.0, *(one[1] + one[2] * rng.standard_normal() for one in found.candidates)])
    again = rng.integers(len(alone), size=max(0, CANDIDATES - len(alone)))
    near = np.maximum(logs[again] + np.abs(rng.normal(0.0, NEAR, len(again))), min(0.0, float(logs.min())))
    alone, logs = (
        np.append(alone, alone[again] * np.exp(rng.normal(0.0, NEAR, len(again)))),
        np.append(logs, near),
    )
    return CandidatePool(np.where(alone > 0, found.alone_ns * alone, np.inf), np.exp(logs))


def _place(place: RecordedPlace, alone: Mapping[str, float], rng: np.random.Generator) -> PlaceTruth:
    logs = {c.name: c.log + c.error * rng.standard_normal() for c in place.choices}
    ns = {name: place.ns * math.exp(log) for name, log in logs.items()}
    shares = {c.name: _shares([alone[key] for key in c.workloads]) for c in place.choices}
    return PlaceTruth(place, ns, shares)


def _shares(ns: Sequence[float]) -> list[float]:
    return [one / sum(ns) for one in ns]


__all__ = ["CANDIDATES", "CandidatePool", "PlaceTruth", "PlanInUse", "Truth", "candidate_of"]
