"""``python -m tests.faults``: faults as users of a model meet them, as an experiment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView
from autotune.bench.tables import NOTHING
from autotune.cli.experiment import command_of
from autotune.cli.main import main
from autotune.errors import InternalError, UsageError
from tests.faults.places import kinds
from tests.faults.run import Outcome, faults_of, try_fault

ABOUT = (
    "Each fault is made for users of a model of two dependent stages: in this process, with the stages on two "
    "halves of its cores, and with the second one on an OpenCL device. Users call one after another, from four "
    "threads, or have several requests in flight. Each fault is one error to its caller, with its origin; all "
    "others get right answers; and no memory of a device is in use when the model was closed. Errors of drivers, "
    "lost devices and refused memory are made in front of the driver."
)
_SHOWN = 110


def measure(say: Say, only: str) -> Iterator[Sequence[Record]]:
    """Make each fault at each place in each way; yield a record of what happened."""
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
    for name, kind, way in wanted:
        found = try_fault(name, kind, way)
        say(line(found))
        yield [asdict(found) | {"line": line(found)}]


def line(outcome: Outcome) -> str:
    """Return one outcome in a line."""
    held = "; ".join(outcome.problems) or "holds"
    return f"{outcome.where}, {outcome.fault}, {outcome.way}: {held}"


def check(rows: FrameRows) -> None:
    """Raise InternalError for faults that did more than they may."""
    wrong = [row["line"] for row in rows if row["problems"]]
    if wrong:
        raise InternalError("faults that did more than they may:\n  " + "\n  ".join(wrong))


def _short(error: str) -> str:
    text = " ".join(error.replace("|", "/").split())
    return (text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…") or NOTHING


EXPERIMENT = Experiment(
    title="Faults, as users meet them",
    about=ABOUT,
    summary="""Make faults of devices, drivers, requests and processes, as users of a model meet them; some ten seconds.

    It exits with 1 where one is not one error to its caller alone, where another answer is wrong, or memory is
    lost.""",
    example="-o results/faults.md",
    options=(
        click.Option(
            ["--only"],
            default="",
            metavar="TEXT",
            help="Those faults whose name has this in it, as --only memory.",
        ),
    ),
    measure=measure,
    views=(
        TableView(
            "{where}",
            ("fault", "way"),
            (
                Column("fault", "fault"),
                Column("users have", "way"),
                Column("others right", lambda rows: f"{rows.get('good')} of {rows.get('others')}"),
                Column("beside", "beside"),
                Column("bytes after", "live_bytes"),
                Column("its caller got", "error", _short),
            ),
            ("where",),
            notes=(
                "others right: answers of requests without the fault, and of those afterwards where the model could "
                "answer; how many those are that were answered before something was closed is chance",
                "beside: right answers of another module of this process meanwhile",
                "bytes after: in use on all devices, when the model was closed and they were not",
            ),
        ),
    ),
    check=check,
)
command = command_of(EXPERIMENT, "faults", "python -m tests.faults")

if __name__ == "__main__":
    main(None, command, "python -m tests.faults")
