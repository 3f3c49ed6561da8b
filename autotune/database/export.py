"""A table of measured runs as a file, in the format that the file's name ends in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.errors import UsageError
from autotune.files import replacing

if TYPE_CHECKING:
    from pandas import DataFrame


def _csv(table: DataFrame, path: Path) -> None:
    table.to_csv(path, index=False)


def _lines(table: DataFrame, path: Path) -> None:
    table.to_json(path, orient="records", lines=True, date_format="iso", date_unit="us", double_precision=15)


def _parquet(table: DataFrame, path: Path) -> None:
    table.to_parquet(path, index=False, compression="zstd")


FORMATS: dict[str, Callable[[DataFrame, Path], None]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".jsonl": _lines,
    ".json": _lines,
}
"""The writer of each format, by the end of a file's name."""


def check_format(path: Path) -> None:
    """Raise UsageError for a file whose name ends in no known format."""
    if path.suffix not in FORMATS:
        known = ", ".join(FORMATS)
        raise UsageError(f"unknown format {path.suffix!r} of {path}; a table is written as one of {known}")


def export(table: DataFrame, path: Path) -> None:
    """Write a table; a file that cannot be written whole is not left behind, and an older one stays as it is.

    Raises UsageError for an unknown format, and OSError.
    """
    check_format(path)
    with replacing(path) as temporary:
        FORMATS[path.suffix](table, temporary)


__all__ = ["FORMATS", "check_format", "export"]
