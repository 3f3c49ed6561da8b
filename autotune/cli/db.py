"""``autotune db``: stats, verify, upgrade, export, merge and prune."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

from autotune.cli.groups import SuggestingGroup
from autotune.cli.options import EPILOG_DATABASE, database_option, json_option, print_json

SHOWN = 20
"""Workloads that `stats` lists."""


@click.group(cls=SuggestingGroup, epilog=f"Example: autotune db stats --db tuning.db. {EPILOG_DATABASE}")
def command() -> None:
    """Look into a tuning database, check and export it."""


@command.command(epilog="Example: autotune db stats --db tuning.db")
@database_option
@click.option("--all", "everything", is_flag=True, help=f"List all workloads, not only {SHOWN} of them.")
@json_option
def stats(database: str | None, everything: bool, as_json: bool) -> None:
    """Jobs, targets, outcomes, and what is known of each workload, those that take longest first."""
    from autotune.cli.db_stats import lines_of, stats_of
    from autotune.database.opening import opened

    with opened(database, read_only=True) as store:
        facts = stats_of(store)
    if as_json:
        print_json(facts)
        return
    for line in lines_of(facts, None if everything else SHOWN):
        click.echo(line)


@command.command(epilog="Example: autotune db upgrade --db tuning.db")
@database_option
def upgrade(database: str | None) -> None:
    """Bring a database that an older autotune made up to date; nothing that was measured is lost."""
    from autotune.database.opening import opened
    from autotune.database.schema import VERSION
    from autotune.errors import SchemaVersionError

    with suppress(SchemaVersionError), opened(database, read_only=True):
        pass  # or there is no such database
    with opened(database) as store:
        click.echo(f"{store.where} has schema version {VERSION}")


@command.command(epilog="Example: autotune db export runs.parquet --db tuning.db")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The same as FILE.")
@database_option
def export(file: Path | None, output: Path | None, database: str | None) -> None:
    """Write every run to FILE, a table: .parquet, .csv or .jsonl (an object a line)."""
    from autotune.database.export import check_format
    from autotune.database.export import export as write
    from autotune.database.opening import opened

    if (file is None) == (output is None):
        raise click.UsageError("name one file to write, such as runs.parquet")
    path = file or output or Path()
    check_format(path)
    with opened(database, read_only=True) as store:
        table = store.runs()
    try:
        write(table, path)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror or error}") from error
    click.echo(f"wrote {len(table)} runs to {path}")


@command.command(epilog="Example: autotune db verify --db tuning.db")
@database_option
@json_option
def verify(database: str | None, as_json: bool) -> int:
    """Check the file, and that every workload and every best schedule can still be used."""
    from autotune.database.opening import opened
    from autotune.tuning.verify import problems_of

    with opened(database, read_only=True) as store:
        problems = problems_of(store)
    if as_json:
        print_json({"problems": problems})
    else:
        for problem in problems:
            click.echo(problem)
        click.echo("no problems found" if not problems else f"{len(problems)} problems")
    return 1 if problems else 0


@command.command(epilog="Example: autotune db merge other.db --db tuning.db")
@click.argument("other", metavar="FILE|URL")
@database_option
@json_option
def merge(other: str, database: str | None, as_json: bool) -> None:
    """Take over the runs of another database; a run that both have keeps its reading."""
    from autotune.database.merge import merge as take_over
    from autotune.database.opening import opened

    with opened(other, read_only=True) as source, opened(database) as store:
        report = take_over(store, source)
        where = store.where
    if as_json:
        print_json({"database": where, "new": report.new, "known": report.known})
    else:
        click.echo(f"{report}, in {where}")


@command.command(epilog="Example: autotune db prune --db tuning.db --dry-run")
@database_option
@click.option("--dry-run", is_flag=True, help="Say what would go, and keep it.")
@json_option
def prune(database: str | None, dry_run: bool, as_json: bool) -> None:
    """Delete the runs that no lookup reaches: those of search spaces of other versions of autotune."""
    from autotune.database.merge import forget
    from autotune.database.opening import opened
    from autotune.tuning.verify import stale_keys

    with opened(database, read_only=True) as store:
        stale = stale_keys(store)
        count = sum(len(store.records(workload=k.workload, target=k.target, space=k.space)) for k in stale)
        where = store.where
    if not dry_run and stale:
        with opened(database) as store:
            count = forget(store, stale)
    if as_json:
        print_json({"database": where, "runs": count, "spaces": len(stale), "dry_run": dry_run})
        return
    verb = "would delete" if dry_run else "deleted"
    click.echo(f"{verb} {count} runs of {len(stale)} search spaces of other versions, in {where}")


__all__ = ["command"]
