"""What the analytic model says of the alternatives of a workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.compiler.standing import Source, Standing
from autotune.graph.region import Workload
from autotune.passes.alternatives import Alternative, alternatives_of
from autotune.target import Target


def estimated(
    allowed: Sequence[Alternative], target: Target, within: float, speculate: bool = True
) -> list[Standing]:
    """Predictions of the analytic model, as far as they are needed to tell what is fastest.

    A search by least bound: what might be fastest is looked at closer, one dispatch a step. Estimates are complete
    for alternatives of up to ``within`` times the time of the fastest; for speculative ones only with
    ``speculate``, or where there are no others.
    """
    speculate = speculate or all(alternative.speculative for alternative in allowed)
    found = [_Estimate.of(alternative, target) for alternative in allowed]
    while True:
        fastest = min((e.total for e in found if not e.open), default=float("inf"))
        unsure = [
            e
            for e in found
            if e.open and e.total < within * fastest and (speculate or not e.alternative.speculative)
        ]
        if not unsure:
            break
        min(unsure, key=lambda e: e.total).refine(target)
    return [e.standing(speculate) for e in found]


@dataclass
class _Estimate:
    """Seconds of each region of an alternative: predicted, and for those in ``open`` no more than a floor."""

    alternative: Alternative
    seconds: list[float]
    open: list[int]

    @classmethod
    def of(cls, alternative: Alternative, target: Target) -> _Estimate:
        from cost_models import analytic

        floors = [analytic.floor(r, target) + analytic.cold_seconds(r, target) for r in alternative.regions]
        return cls(alternative, floors, sorted(range(len(floors)), key=floors.__getitem__))

    @property
    def total(self) -> float:
        return sum(self.seconds)

    def standing(self, speculate: bool) -> Standing:
        """What is known, in ns."""
        source = Source.ESTIMATED
        if self.open:
            unseen = self.alternative.speculative and not speculate
            source = Source.FLOOR if unseen else Source.AT_LEAST
        return Standing(self.alternative, 1e9 * self.total, source)

    def refine(self, target: Target) -> None:
        """Replace the largest floor by the analytic model's time of the default schedule."""
        from cost_models import analytic
        from search_spaces.spaces import space_for

        region = self.open.pop()
        workload = self.alternative.regions[region]
        space = space_for(workload, target)
        (predicted,) = analytic.predict(space, [analytic.default_config(space)])
        self.seconds[region] = float(predicted) + analytic.cold_seconds(workload, target)


@dataclass(frozen=True)
class EstimateTask:
    """:func:`estimated` for alternatives of one workload, here or by a build worker."""

    allowed: tuple[Alternative, ...]
    target: Target
    within: float
    speculate: bool = True

    @property
    def what(self) -> str:
        """For messages."""
        return f"the estimates of a {self._workload.kind}"

    @property
    def _workload(self) -> Workload:
        return self.allowed[0].workload

    def run(self) -> list[Standing]:
        """The standings, worked out here."""
        return estimated(self.allowed, self.target, self.within, self.speculate)

    def request(self) -> dict[str, Any]:
        """What a build worker needs."""
        return {
            "do": "estimate",
            "workload": self._workload.text,
            "target": self.target.to_json(),
            "names": [alternative.name for alternative in self.allowed],
            "within": self.within,
            "speculate": self.speculate,
        }

    def result(self, answer: Mapping[str, Any]) -> list[Standing]:
        """The standings that a build worker found; the default schedules behind them are known here from now on."""
        from cost_models import analytic

        analytic.remember(answer["defaults"])
        pairs = zip(self.allowed, answer["standings"], strict=True)
        return [Standing(alternative, ns, Source(source)) for alternative, (ns, source) in pairs]


def answer_estimate(request: Mapping[str, Any]) -> dict[str, Any]:
    """The build worker's side of :class:`EstimateTask`."""
    from cost_models import analytic

    target = Target.from_json(request["target"])
    named = {a.name: a for a in alternatives_of(Workload.parse(request["workload"]))}
    allowed = tuple(named[name] for name in request["names"])
    standings = EstimateTask(allowed, target, request["within"], request["speculate"]).run()
    regions = {region.key for alternative in allowed for region in alternative.regions}
    return {
        "standings": [[s.latency_ns, s.source.value] for s in standings],
        "defaults": analytic.remembered(regions),
    }


__all__ = ["EstimateTask", "answer_estimate", "estimated"]
