"""Estimates of the options of a workload by the analytic model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from autotune.database.records import Ratio
from autotune.graph.region import Workload
from autotune.passes.options import Option, options_of
from autotune.runtime.image import largest_input
from autotune.target import Target


class TimeSource(StrEnum):
    """The source of the latency of an option, best source first."""

    MEASURED = "measured"
    """Inside a model, interleaved with other options."""
    STALE = "stale"
    """The same, with other code than is generated now."""
    ESTIMATED = "estimated"
    """The analytic model's time of the default schedules."""
    AT_LEAST = "estimated at least"
    """In part what arithmetic and traffic need at the machine's rates: too much to look closer."""


@dataclass(frozen=True)
class OptionTime:
    """The latency of an option, in ns for one execution, its source, and its ratio to the default if compared."""

    option: Option
    latency_ns: float
    source: TimeSource
    ratio: Ratio | None = None
    compared: float = 0.0
    """When it was measured, in seconds since 1970."""

    def __str__(self) -> str:
        gain = "" if self.ratio is None else f", {self.ratio}"
        text = f"{self.option.name}: {self.latency_ns / 1e3:.1f} µs {self.source}{gain}"
        if self.option.growth == 1:
            return text
        return f"{text} (inputs to {largest_input(self.option.growth):.0e})"


def estimated(options: Sequence[Option], target: Target, within: float) -> list[OptionTime]:
    """Return predictions of the analytic model, as far as they are needed to tell what is fastest.

    A search by least bound: what might be fastest is looked at closer, one dispatch a step. Estimates are complete
    for options of up to ``within`` times the time of the fastest, as far as they are promising.
    """
    bounds = [_Bound.of(option, target) for option in options]
    while True:
        fastest = min((b.total for b in bounds if not b.open), default=float("inf"))
        unsure = [b for b in bounds if b.open and b.total < min(within, b.option.promising) * fastest]
        if not unsure:
            break
        min(unsure, key=lambda b: b.total).refine(target)
    return [b.time for b in bounds]


@dataclass
class _Bound:
    """Seconds of each region of an option: predicted, and for those in ``open`` no more than a floor."""

    option: Option
    seconds: list[float]
    open: list[int]

    @classmethod
    def of(cls, option: Option, target: Target) -> _Bound:
        from cost_models import analytic

        floors = [analytic.in_model(analytic.floor(r, target), r, target) for r in option.regions]
        return cls(option, floors, sorted(range(len(floors)), key=floors.__getitem__))

    @property
    def total(self) -> float:
        return sum(self.seconds)

    @property
    def time(self) -> OptionTime:
        """Return the known time, in ns."""
        return OptionTime(
            self.option, 1e9 * self.total, TimeSource.AT_LEAST if self.open else TimeSource.ESTIMATED
        )

    def refine(self, target: Target) -> None:
        """Replace the largest floor by the analytic model's time of the default schedule."""
        from cost_models import analytic
        from search_spaces.spaces import space_for

        region = self.open.pop()
        workload = self.option.regions[region]
        predicted = analytic.default_seconds(space_for(workload, target))
        self.seconds[region] = analytic.in_model(predicted, workload, target)


@dataclass(frozen=True)
class EstimateTask:
    """:func:`estimated` for options of one workload, here or by a build worker."""

    options: tuple[Option, ...]
    target: Target
    within: float

    @property
    def what(self) -> str:
        """For messages."""
        return f"the estimates of a {self._workload.kind}"

    @property
    def _workload(self) -> Workload:
        return self.options[0].workload

    def run(self) -> list[OptionTime]:
        """Return the times, worked out here."""
        return estimated(self.options, self.target, self.within)

    def request(self) -> dict[str, Any]:
        """Return the request to a build worker."""
        return {
            "do": "estimate",
            "workload": self._workload.text,
            "target": self.target.to_json(),
            "names": [option.name for option in self.options],
            "tolerance": max(option.error for option in self.options),
            "within": self.within,
        }

    def result(self, answer: Mapping[str, Any]) -> list[OptionTime]:
        """Return the times that a build worker found; the default schedules behind them are known here from now on."""
        from cost_models import analytic

        analytic.remember(answer["defaults"])
        pairs = zip(self.options, answer["times"], strict=True)
        return [OptionTime(option, ns, TimeSource(source)) for option, (ns, source) in pairs]


def answer_estimate(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the build worker's side of :class:`EstimateTask`."""
    from cost_models import analytic

    target = Target.from_json(request["target"])
    found = options_of(Workload.parse(request["workload"]), tolerance=request["tolerance"])
    named = {option.name: option for option in found}
    options = tuple(named[name] for name in request["names"])
    times = EstimateTask(options, target, request["within"]).run()
    regions = {region.key for option in options for region in option.regions}
    return {
        "times": [[time.latency_ns, time.source.value] for time in times],
        "defaults": analytic.remembered(regions),
    }


__all__ = ["EstimateTask", "OptionTime", "TimeSource", "answer_estimate", "estimated"]
