"""The report's part on one model of a job: what a compilation of it would use now, and how that was found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from autotune.compiler.plan import OPTION, with_options
from autotune.compiler.planned import TRANSFERRED, evidence_in
from autotune.database import Database
from autotune.database.query import Hit, Miss
from autotune.target import Target
from autotune.tuning.compare.sites import Sites
from autotune.tuning.jobs.subject import TunedModel
from autotune.tuning.jobs.task import Task
from autotune.tuning.measure.gain import Gain
from autotune.tuning.report.result import DispatchRow, ModelReport

if TYPE_CHECKING:
    from autotune.compiler.plan import Ranking


@dataclass(frozen=True)
class ModelRows:
    """The state of a model with these sites, by the database as it is now."""

    model: TunedModel
    sites: Sites
    database: Database
    target: Target

    def report(self, gain: Gain | None) -> ModelReport:
        """Return the model's part of the report."""
        rankings = self.rankings()
        decisions = (*map(str, self.model.decided), *self._decisions(rankings))
        return ModelReport(self.model.name, self.rows(rankings), decisions, gain)

    def rankings(self) -> Mapping[str, Ranking]:
        """Return the options of workloads with several, as a compilation ranks them now."""
        return {} if self.model.whole is None else self.model.whole.rankings()

    def rows(self, rankings: Mapping[str, Ranking]) -> tuple[DispatchRow, ...]:
        """Return the tasks that the model needs now."""
        uses = self.sites.uses({key: ranking.chosen for key, ranking in rankings.items()})
        tasks = [(task, uses[key]) for key, task in self.sites.task_of.items() if key in uses]
        return tuple(self._row(task, count, rankings) for task, count in tasks)

    def _decisions(self, rankings: Mapping[str, Ranking]) -> Iterator[str]:
        """Yield a line for the options of each workload with several: latencies, and which of them failed."""
        for site in self.sites.several:
            rows = self.database.comparison_history(site.workload.key, self.target.key, OPTION)
            if rows and site.workload.key in rankings:
                last = {row.name: row for row in rows}
                failed = [f"{row.name}: {row.message}" for row in last.values() if row.message]
                yield f"{site.names[0]}: {'; '.join([str(rankings[site.workload.key]), *failed])}"

    def _row(self, task: Task, count: int, rankings: Mapping[str, Ranking]) -> DispatchRow:
        key, names = task.key, self._names[task.workload.key]
        answer = self.database.lookup(key.workload, key.target, key.space)
        before, after = answer.latencies
        evidence = evidence_in(task.space, answer.evidence)
        if isinstance(answer, Hit) and task.may_be_stale(answer.best):
            evidence = TRANSFERRED  # not known to be of this version's code
        return DispatchRow(
            names[0],
            task.workload.kind,
            key.workload,
            count,
            before,
            after,
            len(task.known),
            with_options(key.workload, evidence, rankings),
            self._nodes(names),
            "" if isinstance(answer, Miss) else answer.best.origin.value,
        )

    @cached_property
    def _names(self) -> dict[str, tuple[str, ...]]:
        """The names of the model's dispatches, by the keys of their workloads."""
        return {subject.workload.key: subject.names for subject in self.model.subjects}

    def _nodes(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the model's nodes that a task's dispatches come from; steps are named after their dispatch."""
        dispatches = dict.fromkeys(name.partition("/")[0] for name in names)
        return tuple(dict.fromkeys(node for name in dispatches for node in self.model.origins.get(name, ())))


__all__ = ["ModelRows"]
