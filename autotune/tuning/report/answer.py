"""The result of a query for one workload: the schedule that runs, its latency, and the evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.database import Evidence, Hit, Miss, Run
from autotune.foreign import preformatted
from autotune.suggest import counted
from autotune.tuning.report.units import nanoseconds

if TYPE_CHECKING:
    from autotune.compiler.plan import Ranking
    from autotune.compiler.planned import Planned
    from autotune.compiler.tiers import Tier, Transfer
    from autotune.database.front import FrontPoint
    from autotune.database.near import Neighbour
    from autotune.graph.program import AnyWorkload
    from search_spaces.space import Space


@dataclass(frozen=True, repr=False)
class Answer:
    """The database's result for one workload; ``names`` are the dispatches of the model that have it.

    ``nodes`` are the model's nodes that these come from. ``top`` holds the fastest runs, fastest first, if more than
    one was asked for. ``ranking`` has its options, if there are several; ``planned`` is the schedule in use, None where
    another option divides it, and ``evidence`` how well it is known to be the one to use. ``front`` has the runs that
    no other beats in latency, memory and bytes of the artifact, ``near`` what is nearest to what is missing, if they
    were asked for. ``space`` is its search space, ``floor_ns`` what no schedule undercuts (the roofline); None for a
    program of a user's own.
    """

    names: tuple[str, ...]
    workload: AnyWorkload
    answer: Hit | Miss
    top: tuple[Run, ...]
    evidence: Evidence
    ranking: Ranking | None = None
    planned: Planned | None = None
    nodes: tuple[str, ...] = ()
    front: tuple[FrontPoint, ...] = ()
    near: tuple[Neighbour, ...] = ()
    space: Space | None = None
    floor_ns: float | None = None
    checked: bool = False
    """The code of the schedule was generated, and compared with that which was measured."""

    @property
    def code(self) -> str | None:
        """Return whether the code that was measured is that of today: "checked", "not checked" or "stale"; None where
        nothing measured here is used."""
        if self.planned is not None and self.planned.stale:
            return "stale"
        return None if self.measured is None else "checked" if self.checked else "not checked"

    @property
    def divided(self) -> bool:
        """Return whether the model runs the dispatches of another algorithm instead, which have answers
        of their own."""
        return self.ranking is not None and self.ranking.chosen.steps is not None

    @property
    def tier(self) -> Tier:
        """Return the source of the schedule."""
        from autotune.compiler.tiers import Tier

        if self.planned is not None:
            return self.planned.tier
        return Tier.ANALYTIC if isinstance(self.answer, Miss) else Tier.EXACT

    @property
    def transfer(self) -> Transfer | None:
        """Return the origin of the schedule, where it was found for another target or other sizes."""
        return None if self.planned is None else self.planned.transfer

    @property
    def measured(self) -> Hit | None:
        """Return the measurement of the schedule that is used, here."""
        from autotune.compiler.tiers import Tier

        return self.answer if isinstance(self.answer, Hit) and self.tier is Tier.EXACT else None

    @property
    def predicted_ns(self) -> float | None:
        """The analytic model's latency of the default: to choose that takes longer than all else, so only if asked."""
        from cost_models import analytic

        return None if self.space is None else 1e9 * analytic.default_seconds(self.space)

    @property
    def latency_ns(self) -> float | None:
        """Of what is used: measured, expected of a transferred schedule, or predicted."""
        if self.measured is not None:
            return self.measured.latencies[1]
        return self.predicted_ns if self.transfer is None else self.transfer.latency_ns

    @property
    def default_ns(self) -> float | None:
        """Of the default schedule, from the same source."""
        if self.measured is not None:
            return self.measured.latencies[0]
        latency = self.latency_ns
        if self.transfer is None or latency is None:
            return latency
        return latency / self.transfer.ratio.median

    @property
    def interval_ns(self) -> tuple[float, float] | None:
        """95 % interval of the latency where there is one: by the comparison with the default, or by the error of
        what is expected."""
        if self.transfer is not None:
            return self.transfer.interval_ns
        ratio, default = self.evidence.ratio, self.default_ns
        if self.measured is None or ratio is None or ratio.interval is None or default is None:
            return None
        return ratio.interval[0] * default, ratio.interval[1] * default

    @property
    def title(self) -> str:
        """The first dispatch and how many there are; without a model the kind of workload."""
        if not self.names:
            return self.workload.kind
        return self.names[0] + (f" ×{len(self.names)}" if len(self.names) > 1 else "")

    @property
    def sure(self) -> str:
        """Return its source and evidence, in a few words."""
        return f"{self.tier}: {self.evidence if self.transfer is None else self.transfer.speed}"

    @property
    def reason(self) -> str:
        """Why nothing measured here is used, and why nothing of the database; empty where something is."""
        if self.planned is not None:
            return self.planned.reason
        return self.answer.found if isinstance(self.answer, Miss) else ""

    @property
    def summary(self) -> str:
        """Return the result in a line: evidence, latencies and how many runs worked, or why there is nothing."""
        found = self.answer
        if self.transfer is not None:
            return f"{self.tier}: {self.transfer}"
        if isinstance(found, Miss):
            return f"{self.tier}: {self.reason}; {found.advice}"
        why = f"; {self.planned.reason}" if self.planned is not None and self.planned.reason else ""
        why += f"; code {self.code}" if self.code is not None else ""
        return f"{self.evidence}; {measured(found)}{why}"

    def _repr_html_(self) -> str:
        schedule = "" if self.planned is None else f"\n{self.planned.trace}"
        return preformatted(f"{self.title}: {self.summary}{schedule}")

    def __repr__(self) -> str:
        return f"<Answer {self.title} {self.workload.signature}: {self.summary}>"


def measured(found: Hit) -> str:
    """Return the latencies of the best run and of the default, where they were measured, and how many runs worked."""
    default, best = found.latencies
    where = f"inside {found.best.inside}" if found.side_by_side else "alone"
    worked = f"{found.ok} of {counted(found.runs, 'run')} worked"
    return f"{nanoseconds(best)} {where} (default {nanoseconds(default)}), {worked}"


__all__ = ["Answer", "measured"]
