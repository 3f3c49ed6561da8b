"""``python -m tests.stress``."""

from __future__ import annotations

from collections.abc import Sequence

import click

from autotune.cli import options_bench as shared
from autotune.cli.main import main
from autotune.cli.options import seed_option
from autotune.errors import UsageError

ABOUT = (
    "Random graphs of up to 200 dispatches on random queues of several devices with one to eight workers each, by "
    "several clients at once, with errors, cancellations, waits that are given up, devices taken away, allocations "
    "refused and graphs held back by watermarks. Every tile ran exactly once and in order, or its dispatch ended "
    "with the error that explains it; every device ended with no memory in use."
)
_MOST = 8


def _devices(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        found = tuple(dict.fromkeys(int(part) for part in value.split(",")))
    except ValueError as error:
        raise UsageError(f"--devices {value!r} is no list of numbers such as 1,2,3") from error
    if not all(1 <= number <= _MOST for number in found):
        raise UsageError(f"--devices {value}: 1 to {_MOST} at a time")
    return found


@click.command(
    epilog="Example: python -m tests.stress --tiles 10000000 --devices 1,2,3 -o results/stress.md",
)
@shared.number_option("--tiles", 1_000_000, "Run so many.")
@click.option(
    "--devices",
    "counts",
    default="3",
    show_default=True,
    metavar="N,N",
    callback=_devices,
    help="Numbers of devices at a time, each run by itself.",
)
@click.option(
    "--kinds",
    default="",
    metavar="KIND,KIND",
    help="Kinds of devices that take turns, cpu and opencl.  [default: those that there are]",
)
@click.option(
    "--clients", type=click.IntRange(1, 64), default=3, show_default=True, help="Threads that submit graphs."
)
@seed_option
@shared.with_output
def command(
    output: shared.Output, tiles: int, counts: Sequence[int], kinds: str, clients: int, seed: int
) -> None:
    """Random graphs of dispatches on several devices, with errors, cancellations, lost devices and little memory.

    Every tile must run once, in order, or its dispatch end with the right error; it exits with 1 where something does
    not hold. Where nothing happens for a minute it says who waits for what.
    """
    from autotune.errors import InternalError
    from tests.stress import page as stress_page
    from tests.stress.run import Outcome, stress

    found: list[Outcome] = []
    for devices in counts:
        outcome = stress(
            tiles,
            seed=seed,
            devices=devices,
            clients=clients,
            kinds=[kind.strip() for kind in kinds.split(",") if kind.strip()],
        )
        if outcome.totals.problems:
            raise InternalError(f"with --seed {seed}: " + "\n  ".join(outcome.totals.problems[:20]))
        found.append(outcome)
        shared.say(stress_page.line(outcome))
    data = [stress_page.values(outcome) for outcome in found]
    output.finish(output.document("Stress", ABOUT, stress_page.tables(found), data))


if __name__ == "__main__":
    main(None, command, "python -m tests.stress")
