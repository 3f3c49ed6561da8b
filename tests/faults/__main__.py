"""``python -m tests.faults``."""

from __future__ import annotations

import click

from autotune.cli import options_bench as shared
from autotune.cli.main import main

ABOUT = (
    "Each fault is made for users of a model of two dependent stages: in this process, with the stages on two "
    "halves of its cores, and with the second one on an OpenCL device. Users call one after another, from four "
    "threads, or have several requests in flight. Each fault is one error to its caller, with its origin; all "
    "others get right answers; and no memory of a device is in use when the model was closed. Errors of drivers, "
    "lost devices and refused memory are made in front of the driver."
)


@click.command(
    epilog="Example: python -m tests.faults -o results/faults.md",
)
@click.option(
    "--only", default="", metavar="TEXT", help="Those faults whose name has this in it, as --only memory."
)
@shared.with_output
def command(output: shared.Output, only: str) -> None:
    """Faults of devices, drivers, requests and processes, as users of a model meet them; some ten seconds.

    It exits with 1 where one is not one error to its caller alone, where another answer is wrong, or memory is lost.
    """
    from dataclasses import asdict

    from autotune.errors import InternalError, UsageError
    from tests.faults import page as fault_page
    from tests.faults.places import kinds
    from tests.faults.run import faults_of, try_fault

    wanted = [
        (name, kind, way)
        for kind in kinds()
        for name, (_, ways) in faults_of(kind).items()
        for way in ways
        if only in name
    ]
    if not wanted:
        known = "\n  ".join(dict.fromkeys(name for kind in kinds() for name in faults_of(kind)))
        raise UsageError(f"--only {only!r} is in the name of no fault; there are\n  {known}")
    found = []
    for name, kind, way in wanted:
        found.append(try_fault(name, kind, way))
        shared.say(fault_page.line(found[-1]))
    wrong = [fault_page.line(each) for each in found if each.problems]
    if wrong:
        raise InternalError("faults that did more than they may:\n  " + "\n  ".join(wrong))
    output.finish(
        output.document(
            "Faults, as users meet them", ABOUT, fault_page.tables(found), [asdict(each) for each in found]
        )
    )


if __name__ == "__main__":
    main(None, command, "python -m tests.faults")
