"""``python -m tests.conformance``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli import options_bench as shared
from autotune.cli.main import main
from autotune.cli.options_peers import with_onnxruntime

if TYPE_CHECKING:
    from autotune.bench.systems import System

ABOUT = (
    "ONNX's own tests of its operators (onnx.backend.test): each model is imported, compiled to machine code and run, "
    "and its results compared by ONNX's tolerances. Which tests fail must be exactly what "
    "`tests/conformance/expected_failures.toml` lists, with a reason each."
)
_KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")


@click.command(
    epilog="Example: python -m tests.conformance --only 'node/test_reduce_*' --journal conformance.jsonl",
)
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(_KINDS), help="Of this kind only; may be repeated."
)
@click.option("--only", multiple=True, metavar="PATTERN", help="Names with wildcards; may be repeated.")
@click.option("--every", type=click.IntRange(1), default=1, help="A sample: every so many tests.")
@shared.number_option("--jobs", 2, "Processes.")
@click.option(
    "--journal",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.jsonl",
    help="Keep outcomes here; tests that it has are not run again.",
)
@with_onnxruntime("none")
@shared.with_output
def command(
    output: shared.Output,
    kinds: Sequence[str],
    only: Sequence[str],
    every: int,
    jobs: int,
    journal: Path | None,
    peers: Sequence[System],
) -> None:
    """ONNX's own tests through machine code; it exits with 1 where one fails, or passes, that should not."""
    from fnmatch import fnmatchcase

    from autotune.errors import MeasureError, UsageError
    from tests.conformance import expected, page, run

    every_test = run.names(_KINDS)
    chosen = [
        name
        for name in every_test
        if name.partition("/")[0] in (kinds or _KINDS)
        and (not only or any(fnmatchcase(name, pattern) for pattern in only))
    ][::every]
    if not chosen:
        raise UsageError(f"no test of ONNX is named like {', '.join(only)}\n  e.g. {every_test[0]}")
    found = {"autotune": run.run(chosen, jobs=jobs, journal=journal, say=shared.say)}
    for peer in peers:
        found[peer.label] = run.run(
            chosen, jobs=jobs, system=peer.name, python=peer.command[0], say=shared.say
        )
    data = {system: [asdict(each) for each in outcomes] for system, outcomes in found.items()}
    output.finish(output.document("ONNX's tests", ABOUT, page.tables(found), data))
    problems = [f"{name} is listed, but no test" for name in expected.stale(every_test)]
    problems += expected.problems({each.test: each.passed for each in found["autotune"]})
    if problems:
        raise MeasureError(f"{len(problems)} tests are not as expected:\n  " + "\n  ".join(problems))


if __name__ == "__main__":
    main(None, command, "python -m tests.conformance")
