"""Fixtures of the database's tests: a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.database.server import Server, binaries


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A running server; the test is skipped where PostgreSQL is not installed."""
    folder = binaries()
    if folder is None:
        pytest.skip("no PostgreSQL server is installed (initdb); on Debian: apt-get install postgresql")
    pytest.importorskip("psycopg", reason="the extra postgres is not installed")
    running = Server(folder)
    yield running
    running.remove()
