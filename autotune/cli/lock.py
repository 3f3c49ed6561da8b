"""``autotune lock``."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import click

from autotune.cli.common import EPILOG_DATABASE, announce, json_option, print_json
from autotune.cli.echo import echo
from autotune.cli.options import FLAGS, model_argument, request_flags
from autotune.compiler.request import ChoiceOptions, CompileRequest
from autotune.suggest import counted


@click.command(
    epilog="Example: autotune lock model.onnx -o model.lock --db tuning.db, and on any machine "
    f"autotune compile model.onnx --lock model.lock -o model.atm. {EPILOG_DATABASE}"
)
@model_argument
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The lock to write.")
@request_flags(ChoiceOptions)
@FLAGS["require_hit"]
@FLAGS["placement"]
@FLAGS["devices"]
@json_option
def command(
    model: str,
    output: Path,
    require_hit: bool,
    placement: dict[str, str] | None,
    devices: tuple[str, ...],
    as_json: bool,
    **options: Unpack[ChoiceOptions],
) -> None:
    """Pin the options and schedules that MODEL is compiled with, as text for version control."""
    announce(f"compiling {model}")
    from autotune.tuning.locking import lock

    request = CompileRequest(model, require_hit=require_hit, placement=placement, devices=devices, **options)
    made, done, where = lock(request, output)
    if as_json:
        facts = {"lock": str(output), "database": where, "target": made.target.name}
        sites = sum(len(each.sites) for each in made.targets)
        print_json(facts | {"sites": sites, "schedules": made.workloads, "placement": made.placement})
        return
    echo(str(done.coverage))
    names = ", ".join(each.target.name for each in made.targets)
    echo(f"wrote {output}: {counted(made.workloads, 'schedule')} for {names}")


__all__ = ["command"]
