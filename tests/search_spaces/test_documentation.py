"""The page about search spaces says what the code does."""

from __future__ import annotations

import doctest
from pathlib import Path

from search_spaces import spaces

PAGE = Path(__file__).parents[2] / "docs" / "search-spaces.md"


def test_the_examples_run() -> None:
    result = doctest.testfile(str(PAGE), module_relative=False)
    assert result.attempted > 10
    assert result.failed == 0


def test_every_family_is_described() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert all(family in text for family in (*spaces.TILED, *spaces.PLAIN))
