"""Samplers and cost models compared over recorded spaces, as an experiment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView, at
from autotune.bench.tables import percent
from autotune.errors import UsageError
from autotune.suggest import counted

if TYPE_CHECKING:
    from autotune.bench.replay.compare import SearchComparison

METHOD, WORKLOAD = "sampler", "workload"
"""The subject of a row: a sampler over all workloads, or at one of them."""


def measure(
    say: Say,
    folder: Path,
    samplers: Sequence[str],
    models: Sequence[str],
    warm_start: bool,
    processes: int | None,
    **options: Any,
) -> Iterator[Sequence[Record]]:
    """Search the recordings of a folder by each sampler and cost model; the options are those of
    :class:`~autotune.bench.replay.compare.Searches`."""
    from autotune.bench.replay import compare as replay
    from autotune.bench.replay.recording import read_all
    from autotune.hardware import usable_cores

    recordings = read_all(folder)
    searches = replay.Searches(processes=processes or usable_cores(), **options)
    methods = replay.methods_of(samplers, models, warm_start=warm_start)
    found = replay.compare(recordings, methods, searches, say)
    trials, seeds = searches.trials, searches.seeds
    if not found.titles:
        raise UsageError(f"no recording in {folder} has more than {trials} candidates")
    machines = sorted({recording.facts.machine["processor"] for recording in recordings})
    about = {"recorded_on": "; ".join(machines), "trials": trials, "early": min(16, trials)}
    about["title"] = f"{counted(len(found.titles), 'workload')}, {counted(seeds, 'seed')}"
    yield [{**about, **record} for record in _records(found, trials)]


def _records(found: SearchComparison, trials: int) -> Iterator[Record]:
    import numpy as np

    further = ~np.isnan(found.trials(0)).all(axis=1)
    for number, method in enumerate(found.methods):
        tried = found.trials(number)
        reached = np.mean(tried[~np.isnan(tried)] <= trials) if further.any() else None
        yield {
            "of": METHOD,
            "sampler": method.name,
            "warm_start": method.near,
            "further": int(further.sum()),
            "begun": sum(map(bool, found.near)) if found.near else None,
            "workloads": len(found.titles),
            "regret_early": found.regret(number, min(16, trials)),
            "regret": found.regret(number, trials),
            "to_first": found.ratio(number, 0, trials),
            "trials_near": found.trials_mean(number) if further.any() else None,
            "saved": found.trials_mean(number, 0) if further.any() else None,
            # the row before is the same without a warm start
            "saved_warm": found.trials_mean(number, number - 1) if further.any() and method.near else None,
            "reached": None if reached is None else float(reached),
        }
    for at_, title in enumerate(found.titles):
        for number, method in enumerate(found.methods):
            yield {
                "of": WORKLOAD,
                "workload": title,
                "candidates": found.sizes[at_],
                "best_to_default": found.bests[at_],
                "sampler": method.name,
                "regret": found.regret_of(number, at_, trials),
            }


def _percents(estimate: Any) -> str:
    return f"{100 * estimate.mean:.1f} % ({100 * estimate.low:.1f} to {100 * estimate.high:.1f})"


def _means(rows: FrameRows) -> list[Column]:
    early, last = rows.get("early"), rows.get("trials")
    found = [Column("sampler", "sampler")]
    if early < last:
        found.append(Column(f"regret after {early}", "regret_early", _percents))
    found.append(Column(f"regret after {last}", "regret", _percents))
    return [*found, Column("found ÷ first", "to_first")]


def _trials(rows: FrameRows) -> list[Column]:
    warm = [Column("saved by the warm start", "saved_warm")] if rows.get("begun") is not None else []
    return [
        Column("sampler", "sampler"),
        Column("trials", "trials_near"),
        Column("saved", "saved"),
        *warm,
        Column("searches that came there", "reached", percent()),
    ]


def _workloads(rows: FrameRows) -> list[Column]:
    samplers = dict.fromkeys(rows.all("sampler"))
    return [
        Column("workload", "workload"),
        Column("candidates", "candidates"),
        Column("best ÷ default", "best_to_default", lambda value: f"{value:.2f}"),
        *(
            Column(name, at("regret", sampler=name), lambda one: f"{100 * one.mean:.1f} %")
            for name in samplers
        ),
    ]


def _notes(rows: FrameRows) -> Iterator[str]:
    yield f"recorded on: {rows.get('recorded_on')}"
    begun = rows.get("begun")
    if begun is not None:
        many = counted(rows.get("workloads"), "workload")
        yield f"warm start: {begun} of {many} begin with candidates of others"


def _samplers() -> Sequence[str]:
    from autotune.tuning.search.sampler import GUIDED
    from autotune.tuning.search.samplers import SAMPLERS

    return (GUIDED, *SAMPLERS)


def _models() -> Sequence[str]:
    from autotune.bench.replay.compare import MODELS

    return tuple(MODELS)


EXPERIMENT = Experiment(
    title="Searches of recorded spaces",
    about="Recorded candidates of each workload, searched by the loop of a tuning job with the readings of the "
    "recording. Only recorded candidates exist: ours draws among them, those of Optuna's samplers are moved to the "
    "nearest one that was not proposed yet, and random ones are drawn. Regret: by how much slower than the best "
    "recorded candidate is what was found after so many trials, of which the default is the first; the geometric mean "
    "over the workloads, "
    "and its 95 % interval over seeds (bootstrap). Found ÷ first: what was found over what the first row found with "
    "the same seeds. Trials to 95 %: how many until one has 95 % of the speed of the best recorded candidate, of "
    "workloads whose default has not; the geometric mean, its interval over workloads; a search that never comes so "
    "far counts one more than it has. Saved: those of the first row over those of this one. Warm start: the search "
    "begins with the candidates nearest to what was fastest of other recorded workloads, of the same structure in "
    "other sizes and then of the same kind; saved by it: the trials without it over those with it.",
    summary="""Search the recordings in FOLDER by samplers and cost models: how near the best do they end?

    Samplers of your own: autotune.bench.replay.compare in Python.""",
    example="results/replay --samplers guided,tpe -o samplers.md",
    options=(
        click.Argument(["folder"], type=click.Path(exists=True, file_okay=False, path_type=Path)),
        options.listed(
            "--samplers",
            "guided,tpe,nsga2,random",
            "Those of `autotune tune --sampler`.",
            known=_samplers,
            what="sampler",
        ),
        options.listed(
            "--models",
            "job,analytic,none",
            "Cost models that guide ours: a job's, which learns; the analytic one alone; none; prior, a job's that has "
            "learnt from the recordings of other models; reversed, the opposite of that.",
            known=_models,
            what="model",
        ),
        click.Option(
            ["--warm-start"],
            is_flag=True,
            help="Each of them once more, beginning with what was found for the nearest of the other workloads in "
            "FOLDER.",
        ),
        options.number("--trials", 64, "Of each search.", least=2),
        options.number("--seeds", 20, "Searches of each workload."),
        click.Option(
            ["--by"],
            type=click.Choice(["alone", "inside"]),
            default="alone",
            show_default=True,
            help="Isolated measurements, or as a job scores them: in-model ones where there are any.",
        ),
        options.number("--processes", None, "That search. [default: one a core]"),
    ),
    measure=measure,
    views=(
        TableView("{title}", ("sampler",), _means, of=METHOD),
        TableView(
            "Trials to 95 % of the best, {further} workloads whose default is further from it",
            ("sampler",),
            _trials,
            of=METHOD,
        ),
        TableView("Regret after {trials} trials", ("workload",), _workloads, of=WORKLOAD),
    ),
    notes=_notes,
)

__all__ = ["EXPERIMENT"]
