"""The address of a tuning database: an SQLite file, or a PostgreSQL server."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, quote_plus

import sqlalchemy
from sqlalchemy import URL

from autotune.errors import DatabaseError, UsageError
from autotune.suggest import did_you_mean

_DRIVER = "postgresql+psycopg"


@dataclass(frozen=True)
class DatabaseAddress:
    """A file or a server, exactly one of them; as text it says which, without passwords."""

    path: Path | None
    server: URL | None = None

    @staticmethod
    def parse(path_or_url: str | Path) -> DatabaseAddress:
        """Return the text with ``://`` is a URL, anything else names an SQLite file. Raises UsageError."""
        text = str(path_or_url)
        if "://" not in text:
            return DatabaseAddress(Path(text))
        if text.startswith("sqlite:///"):
            return DatabaseAddress(Path(text.removeprefix("sqlite:///")))
        try:
            url = sqlalchemy.make_url(text)
        except (sqlalchemy.exc.ArgumentError, ValueError):
            url = None
        if url is None or url.get_backend_name() not in ("postgresql", "postgres"):
            shown = re.sub(r"(?<=://).*@|\?.*", "", text)
            raise UsageError(
                f"not a database URL: {shown}; give a file, or postgresql://USER:PASSWORD@HOST/NAME"
                + did_you_mean(text.partition("://")[0], ("postgresql", "sqlite"))
            ) from None
        return DatabaseAddress(None, url.set(drivername=_DRIVER))

    def __str__(self) -> str:
        if self.server is None:
            return str(self.path)
        secret = [name for name in self.server.query if "password" in name.lower()]
        shown = self.server.set(drivername="postgresql").difference_update_query(secret)
        return shown.render_as_string(hide_password=True)

    def check(self, *, read_only: bool) -> None:
        """Raise DatabaseError where no file can be made, and UsageError for one to read that does not exist."""
        path = self.path
        if path is None:
            return
        try:
            if path.is_dir():
                raise DatabaseError(f"cannot use the database {path}: it is a folder; give a file name")
            if read_only and not path.exists():
                raise UsageError(
                    f"no such database: {path}; `autotune tune MODEL --db {shlex.quote(str(path))}` makes one"
                )
            if not path.absolute().parent.is_dir():
                raise DatabaseError(f"cannot use the database {path}: its folder does not exist")
        except OSError as error:
            raise DatabaseError(f"cannot use the database {path}: {error.strerror}") from error

    def redacted(self, text: str) -> str:
        """Return a message of the driver's without the passwords of this address."""
        if self.server is None:
            return text
        found = [self.server.password] + [v for k, v in self.server.query.items() if "password" in k.lower()]
        for secret in map(str, filter(None, found)):
            for spelled in {secret, quote(secret, safe=""), quote_plus(secret)}:
                text = text.replace(spelled, "***")
        return text


__all__ = ["DatabaseAddress"]
