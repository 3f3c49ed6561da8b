"""``python -m results.bench search``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from autotune.cli import options_bench as shared
from autotune.suggest import counted

if TYPE_CHECKING:
    from autotune.bench.tables import Table
    from results.bench.search import ScoreSpeed, TrialSpeed

ABOUT = (
    "How fast the search is. A trial is one measured candidate; its time includes starting the job, proposing, "
    "building, checking against the reference and timing. Scoring a candidate is computing its features and "
    "predicting its rank, on one core."
)


@click.command(
    epilog="Example: python -m results.bench search GMM C2D --trials 128 --threads 2 -o results/search.md"
)
@click.argument("names", nargs=-1)
@shared.number_option("--trials", 64, "Of each operator.")
@shared.number_option("--candidates", 20_000, "Candidates to score.")
@shared.threads_option("2")
@shared.with_output
def command(
    output: shared.Output, names: Sequence[str], trials: int, candidates: int, threads: Sequence[int]
) -> None:
    """Trials a second of tuning jobs, and candidates scored a second; NAMES are operator families.

    Another tuner's trials beside ours: autotune bench operators --peers metaschedule.
    """
    from autotune.files import scratch_folder
    from results.bench import search

    shared.check_known(names, (family for family, _ in search.SUITE), "operator")
    cases = search.cases(names)
    tables: list[Table] = []
    jobs: dict[str, list[search.TrialSpeed]] = {}
    with scratch_folder("autotune-bench-") as folder:
        for number in threads:
            found = jobs[str(number)] = []
            for case in cases:
                shared.say(f"{case.family} {case.name}: {trials} trials, {counted(number, 'thread')}")
                found.append(search.trial_speed(case, trials, number, folder))
            tables.append(_trials(f"Trials, {counted(number, 'thread')}", found))
    scores = []
    for case in cases:
        shared.say(f"{case.family} {case.name}: {candidates} candidates")
        scores.append(search.score_speed(case, candidates))
    tables.append(_scores(scores))
    data = {
        "trials": {number: [asdict(job) for job in found] for number, found in jobs.items()},
        "scores": [asdict(score) for score in scores],
    }
    output.finish(output.document("Search speed", ABOUT, tables, data))


def _trials(title: str, found: Sequence[TrialSpeed]) -> Table:
    from autotune.bench.tables import Table, duration

    rows = [
        (
            job.name,
            str(job.trials),
            f"{job.seconds:.1f} s",
            f"{job.per_second:.1f}",
            duration(job.default_ns),
            duration(job.best_ns),
            job.gain,
            ", ".join(f"{count} {name}" for name, count in sorted(job.outcomes.items())),
        )
        for job in found
    ]
    total, seconds = sum(job.trials for job in found), sum(job.seconds for job in found)
    mean = f"{total / seconds:.1f}" if seconds else ""
    rows.append(("all", str(total), f"{seconds:.1f} s", mean, "", "", "", ""))
    head = ("operator", "trials", "time", "trials/s", "default", "tuned", "speed-up", "outcomes")
    return Table(title, head, tuple(rows))


def _scores(scores: Sequence[ScoreSpeed]) -> Table:
    from autotune.bench.tables import Table

    rows = [
        (
            score.name,
            str(score.candidates),
            f"{score.candidates / score.features_s:,.0f}",
            f"{score.per_second:,.0f}",
        )
        for score in scores
    ]
    total = sum(score.candidates for score in scores) / sum(score.score_s for score in scores)
    rows.append(("all", str(sum(score.candidates for score in scores)), "", f"{total:,.0f}"))
    head = ("operator", "candidates", "features only, a second", "scored a second")
    return Table("Candidates scored on one core", head, tuple(rows))


__all__ = ["command"]
