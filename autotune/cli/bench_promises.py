"""``autotune bench promises``."""

from __future__ import annotations

from collections.abc import Sequence
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


@click.command(epilog="Example: autotune bench promises squeezenet GMM:1,512,512,512 --budget 60s")
@click.argument("names", nargs=-1)
@click.option("--budget", default="45s", show_default=True, metavar="TIME", help="Of each job.")
@shared.number_option("--processes", 18, "Fresh processes that read each change again.", least=6)
@shared.threads_option("2")
@shared.with_output
def command(
    output: shared.Output,
    names: Sequence[str],
    budget: str,
    processes: int,
    threads: Sequence[int],
) -> None:
    """Are gains what jobs say; NAMES are zoo models and operators (ten of both by default)."""
    from autotune.bench import promises

    chosen = promises.cases(names)
    found: dict[int, list[promises.Promise]] = {}

    def document() -> Document:
        tables = [promises.table(f"Gains of jobs, {counted(n, 'thread')}", found[n]) for n in found]
        data = {str(number): [promise.to_json() for promise in done] for number, done in found.items()}
        return output.document("Promises", ABOUT, tables, data)

    for number in threads:
        done = found[number] = []
        for promise in promises.promises(chosen, budget, number, processes):
            done.append(promise)
            shared.say(f"{promise.name}: {promise.reported}; again {promise.again}")
            output.save(document())
    output.finish(document())


__all__ = ["command"]
