"""``python -m tests.stress``: random graphs of dispatches, as an experiment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from autotune.bench import options
from autotune.bench.experiment import Experiment, Record, Say
from autotune.cli.experiment import command_of
from autotune.cli.main import main
from autotune.errors import InternalError
from tests.stress import page
from tests.stress.run import stress

ABOUT = (
    "Random graphs of up to 200 dispatches on random queues of several devices with one to eight workers each, by "
    "several clients at once, with errors, cancellations, waits that are given up, devices taken away, allocations "
    "refused and graphs held back by watermarks. Every tile ran exactly once and in order, or its dispatch ended "
    "with the error that explains it; every device ended with no memory in use."
)
_MOST = 8


def measure(
    say: Say, tiles: int, counts: Sequence[int], kinds: Sequence[str], clients: int, seed: int
) -> Iterator[Sequence[Record]]:
    """Yield a record for each number of devices; raises InternalError where something does not hold."""
    for devices in counts:
        outcome = stress(tiles, seed=seed, devices=devices, clients=clients, kinds=kinds)
        if outcome.totals.problems:
            raise InternalError(f"with --seed {seed}: " + "\n  ".join(outcome.totals.problems[:20]))
        say(page.line(outcome))
        yield [page.record_of(outcome)]


EXPERIMENT = Experiment(
    title="Stress",
    about=ABOUT,
    summary="""Run random graphs on several devices, with errors, cancellations, lost devices and little memory.

    Every tile must run once, in order, or its dispatch end with the right error; it exits with 1 where something does
    not hold. Where nothing happens for a minute it says who waits for what.""",
    example="--tiles 10000000 --devices 1,2,3 -o results/stress.md",
    options=(
        options.number("--tiles", 1_000_000, "Run so many."),
        options.numbers(
            "--devices",
            "3",
            "Numbers of devices at a time, each run by itself.",
            int,
            1,
            _MOST,
            parameter="counts",
        ),
        options.listed(
            "--kinds",
            "",
            "Kinds of devices that take turns, cpu and opencl.  [default: those that there are]",
        ),
        click.Option(
            ["--clients"],
            type=click.IntRange(1, 64),
            default=3,
            show_default=True,
            help="Threads that submit graphs.",
        ),
        options.seed(),
    ),
    measure=measure,
    views=page.VIEWS,
)
command = command_of(EXPERIMENT, "stress", "python -m tests.stress")

if __name__ == "__main__":
    main(None, command, "python -m tests.stress")
