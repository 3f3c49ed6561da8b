"""Packs: a tuning database in one file that is read without trusting it.

The file is a ZIP archive::

    manifest.json      format, version, schema, versions, models and targets, and of each table the number of rows, the
                       bytes and their SHA-256
    TABLE.jsonl        the rows of a table, a JSON object a line: workloads, targets, spaces, jobs, layers, runs,
                       comparisons, readings; in packs of older schemas also placements and plans
    signature          of manifest.json, where it was signed: 64 bytes of ed25519

Equal databases make equal bytes. Nothing is extracted: rows go through the checks of their columns into a temporary
database, whose constraints hold them together, and from there into another one. So a pack that is altered, truncated,
of another schema or larger than it says is refused before anything is written that stays.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy import Table, insert, select
from sqlalchemy.engine import Connection

from autotune.database import old_tables, schema, signing
from autotune.database.merge import TABLES
from autotune.database.pack_rows import from_line, to_line
from autotune.database.session import STREAMED
from autotune.database.store import Database
from autotune.errors import DatabaseError, PackError
from autotune.files import replacing, scratch_folder
from autotune.foreign import parse_json
from autotune.versions import versions_of

SUFFIX = ".pack"
FORMAT = "autotune-pack"
VERSION = 1

_MANIFEST, _SIGNATURE = "manifest.json", "signature"
_MEMBERS: Mapping[str, Table] = {f"{table.name}.jsonl": table for table in TABLES}
_OLD_MEMBERS: Mapping[str, Table] = {f"{table.name}.jsonl": table for table in old_tables.VERSIONS}
_SCHEMAS = range(10, schema.VERSION + 1)
"""The schemas of packs that can be read."""
_MOST_MANIFEST, _MOST_LINE, _SIGNATURE_BYTES = 16 << 20, 16 << 20, 64
_MOST_RATIO, _SMALL = 200, 1 << 20
"""The allowed size of the rows over that of the archive, unless they are small: schedules compress to a 50th."""
_DATE = (1980, 1, 1, 0, 0, 0)
_CHUNK = 500
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
    EOFError,
    RuntimeError,
    ValueError,
    OSError,
)
"""The errors of reading a damaged archive."""


def write(database: Database, path: Path, key: Path | None = None) -> dict[str, Any]:
    """Write everything in a database to a pack, signed by a private key if one is given; the manifest.

    Raises DatabaseError for rows that cannot be in one, OSError, and what signing raises.
    """

    def write_all(connection: Connection) -> dict[str, Any]:
        with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            tables = {t.name: _write_table(connection, archive, t) for t in TABLES}
            manifest = _manifest(connection, tables)
            data = (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode()
            archive.writestr(_info(_MANIFEST), data)
            if key is not None:
                archive.writestr(_info(_SIGNATURE), signing.sign(data, key))
        return manifest

    return database.session.read(write_all)


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _DATE)
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def _write_table(connection: Connection, archive: zipfile.ZipFile, table: Table) -> dict[str, Any]:
    """Write the rows of a table; what the manifest says of them."""
    digest, nbytes, count = hashlib.sha256(), 0, 0
    with archive.open(_info(f"{table.name}.jsonl"), "w", force_zip64=True) as member:
        query = select(table).order_by(*table.primary_key)
        for row in connection.execute(query, execution_options=STREAMED):
            try:
                line = to_line(dict(row._mapping))
            except (ValueError, TypeError) as error:
                raise DatabaseError(
                    f"row {count + 1} of {table.name} is damaged: {error}; `autotune db verify` lists all that is"
                ) from error
            member.write(line)
            digest.update(line)
            nbytes, count = nbytes + len(line), count + 1
    return {"rows": count, "nbytes": nbytes, "sha256": digest.hexdigest()}


def _manifest(connection: Connection, tables: Mapping[str, Any]) -> dict[str, Any]:
    targets = connection.execute(select(schema.targets).order_by(schema.targets.c.key))
    models = connection.execute(select(schema.jobs.c.model).distinct().order_by(schema.jobs.c.model))
    return {
        "format": FORMAT,
        "version": VERSION,
        "schema": schema.VERSION,
        "versions": versions_of(("autotune",)),
        "models": list(models.scalars()),
        "targets": {row.key: json.loads(row.json) for row in targets},
        "tables": dict(tables),
    }


def is_pack(where: str | Path) -> bool:
    """Return whether a path means a pack: by its name."""
    return str(where).endswith(SUFFIX)


@contextmanager
def opened_pack(path: Path, key: Path | None = None) -> Iterator[Database]:
    """Yield the contents of a pack as a temporary database; with a public key, only if its owner signed it.

    Raises PackError that names the file where that is damaged; what single values mean is not looked at yet
    (:func:`autotune.tuning.verify.sound_pack` does).
    """
    with scratch_folder("autotune-pack-") as folder, Database(folder / "pack.db") as database:
        try:
            with zipfile.ZipFile(path) as archive:
                database.session.write(partial(_stage, archive=archive, key=key))
        except PackError as error:
            raise PackError(f"cannot use the pack {path}: {error}") from error
        except DatabaseError as error:
            raise PackError(f"cannot use the pack {path}: its rows do not fit together") from error
        except _DAMAGE as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise PackError(
                f"cannot use the pack {path}: {why}; a pack is what `autotune db export FILE{SUFFIX}` wrote"
            ) from error
        yield database


def _stage(connection: Connection, archive: zipfile.ZipFile, key: Path | None) -> None:
    """Copy the rows of a pack into an empty database, checking all of them."""
    entries = _entries(archive)
    data = _read_small(archive, entries, _MANIFEST, _MOST_MANIFEST)
    if key is not None:
        signature = (
            _read_small(archive, entries, _SIGNATURE, _SIGNATURE_BYTES) if _SIGNATURE in entries else None
        )
        signing.check(data, signature, key)
    made_by, tables = _tables_of(data)
    members = _members_of(made_by)
    for name in [*members, *(name for name in entries if name not in {*members, _MANIFEST, _SIGNATURE})]:
        if name not in members:
            raise PackError(f"unexpected member {name!r}")
        if name not in entries:
            raise PackError(f"it has no {name}")
        table = members[name]
        if table in old_tables.VERSIONS:
            table.create(connection)
        added = schema.added(table, made_by)
        _stage_table(connection, table, archive, entries[name], tables[table.name], added)
    old_tables.take_over(connection)


def _members_of(made_by: int) -> Mapping[str, Table]:
    """Return the tables of a pack of a schema, by its members."""
    old = {n: table for n, table in _OLD_MEMBERS.items() if made_by in old_tables.VERSIONS[table]}
    return {**_MEMBERS, **old}


def _entries(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the members by name: those that a pack has, each once, and together not much larger than the archive."""
    found: dict[str, zipfile.ZipInfo] = {}
    for entry in archive.infolist():
        name = entry.filename
        if name not in {*_MEMBERS, *_OLD_MEMBERS, _MANIFEST, _SIGNATURE} or name in found:
            raise PackError(f"unexpected member {name[:80]!r}")
        found[name] = entry
    nbytes, size = sum(entry.file_size for entry in found.values()), os.stat(str(archive.filename)).st_size
    if nbytes > max(_SMALL, _MOST_RATIO * size):
        raise PackError(
            f"its {size} bytes would become {nbytes}, which is more than {_MOST_RATIO} times as many"
        )
    return found


def _read_small(
    archive: zipfile.ZipFile, entries: Mapping[str, zipfile.ZipInfo], name: str, most: int
) -> bytes:
    """Return all of a member that has at most so many bytes."""
    if name not in entries:
        raise PackError(f"it has no {name}")
    with archive.open(entries[name]) as member:
        data = member.read(most + 1)
    if len(data) > most:
        raise PackError(f"{name} has more than {most} bytes")
    return data


def _tables_of(data: bytes) -> tuple[int, dict[str, Mapping[str, Any]]]:
    """Return the schema of a manifest and what it says of the tables.

    Raises PackError unless it is one of this format and of a schema that can be read.
    """
    try:
        manifest = parse_json(data)
    except ValueError as error:
        raise PackError(f"{_MANIFEST} is not JSON: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise PackError(f"it is no pack: its format is not {FORMAT!r}")
    made_by = next((known for known in _SCHEMAS if manifest.get("schema") == known), None)
    for name, known, fits in (
        ("version", VERSION, manifest.get("version") == VERSION),
        ("schema", schema.VERSION, made_by is not None),
    ):
        if not fits:
            raise PackError(
                f"its {name} is {str(manifest.get(name))[:20]}, this autotune reads {known}; export it again by this "
                "version, from a database that `autotune db upgrade` brought up to date"
            )
    tables = manifest.get("tables")
    names = {table.name for table in _members_of(int(manifest["schema"])).values()}
    if not isinstance(tables, dict) or tables.keys() != names:
        raise PackError(f"{_MANIFEST} has not the tables {', '.join(sorted(names))}")
    for name, said in tables.items():
        if not isinstance(said, dict) or said.keys() != {"rows", "nbytes", "sha256"}:
            raise PackError(f"{_MANIFEST} has not rows, nbytes and sha256 of {name}")
    return int(manifest["schema"]), tables


def _stage_table(
    connection: Connection,
    table: Table,
    archive: zipfile.ZipFile,
    entry: zipfile.ZipInfo,
    said: Mapping[str, Any],
    added: Mapping[str, Any],
) -> None:
    """Copy a member into its table, whose rows get the columns that were ``added`` since.

    Raises PackError unless the member is what the manifest says.
    """
    digest, nbytes, count = hashlib.sha256(), 0, 0
    with archive.open(entry) as member:

        def rows() -> Iterator[dict[str, Any]]:
            nonlocal nbytes, count
            while line := member.readline(_MOST_LINE + 1):
                digest.update(line)
                nbytes, count = nbytes + len(line), count + 1
                if len(line) > _MOST_LINE:
                    raise PackError(f"line {count} of {table.name} has more than {_MOST_LINE >> 20} MiB")
                yield from_line(table, line, count, added)

        found = rows()
        while chunk := list(islice(found, _CHUNK)):
            connection.execute(insert(table), chunk)
    if {"rows": count, "nbytes": nbytes, "sha256": digest.hexdigest()} != said:
        raise PackError(f"{entry.filename} was altered: it is not what {_MANIFEST} says")


__all__ = ["SUFFIX", "is_pack", "opened_pack", "write"]
