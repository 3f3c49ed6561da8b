"""``autotune compile``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from autotune.cli.options import (
    EPILOG_DATABASE,
    announce,
    compilation_json,
    compile_options,
    database_option,
    json_option,
    model_argument,
    objective_options,
    oversubscription_option,
    placement_option,
    print_compilation,
    print_json,
    verify_option,
)

if TYPE_CHECKING:
    from autotune.compiler.driver import CompileOptions


@click.command(
    epilog="Example: autotune compile model.onnx -o model.atm --db tuning.db, or for a small artifact "
    f"autotune compile model.onnx -o small.atm --objective size --max-slowdown 1.05. {EPILOG_DATABASE}"
)
@model_argument
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The artifact to write.")
@database_option
@compile_options
@objective_options
@oversubscription_option
@click.option(
    "--require-hit", is_flag=True, help="Fail unless candidates were measured beside every default."
)
@click.option(
    "--lock",
    type=click.Path(path_type=Path),
    help="Make exactly the code that a lock pins, for its target; no database is read.",
)
@placement_option
@click.option("--details", is_flag=True, help="Print a line a dispatch.")
@verify_option
@json_option
def command(
    model: str,
    output: Path,
    database: str | None,
    allow_oversubscription: bool,
    require_hit: bool,
    lock: Path | None,
    placement: dict[str, str] | None,
    details: bool,
    verify: bool,
    as_json: bool,
    **options: Unpack[CompileOptions],
) -> None:
    """Compile MODEL with the best schedules known; workloads without one get the default schedule."""
    announce(f"compiling {model}")
    from autotune.cli.affinity_lines import placed_json, placed_lines
    from autotune.compiler.placed import PlacedCompilation
    from autotune.runtime import artifact, program_artifact
    from autotune.tuning.accuracy import checked
    from autotune.tuning.api import check_threads_here
    from autotune.tuning.placing import compile_anywhere

    check_threads_here(options["target"], options["threads"], allow_oversubscription=allow_oversubscription)
    start = time.perf_counter()
    done, where = compile_anywhere(
        model,
        database=database,
        lock=lock,
        placement=placement,
        require_hit=require_hit,
        verify=verify,
        **options,
    )
    if isinstance(done, PlacedCompilation):
        program_artifact.save(done.program, output)
        seconds = time.perf_counter() - start
        made = {"artifact": str(output), "bytes": output.stat().st_size, "seconds": seconds}
        if as_json:
            print_json(made | placed_json(done, where))
            return
        click.echo("\n".join(placed_lines(done, where, details=details)))
        click.echo(f"wrote {output}: {output.stat().st_size / 1e6:.1f} MB in {seconds:.1f} s")
        return
    artifact.save(done.image, output)
    seconds = time.perf_counter() - start
    done = checked(done, model)
    if as_json:
        made = {"artifact": str(output), "bytes": output.stat().st_size, "seconds": seconds}
        print_json(made | compilation_json(done, where))
        return
    print_compilation(done, where, details=details)
    click.echo(f"wrote {output}: {output.stat().st_size / 1e6:.1f} MB in {seconds:.1f} s")


__all__ = ["command"]
