"""Seeds of random cases: a few by default, many among the slow tests."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(few: int, many: int, first: int = 0) -> list[Any]:
    """Return parameters: numbers from ``first``, of which all but the ``few`` first are slow."""
    slow = range(first + few, first + many)
    return [*range(first, first + few), *(pytest.param(n, marks=pytest.mark.slow) for n in slow)]


__all__ = ["seeds"]
