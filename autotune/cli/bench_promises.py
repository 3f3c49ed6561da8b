"""``autotune bench promises``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from autotune.cli import options_bench as shared
from autotune.cli.options import json_option

ABOUT = (
    "The gain that a tuning job reports, beside the same change read again when the job is over: a short job of each "
    "model and operator, from nothing."
)


@click.command(epilog="Example: autotune bench promises squeezenet GMM:1,512,512,512 --budget 60s")
@click.argument("names", nargs=-1)
@click.option("--budget", default="45s", show_default=True, metavar="TIME", help="Of each job.")
@click.option(
    "--processes",
    type=click.IntRange(6),
    default=18,
    show_default=True,
    metavar="N",
    help="Fresh processes that read each change again.",
)
@shared.threads_option("2")
@shared.output_option
@json_option
@click.pass_context
def command(
    context: click.Context,
    names: Sequence[str],
    budget: str,
    processes: int,
    threads: Sequence[int],
    output: Path | None,
    as_json: bool,
) -> None:
    """Are gains what jobs say; NAMES are zoo models and operators (ten of both by default)."""
    from autotune.bench import machine, promises
    from autotune.bench.tables import Document

    chosen, facts = promises.cases(names), machine.facts()
    found: dict[int, list[promises.Promise]] = {}

    def document() -> Document:
        tables = [promises.table(f"Gains of jobs, {n} thread{'s' if n > 1 else ''}", found[n]) for n in found]
        data = {str(number): [promise.to_json() for promise in done] for number, done in found.items()}
        return Document("Promises", shared.command_line(context), facts, tuple(tables), data, ABOUT)

    save = shared.saver(output)
    for number in threads:
        done = found[number] = []
        for promise in promises.promises(chosen, budget, number, processes):
            done.append(promise)
            shared.say(f"{promise.name}: {promise.reported}; again {promise.again}")
            if save is not None:
                save(document())
    shared.finish(document(), output, as_json)


__all__ = ["command"]
