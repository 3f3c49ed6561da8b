"""Rows of a table as lines of JSON, checked against the table's columns on the way in."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sqlalchemy import Boolean, Column, Float, Integer, String, Table

from autotune.errors import PackError
from autotune.foreign import parse_json

_INFINITY = "inf"
"""The error of a wrong result may be infinite, which JSON has no number for."""


def to_line(row: Mapping[str, Any]) -> bytes:
    """Return a row as a line; raises ValueError for what is no number."""
    values = {name: _INFINITY if value == math.inf else value for name, value in row.items()}
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def from_line(
    table: Table, line: bytes, number: int, added: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the row in a line, with the columns that were ``added`` since it was written.

    Raises PackError that says where anything else is wrong.
    """
    where = f"line {number} of {table.name}"
    try:
        row = parse_json(line, parse_constant=_no_number)
    except ValueError as error:
        raise PackError(f"{where} is not JSON: {error}") from error
    expected = [column.name for column in table.c if column.name not in added]
    if not isinstance(row, dict) or row.keys() != set(expected):
        raise PackError(f"{where} has not the columns {', '.join(expected)}")
    row |= added
    row |= {c.name: math.inf for c in table.c if isinstance(c.type, Float) and row[c.name] == _INFINITY}
    for column in table.c:
        if not _fits(column, row[column.name]):
            raise PackError(f"{where}: its {column.name} is {row[column.name]!r:.40}")
    return row


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _fits(column: Column[Any], value: Any) -> bool:
    """Return whether a value may be in a column."""
    kind = column.type
    if value is None:
        return bool(column.nullable)
    if isinstance(kind, Boolean):
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if isinstance(kind, Integer):
        return isinstance(value, int) and -(2**63) <= value < 2**63
    if isinstance(kind, Float):
        return isinstance(value, int | float) and not math.isnan(value)
    assert isinstance(kind, String)
    return isinstance(value, str) and "\0" not in value and len(value) <= (kind.length or math.inf)


__all__ = ["from_line", "to_line"]
