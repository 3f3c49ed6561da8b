"""The database of a request: opened, where there is one."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from autotune.compiler.request import CompileRequest
from autotune.database.opening import DatabaseLike, default_database, opened

if TYPE_CHECKING:
    from autotune.database.store import Database

T = TypeVar("T")


def exists(database: DatabaseLike | None) -> bool:
    """Return whether there is a database; a given one is opened, and says what is wrong with it."""
    return database is not None or os.path.exists(default_database())  # nor where this user may not look


def with_database(request: CompileRequest, do: Callable[[CompileRequest], T]) -> tuple[T, str | None]:
    """Do something with a request whose database is open, and say where that is.

    Without one where none was given and the default does not exist.
    """
    if not exists(request.database):
        return do(request), None
    with opened(request.database, read_only=True) as store:
        return do(replace(request, database=store)), store.where


def open_database(request: CompileRequest) -> Database | None:
    """Return the database of a request that :func:`with_database` gave."""
    from autotune.database.store import Database

    assert request.database is None or isinstance(request.database, Database)
    return request.database


__all__ = ["exists", "open_database", "with_database"]
