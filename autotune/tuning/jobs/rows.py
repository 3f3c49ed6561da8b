"""The report's part on one model of a job: what a compilation of it would use now, and how that was found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.compiler.plan import OPTION, with_options
from autotune.compiler.planned import TRANSFERRED, evidence_in
from autotune.database.answers import KeptAnswers
from autotune.database.query import Hit, Miss
from autotune.graph.region import Workload
from autotune.target import Target
from autotune.tuning.compare.sites import Sites
from autotune.tuning.jobs.subject import TunedModel
from autotune.tuning.jobs.task import Task
from autotune.tuning.measure.gain import Gain
from autotune.tuning.report.result import DispatchRow, ModelReport, OptionRow
from cost_models import analytic

if TYPE_CHECKING:
    from autotune.compiler.plan import Ranking


@dataclass(frozen=True)
class ModelRows:
    """The state of a model with these sites, by the database as it is now."""

    model: TunedModel
    sites: Sites
    answers: KeptAnswers
    target: Target

    def report(self, gain: Gain | None, untimed: str = "") -> ModelReport:
        """Return the model's part of the report; ``untimed`` says why there is no gain."""
        rankings = self.rankings()
        decisions = (*map(str, self.model.decided), *self._decisions(rankings))
        options = tuple(self._options(rankings))
        return ModelReport(self.model.name, self.rows(rankings), decisions, gain, untimed, options)

    def rankings(self) -> Mapping[str, Ranking]:
        """Return the options of workloads with several, as a compilation ranks them now."""
        return {} if self.model.whole is None else self.model.whole.rankings()

    def rows(self, rankings: Mapping[str, Ranking]) -> tuple[DispatchRow, ...]:
        """Return the tasks that the model needs now."""
        placed = self.sites.placed({key: ranking.chosen for key, ranking in rankings.items()})
        tasks = [(task, placed[key]) for key, task in self.sites.task_of.items() if key in placed]
        found = self.answers.lookup(task.key for task, _ in tasks)
        return tuple(self._row(task, found[task.key], names, rankings) for task, names in tasks)

    def _options(self, rankings: Mapping[str, Ranking]) -> Iterator[OptionRow]:
        """Yield the options in use that make several dispatches of one."""
        for site in self.sites.all:
            ranking = rankings.get(site.workload.key)
            option = site.default if ranking is None else ranking.chosen
            if option.steps is None:
                continue
            ratio = None if ranking is None else ranking.times[0].ratio
            changed = ratio is not None and ratio.changed
            gain = (
                "default" if option.name == site.default.name and not changed else str(ratio or "unconfirmed")
            )
            yield OptionRow(
                site.names[0],
                option.name,
                len(site.names),
                tuple(region.key for region in option.regions),
                ratio.median if ratio is not None and changed else None,
                gain,
            )

    def _decisions(self, rankings: Mapping[str, Ranking]) -> Iterator[str]:
        """Yield a line for the options of each workload with several: latencies, and which of them failed."""
        keys = [site.workload.key for site in self.sites.several]
        compared = self.answers.database.comparison_histories(keys, self.target.key, OPTION)
        for site in self.sites.several:
            rows = compared.get(site.workload.key)
            if rows and site.workload.key in rankings:
                last = {row.name: row for row in rows}
                failed = [f"{row.name}: {row.message}" for row in last.values() if row.message]
                yield f"{site.names[0]}: {'; '.join([str(rankings[site.workload.key]), *failed])}"

    def _row(
        self, task: Task, answer: Hit | Miss, names: tuple[str, ...], rankings: Mapping[str, Ranking]
    ) -> DispatchRow:
        key = task.key
        before, after = answer.latencies
        evidence = evidence_in(task.space, answer.evidence)
        if isinstance(answer, Hit) and task.may_be_stale(answer.best):
            evidence = TRANSFERRED  # not known to be of this version's code
        return DispatchRow(
            names[0],
            task.workload.kind,
            key.workload,
            len(names),
            before,
            after,
            len(task.known),
            with_options(key.workload, evidence, rankings),
            self._nodes(names),
            "" if isinstance(answer, Miss) else answer.best.origin.value,
            names,
            not (isinstance(answer, Hit) and answer.side_by_side),
            evidence.gain,
            1e9 * analytic.floor(task.workload, self.target) if isinstance(task.workload, Workload) else None,
            "" if isinstance(answer, Miss) else answer.best.host,
        )

    def _nodes(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the model's nodes that a task's dispatches come from; steps are named after their dispatch."""
        dispatches = dict.fromkeys(name.partition("/")[0] for name in names)
        return tuple(dict.fromkeys(node for name in dispatches for node in self.model.origins.get(name, ())))


__all__ = ["ModelRows"]
