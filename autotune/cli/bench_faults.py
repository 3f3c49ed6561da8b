"""``autotune bench faults``."""

from __future__ import annotations

import click

from autotune.cli import options_bench as shared

ABOUT = (
    "Each fault is made for users of a model of two dependent stages: in this process, with the stages on two "
    "halves of its cores, and with the second one on an OpenCL device. Users call one after another, from four "
    "threads, or have several requests in flight. Each fault is one error to its caller, with its origin; all "
    "others get right answers; and no memory of a device is in use when the model was closed. Errors of drivers, "
    "lost devices and refused memory are made in front of the driver."
)


@click.command(epilog="Example: autotune bench faults -o results/faults.md")
@click.option(
    "--only", default="", metavar="TEXT", help="Those faults whose name has this in it, as --only memory."
)
@shared.with_output
def command(output: shared.Output, only: str) -> None:
    """Faults of devices, drivers, requests and processes, as users of a model meet them; some ten seconds.

    It exits with 1 where one is not one error to its caller alone, where another answer is wrong, or memory is lost.
    """
    from dataclasses import asdict

    from autotune.bench import fault_page
    from autotune.bench.fault_places import kinds
    from autotune.bench.faults import faults_of, try_fault
    from autotune.errors import InternalError, UsageError

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


__all__ = ["command"]
