"""Fixtures of the fleet's tests: a PostgreSQL server, as the database's have."""

from __future__ import annotations

from tests.database.conftest import server

__all__ = ["server"]
