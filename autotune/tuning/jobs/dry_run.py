"""The forecast of a job that is not done: of what its database knows already, and of the cost model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from autotune.compiler.plan import OPTION
from autotune.database import Database
from autotune.database.answers import KeptAnswers
from autotune.target import Target
from autotune.tuning.compare.sites import Sites
from autotune.tuning.jobs.beliefs import Beliefs
from autotune.tuning.jobs.budget import Budget
from autotune.tuning.jobs.forecast import Forecast, forecast
from autotune.tuning.jobs.policy import Policy
from autotune.tuning.jobs.rows import ModelRows
from autotune.tuning.jobs.subject import Subject, TunedModel, subjects_of
from autotune.tuning.jobs.task import Task
from autotune.tuning.search.online_model import OnlineModel
from autotune.tuning.search.samplers import factory
from autotune.tuning.search.study import Search


def foreseen(
    models: Sequence[TunedModel], target: Target, budget: Budget, database: Database
) -> Forecast | None:
    """Return what a job of models is expected to gain; None where there is neither a measurement nor an estimate."""
    tasks = [*map(partial(_task, database=database), subjects_of(models))]
    sites = Sites(tasks, [site for model in models for site in model.its_sites])
    policy = Policy(Beliefs(sites))
    compared = [site.workload.key for site in sites.several]
    policy.beliefs.history |= database.comparison_histories(compared, target.key, OPTION)
    for model in models:
        rankings = ModelRows(model, sites.of(model.name), KeptAnswers(database), target).rankings()
        for site in sites.of(model.name).several:
            ranking = rankings.get(site.workload.key)
            if ranking is not None and ranking.chosen in site.options:
                sites.used[site.workload.key] = ranking.chosen
    limit = math.inf if budget.limit_s is None else budget.limit_s
    trials = math.inf if budget.trials is None else budget.trials
    return forecast(sites, policy, limit, trials)


def _task(subject: Subject, database: Database) -> Task:
    search = Search(subject.space, factory("random", OnlineModel(None), 1), 0)
    task = Task(
        subject.names,
        subject.workload,
        subject.space,
        search,
        subject.default,
        floor_ns=subject.floor_ns,
        expected_ns=subject.expected_ns,
        alone=False,
    )
    key = task.key
    runs = database.records(workload=key.workload, target=key.target, space=key.space, after=0)
    past = {run.id for run in Task.past_runs(runs)}
    current = [run for run in runs if run.id not in past]
    task.recall(current, database.readings(key), database.compared_schedules(key), unchecked=True)
    return task


__all__ = ["foreseen"]
