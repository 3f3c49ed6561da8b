"""``python -m results.bench promises``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli import options_bench as shared
from autotune.suggest import counted

if TYPE_CHECKING:
    from autotune.bench.tables import Document

ABOUT = (
    "The gain that a tuning job reports, beside the same change read again when the job is over: a short job of each "
    "model and operator, from nothing."
)
ABOUT_SAME = (
    "The gain that tuning jobs report where there is none to find: a short job of each, from nothing."
)


@click.command(epilog="Example: python -m results.bench promises squeezenet GMM:1,512,512,512 --budget 60s")
@click.argument("names", nargs=-1)
@click.option("--budget", default="45s", show_default=True, metavar="TIME", help="Of each job.")
@shared.number_option("--processes", 18, "Fresh processes that read each change again.", least=6)
@click.option("--trials", type=click.IntRange(1), metavar="N", help="Of each job, instead of a time budget.")
@click.option(
    "--same-code", is_flag=True, help="Give candidates their default's machine code: is a gain reported?"
)
@click.option("--twice", is_flag=True, help="Two independent jobs of each: are their winners as fast?")
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Keep the databases of the jobs in this folder.",
)
@shared.threads_option("2")
@shared.with_output
def command(
    output: shared.Output,
    names: Sequence[str],
    budget: str,
    processes: int,
    trials: int | None,
    same_code: bool,
    twice: bool,
    keep: Path | None,
    threads: Sequence[int],
) -> None:
    """Are gains what jobs say; NAMES are zoo models and operators (ten of both by default).

    With --same-code there is nothing to gain, in operators of one algorithm: a name may be given several times.
    With --twice each has two jobs, and their winners are compared.
    """
    from autotune.tuning.budget import Budget
    from results.bench import promises

    limit = Budget(budget) if trials is None else Budget(trials=trials)
    chosen = promises.cases(names)
    found: dict[int, list[promises.Jobs]] = {}
    same: dict[int, list[promises.Unchanged]] = {}

    def document() -> Document:
        made = {n: [promise for jobs in done for promise in jobs.promises] for n, done in found.items()}
        tables = [promises.table(f"Gains of jobs, {counted(n, 'thread')}", made[n]) for n in made]
        if twice:
            tables += [
                promises.winners_table(f"Two jobs of each, {counted(n, 'thread')}", found[n]) for n in found
            ]
        tables += [promises.unchanged_table(f"The same code, {counted(n, 'thread')}", same[n]) for n in same]
        data = {str(number): [job.to_json() for job in done] for number, done in found.items()}
        data |= {str(number): [job.to_json() for job in done] for number, done in same.items()}
        return output.document("Promises", ABOUT_SAME if same_code else ABOUT, tables, data)

    for number in threads:
        if same_code:
            for job in promises.unchanged(chosen, limit, number):
                same.setdefault(number, []).append(job)
                shared.say(f"{job.name}: {job.claims} gains of dispatches; {job.report.gain}")
                output.save(document())
        else:
            for jobs in promises.promises(chosen, limit, number, processes, twice=twice, keep=keep):
                found.setdefault(number, []).append(jobs)
                for promise in jobs.promises:
                    shared.say(f"{promise.name}: {promise.reported}; again {promise.again}")
                output.save(document())
    output.finish(document())


__all__ = ["command"]
