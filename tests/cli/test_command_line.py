"""The command that a benchmark's page shows."""

from __future__ import annotations

import click
from click.testing import CliRunner

from autotune.cli.experiment import command_line


def names(context: click.Context, parameter: click.Parameter, value: str) -> list[str]:
    return value.split(",")


@click.command("compare")
@click.argument("folder")
@click.option("--samplers", callback=names, default="tpe")
@click.option("--db", multiple=True)
@click.option("--seeds", type=int, default=1)
@click.option("--shares/--no-shares", default=True)
@click.pass_context
def compare(
    context: click.Context, folder: str, samplers: list[str], db: tuple[str, ...], seeds: int, shares: bool
) -> None:
    click.echo(command_line(context))


def test_a_page_shows_its_command_as_it_can_be_given_again() -> None:
    words = ["results", "--samplers", "guided,random", "--db", "a.db", "--db", "b.db", "--no-shares"]
    shown = CliRunner().invoke(compare, words).output.split()
    assert shown == ["compare", *words]
