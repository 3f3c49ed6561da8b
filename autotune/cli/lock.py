"""``autotune lock``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from autotune.cli.echo import echo
from autotune.cli.options import (
    EPILOG_DATABASE,
    announce,
    compile_options,
    database_option,
    json_option,
    model_argument,
    objective_options,
    print_json,
)

if TYPE_CHECKING:
    from autotune.compiler.driver import CompileOptions


@click.command(
    epilog="Example: autotune lock model.onnx -o model.lock --db tuning.db, and on any machine "
    f"autotune compile model.onnx --lock model.lock -o model.atm. {EPILOG_DATABASE}"
)
@model_argument
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The lock to write.")
@database_option
@compile_options
@objective_options
@click.option(
    "--require-hit", is_flag=True, help="Fail unless candidates were measured beside every default."
)
@json_option
def command(
    model: str,
    output: Path,
    database: str | None,
    require_hit: bool,
    as_json: bool,
    **options: Unpack[CompileOptions],
) -> None:
    """Pin the options and schedules that MODEL is compiled with, as text for version control."""
    announce(f"compiling {model}")
    from autotune.tuning.locking import lock

    made, done, where = lock(model, output, database=database, require_hit=require_hit, **options)
    if as_json:
        facts = {"lock": str(output), "database": where, "target": made.target.name}
        print_json(facts | {"sites": len(made.sites), "schedules": len(made.schedules)})
        return
    echo(str(done.coverage))
    echo(f"wrote {output}: {len(made.schedules)} schedules for {made.target.name}")


__all__ = ["command"]
