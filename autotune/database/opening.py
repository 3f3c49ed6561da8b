"""The database that is meant: an open one, a path or URL, or the one in the settings' home folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Union

from autotune import settings
from autotune.errors import UsageError
from autotune.garbage import collector_paused

if TYPE_CHECKING:
    from autotune.database.store import Database

DatabaseLike: TypeAlias = Union["Database", str, Path]


def default_database() -> Path:
    """Return the database used when none is given: ``tuning.db`` in the settings' home folder."""
    return settings.current().home_path() / "tuning.db"


@contextmanager
def opened(database: DatabaseLike | None, *, read_only: bool = False) -> Iterator[Database]:
    """Yield a database from a caller's argument: left open if it was open, the default one for None."""
    with collector_paused():  # modules stay
        from autotune.database.store import Database

    if isinstance(database, Database):
        yield database
        return
    where = default_database() if database is None else database
    if database is None and not read_only:
        _make_folder(Path(where).parent)
    with Database(where, read_only=read_only) as mine:
        yield mine


def opened_if_given(database: DatabaseLike | None) -> AbstractContextManager[Database | None]:
    """Return the same to read from; None where none is given."""
    return nullcontext() if database is None else opened(database, read_only=True)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {error.strerror}; give a --db") from error


__all__ = ["DatabaseLike", "default_database", "opened", "opened_if_given"]
