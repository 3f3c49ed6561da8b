"""``autotune compile``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from autotune.cli.common import EPILOG_DATABASE, announce, json_option, print_json
from autotune.cli.echo import echo
from autotune.cli.options import (
    accuracy_options,
    compilation_json,
    model_argument,
    print_compilation,
    request_flags,
)
from autotune.cli.verbosity import is_quiet, is_verbose, verbosity
from autotune.compiler.request import CompileOptions, CompileRequest
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.compiler.explain import Compilation
    from autotune.quantization.compiling import AccurateRequest


@click.command(
    epilog="Example: autotune compile model.onnx -o model.atm --db tuning.db, for a small artifact "
    "autotune compile model.onnx -o small.atm --objective size --max-slowdown 1.05, for two kinds of machines "
    f"--target x86-64-v3 --target x86-64-v4. {EPILOG_DATABASE}"
)
@model_argument
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The artifact to write.")
@accuracy_options()
@request_flags(CompileOptions)
@verbosity(
    "Print only where the artifact is.", "Print a line a dispatch, with what its schedule is based on."
)
@json_option
def command(
    model: str,
    output: Path,
    accuracy: str | None,
    data: Path | None,
    as_json: bool,
    **options: Unpack[CompileOptions],
) -> None:
    """Compile MODEL with the best schedules of the database; workloads without one get the default schedule.

    With --accuracy products are computed in less than float32 where that is predicted to be faster, as far as the
    error of the outputs allows.
    """
    request = CompileRequest(model, **options).checked()
    announce(f"compiling {model}")
    from autotune.cli.affinity_lines import placed_json, placed_lines
    from autotune.runtime.artifacts import artifact
    from autotune.tuning.api import check_cores
    from autotune.tuning.compiling import compile_request
    from autotune.tuning.measure.accuracy import checked

    def as_dict(done: Compilation) -> dict[str, Any]:
        return compilation_json(done, where) if done.affinities is None else placed_json(done, where)

    def show(done: Compilation) -> None:
        if done.affinities is None:
            print_compilation(done, where, request, details=is_verbose())
        else:
            echo("\n".join(placed_lines(done, where, details=is_verbose())))

    check_cores(request)
    start = time.perf_counter()
    accurate = _within(request, accuracy, data)
    made = compile_request(request, announce) if accurate is None else accurate.compiled
    artifact.save(made.model, output)
    facts: dict[str, Any] = {
        "artifact": str(output),
        "bytes": output.stat().st_size,
        "seconds": time.perf_counter() - start,
    }
    if accurate is not None:
        facts["accuracy"] = accurate.to_json()
    where = made.where
    cases = {
        ", ".join(filter(None, (case.target, case.sizes))): checked(case.done, model)
        if case.done.affinities is None and not case.sizes
        else case.done
        for case in made.cases
    }
    first = made.cases[0]
    kind = "cases" if first.target and first.sizes else "sizes" if first.sizes else "targets"
    several = bool(first.target or first.sizes)
    if as_json:
        shown = {name: as_dict(done) for name, done in cases.items()}
        print_json(facts | ({kind: shown} if several else shown[""]))
        return
    for name, done in () if is_quiet() else cases.items():
        if several:
            echo(f"for {name}")
        show(done)
    if accurate is not None and not is_quiet():
        echo(accurate.lines)
    many = f" for {len(cases)} {kind}" if several else ""
    echo(f"wrote {output}: {facts['bytes'] / 1e6:.1f} MB{many} in {facts['seconds']:.1f} s")


def _within(request: CompileRequest, accuracy: str | None, data: Path | None) -> AccurateRequest | None:
    """Return the model compiled within an error budget; None without one."""
    if accuracy is None:
        if data is not None:
            raise UsageError("--data is for --accuracy, which is not given")
        return None
    from autotune.quantization.compiling import RANDOM, compile_within
    from autotune.tuning.measure.error_budget import Accuracy

    budget = Accuracy.of(accuracy)
    if data is None:
        echo(f"warning: {RANDOM}", err=True)
    return compile_within(request, budget, data, announce)


__all__ = ["command"]
