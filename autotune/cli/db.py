"""``autotune db``: stats, verify, upgrade, export, import, diff, merge and prune."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli import completion
from autotune.cli.common import EPILOG_DATABASE, database_option, json_option, print_json
from autotune.cli.echo import echo
from autotune.cli.groups import SuggestingGroup
from autotune.suggest import counted

if TYPE_CHECKING:
    from autotune.database import Database
    from autotune.database.conflict import Conflict

SHOWN = 20
"""Workloads that `stats` lists."""


@click.group(cls=SuggestingGroup, epilog=f"Example: autotune db stats --db tuning.db. {EPILOG_DATABASE}")
def command() -> None:
    """Inspect, check, combine and export tuning databases."""


@command.command(epilog="Example: autotune db stats --db tuning.db, or autotune db stats --by model")
@database_option
@click.option(
    "--by",
    type=click.Choice(["model", "family", "target"]),
    help="Count workloads, runs and speed-ups by this.",
)
@click.option("--all", "everything", is_flag=True, help=f"List all workloads, not only {SHOWN} of them.")
@json_option
def stats(database: str | None, by: str | None, everything: bool, as_json: bool) -> None:
    """Show jobs, targets, outcomes, and each workload, those that take longest first."""
    from autotune.cli.db_stats import lines_of, stats_of
    from autotune.database.opening import opened

    with opened(database, read_only=True) as store:
        facts = stats_of(store)
    if as_json:
        print_json(facts)
        return
    for line in lines_of(facts, None if everything else SHOWN, by):
        echo(line)


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
        echo(f"{store.where} has schema version {VERSION}")


key_option = click.option(
    "--key",
    type=click.Path(path_type=Path),
    metavar="PEM",
    help="Take a pack only if the owner of this public key signed it (extra 'sign').",
)
prefer_option = click.option(
    "--prefer",
    type=click.Choice(["mine", "theirs", "newer"]),
    default="mine",
    show_default=True,
    help="Whose measurement of a run stays where the intervals of both do not overlap.",
)


@command.command(
    epilog="Example: autotune db export runs.parquet --db tuning.db, or everything as one file: "
    "autotune db export tuning.pack --db tuning.db"
)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The same as FILE.")
@click.option(
    "--sign", type=click.Path(path_type=Path), metavar="PEM", help="Sign a pack by this private key."
)
@database_option
def export(file: Path | None, output: Path | None, sign: Path | None, database: str | None) -> None:
    """Write every run to FILE, a table: .parquet, .csv or .jsonl (an object a line); or all there is: .pack."""
    from autotune.database import pack
    from autotune.database.export import check_format
    from autotune.database.export import export as write
    from autotune.database.opening import opened

    if (file is None) == (output is None):
        raise click.UsageError("name one file to write, such as runs.parquet")
    path = file or output or Path()
    packed = pack.is_pack(path)
    if not packed:
        check_format(path)
        if sign is not None:
            raise click.UsageError("only a pack can be signed: a FILE that ends in .pack")
    try:
        with opened(database, read_only=True) as store:
            if packed:
                count = pack.write(store, path, sign)["tables"]["runs"]["rows"]
            else:
                table = store.runs()
                count = len(table)
                write(table, path)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror or error}") from error
    echo(f"wrote {counted(count, 'run')} to {path}")


@contextmanager
def _source(where: str, key: Path | None) -> Iterator[Database]:
    """Yield a database to read from, or the contents of a pack."""
    from autotune.database.opening import opened
    from autotune.database.pack import is_pack
    from autotune.tuning.verify import sound_pack

    if is_pack(where):
        with sound_pack(Path(where), key) as found:
            yield found
        return
    if key is not None:
        raise click.UsageError("--key is for packs: files that end in .pack")
    with opened(where, read_only=True) as found:
        yield found


@command.command("import", epilog="Example: autotune db import zoo.pack --db tuning.db --key team.pub")
@click.argument("pack", metavar="PACK", type=click.Path(path_type=Path))
@database_option
@key_option
@prefer_option
@json_option
def import_(pack: Path, database: str | None, key: Path | None, prefer: str, as_json: bool) -> None:
    """Take over all that is in a pack; one that is altered, damaged or of another schema changes nothing."""
    from autotune.tuning.verify import sound_pack

    with sound_pack(pack, key) as source:
        _take_over(source, database, prefer, as_json)


def _take_over(source: Database, database: str | None, prefer: str, as_json: bool) -> None:
    from autotune.database.conflict import Prefer
    from autotune.database.merge import merge as take_over
    from autotune.database.opening import opened

    with opened(database) as store:
        report = take_over(store, source, Prefer(prefer))
        where = store.where
    if as_json:
        conflicts = [asdict(conflict) for conflict in report.conflicts]
        print_json({"database": where, "new": report.new, "known": report.known, "conflicts": conflicts})
        return
    echo(f"{report}, in {where}")
    _print_conflicts(report.conflicts)


def _print_conflicts(conflicts: Sequence[Conflict]) -> None:
    for conflict in conflicts[:SHOWN]:
        echo(f"  {conflict}")
    if len(conflicts) > SHOWN:
        echo(f"  … and {len(conflicts) - SHOWN} more: --json lists them")


@command.command(epilog="Example: autotune db diff other.db --db tuning.db")
@click.argument("other", metavar="FILE|URL|PACK", shell_complete=completion.databases)
@database_option
@key_option
@json_option
def diff(other: str, database: str | None, key: Path | None, as_json: bool) -> None:
    """Show what another database or a pack has that this one has not, and where they disagree."""
    from autotune.database.merge import diff as compared
    from autotune.database.opening import opened

    with opened(database, read_only=True) as store, _source(other, key) as source:
        report = compared(store, source)
    if as_json:
        print_json(asdict(report))
        return
    echo(str(report))
    _print_conflicts(report.conflicts)
    for found in report.used[:SHOWN]:
        echo(f"  {found.workload[:12]} uses another schedule")


@command.command(epilog="Example: autotune db verify --db tuning.db, or autotune db verify zoo.pack")
@click.argument("pack", metavar="[PACK]", required=False, type=click.Path(path_type=Path))
@database_option
@key_option
@json_option
def verify(pack: Path | None, database: str | None, key: Path | None, as_json: bool) -> int:
    """Check the file, or a pack, and that every workload and every best schedule can still be used."""
    from autotune.database.opening import opened
    from autotune.database.pack import opened_pack
    from autotune.tuning.verify import problems_of

    if (key if pack is None else database) is not None:
        raise click.UsageError("name a PACK, with a --key or without, or a --db")
    with opened(database, read_only=True) if pack is None else opened_pack(pack, key) as store:
        problems = problems_of(store)
    if as_json:
        print_json({"problems": problems})
    else:
        for problem in problems:
            echo(problem)
        echo(counted(len(problems), "problem") if problems else "no problems found")
    return 1 if problems else 0


@command.command(epilog="Example: autotune db merge other.db --db tuning.db")
@click.argument("other", metavar="FILE|URL", shell_complete=completion.databases)
@database_option
@prefer_option
@json_option
def merge(other: str, database: str | None, prefer: str, as_json: bool) -> None:
    """Take over the runs of another database; of a run that both have the measurement here stays, or see --prefer."""
    with _source(other, None) as source:
        _take_over(source, database, prefer, as_json)


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
        count = sum(store.count(key) for key in stale)
        where = store.where
    if not dry_run and stale:
        with opened(database) as store:
            count = forget(store, stale)
    if as_json:
        print_json({"database": where, "runs": count, "spaces": len(stale), "dry_run": dry_run})
        return
    verb = "would delete" if dry_run else "deleted"
    echo(
        f"{verb} {counted(count, 'run')} of {counted(len(stale), 'search space')} of other versions, in {where}"
    )


__all__ = ["command"]
