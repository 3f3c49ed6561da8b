"""``autotune compile``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from autotune.cli.echo import echo
from autotune.cli.options import (
    EPILOG_DATABASE,
    announce,
    compilation_json,
    json_option,
    model_argument,
    print_compilation,
    print_json,
    request_flags,
)
from autotune.compiler.request import CompileOptions, CompileRequest

if TYPE_CHECKING:
    from autotune.compiler.explain import Compilation


@click.command(
    epilog="Example: autotune compile model.onnx -o model.atm --db tuning.db, for a small artifact "
    "autotune compile model.onnx -o small.atm --objective size --max-slowdown 1.05, for two kinds of machines "
    f"--target x86-64-v3 --target x86-64-v4. {EPILOG_DATABASE}"
)
@model_argument
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The artifact to write.")
@request_flags(CompileOptions)
@click.option("--details", is_flag=True, help="Print a line a dispatch.")
@json_option
def command(
    model: str, output: Path, details: bool, as_json: bool, **options: Unpack[CompileOptions]
) -> None:
    """Compile MODEL with the best schedules known; workloads without one get the default schedule."""
    request = CompileRequest(model, **options).checked()
    announce(f"compiling {model}")
    from autotune.cli.affinity_lines import placed_json, placed_lines
    from autotune.compiler.placed import PlacedCompilation
    from autotune.runtime import artifact, program_artifact, sized_artifact, variants
    from autotune.tuning.accuracy import checked
    from autotune.tuning.api import check_cores
    from autotune.tuning.placing import compile_anywhere
    from autotune.tuning.several_targets import compile_for_targets
    from autotune.tuning.sized import compile_sizes_in_detail

    check_cores(request)
    start = time.perf_counter()

    def made() -> dict[str, Any]:
        seconds = time.perf_counter() - start
        return {"artifact": str(output), "bytes": output.stat().st_size, "seconds": seconds}

    if request.has_ranges:
        sized = compile_sizes_in_detail(request, announce)
        sized_artifact.save(sized.model, output)
        labels = [", ".join(f"{s} = {n}" for s, n in bucket.sizes.items()) for bucket in sized.model.buckets]
        _show_several(
            labels, sized.parts, sized.where, made(), details=details, as_json=as_json, kind="sizes"
        )
        return
    if len(request.targets) > 1:
        several, where = compile_for_targets(request)
        variants.save([done.image for done in several], output)
        names = [str(target) for target in request.targets]
        _show_several(names, several, where, made(), details=details, as_json=as_json)
        return
    done, where = compile_anywhere(request)
    if isinstance(done, PlacedCompilation):
        program_artifact.save(done.program, output)
        facts = made()
    else:
        artifact.save(done.image, output)
        facts = made()
        done = checked(done, model)
    if as_json:
        shown = (
            placed_json(done, where) if isinstance(done, PlacedCompilation) else compilation_json(done, where)
        )
        print_json(facts | shown)
        return
    if isinstance(done, PlacedCompilation):
        echo("\n".join(placed_lines(done, where, details=details)))
    else:
        print_compilation(done, where, details=details)
    echo(f"wrote {output}: {facts['bytes'] / 1e6:.1f} MB in {facts['seconds']:.1f} s")


def _show_several(
    targets: Sequence[str],
    several: Sequence[Compilation],
    where: str | None,
    made: Mapping[str, Any],
    *,
    details: bool,
    as_json: bool,
    kind: str = "targets",
) -> None:
    if as_json:
        each = {target: compilation_json(done, where) for target, done in zip(targets, several, strict=True)}
        print_json({**made, kind: each})
        return
    for target, done in zip(targets, several, strict=True):
        echo(f"for {target}")
        print_compilation(done, where, details=details)
    echo(
        f"wrote {made['artifact']}: {made['bytes'] / 1e6:.1f} MB for {len(targets)} {kind} in {made['seconds']:.1f} s"
    )


__all__ = ["command"]
