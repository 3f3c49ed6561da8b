"""``python -m tests.conformance``: ONNX's own tests through machine code, as an experiment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path

import click

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView
from autotune.bench.systems import find_peers
from autotune.cli.experiment import command_of
from autotune.cli.main import main
from autotune.errors import MeasureError, UsageError
from tests.conformance import expected, run

ABOUT = (
    "ONNX's own tests of its operators (onnx.backend.test): each model is imported, compiled to machine code and run, "
    "and its results compared by ONNX's tolerances. Which tests fail must be exactly what "
    "`tests/conformance/expected_failures.toml` lists, with a reason each."
)
OURS = "autotune"
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")


def measure(
    say: Say,
    kinds: Sequence[str],
    only: Sequence[str],
    every: int,
    jobs: int,
    journal: Path | None,
    peers: str,
    peer_pythons: Sequence[str],
) -> Iterator[Sequence[Record]]:
    """Yield a record for each test, by us and then by the peer."""
    every_test = run.names(KINDS)
    chosen = [
        name
        for name in every_test
        if name.partition("/")[0] in (kinds or KINDS)
        and (not only or any(fnmatchcase(name, pattern) for pattern in only))
    ][::every]
    if not chosen:
        raise UsageError(f"no test of ONNX is named like {', '.join(only)}\n  e.g. {every_test[0]}")
    systems = find_peers([] if peers == "none" else [peers], peer_pythons)
    yield _records(OURS, run.run(chosen, jobs=jobs, journal=journal, say=say))
    for peer in systems:
        outcomes = run.run(chosen, jobs=jobs, system=peer.name, python=peer.command[0], say=say)
        yield _records(peer.label, outcomes)


def _records(system: str, outcomes: Sequence[run.Outcome]) -> list[Record]:
    return [
        {
            "system": system,
            "kind": each.test.partition("/")[0],
            **asdict(each),
            "reason": "" if each.passed else expected.reason_of(each.test) or "no reason is known",
        }
        for each in outcomes
    ]


def check(rows: FrameRows) -> None:
    """Raise MeasureError where a test fails, or passes, that should not."""
    problems = [f"{name} is listed, but no test" for name in expected.stale(run.names(KINDS))]
    ours = rows.where(system=OURS)
    problems += expected.problems({row["test"]: row["passed"] for row in ours})
    if problems:
        raise MeasureError(f"{len(problems)} tests are not as expected:\n  " + "\n  ".join(problems))


EXPERIMENT = Experiment(
    title="ONNX's tests",
    about=ABOUT,
    summary="Run ONNX's own tests through machine code; it exits with 1 where one fails, or passes, that should not.",
    example="--only 'node/test_reduce_*' --journal conformance.jsonl",
    options=(
        click.Option(
            ["--kind", "kinds"],
            multiple=True,
            type=click.Choice(KINDS),
            help="Of this kind only; may be repeated.",
        ),
        click.Option(
            ["--only"], multiple=True, metavar="PATTERN", help="Names with wildcards; may be repeated."
        ),
        options.number("--every", 1, "A sample: every so many tests."),
        options.number("--jobs", 2, "Processes."),
        click.Option(
            ["--journal"],
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE.jsonl",
            help="Keep outcomes here; tests that it has are not run again.",
        ),
        *options.onnxruntime("none"),
    ),
    measure=measure,
    views=(
        TableView(
            "Tests",
            ("system", "kind"),
            (
                Column("system", "system"),
                Column("kind", "kind"),
                Column("passed", lambda rows: sum(rows.all("passed"))),
                Column("of", len),
                Column("fixed", lambda rows: sum(row["passed"] and bool(row["values"]) for row in rows)),
            ),
            notes=(
                "fixed: passed ones that have inputs which decide what is compiled (a shape, axes, bounds), "
                "known when their model was compiled",
            ),
        ),
        TableView(
            "Why tests fail",
            ("system", "kind", "reason"),
            (Column("kind", "kind"), Column("reason", "reason"), Column("tests", len)),
            where=lambda rows: rows.get("reason") and rows.get("system") == OURS,
        ),
    ),
    check=check,
)
command = command_of(EXPERIMENT, "conformance", "python -m tests.conformance")

if __name__ == "__main__":
    main(None, command, "python -m tests.conformance")
