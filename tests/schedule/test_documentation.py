"""The documentation of each primitive: complete, run, and the page made from it up to date."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path

import pytest

from autotune.schedule import PRIMITIVES, document

PAGE = Path(__file__).parents[2] / "docs" / "primitives.md"


@pytest.mark.parametrize("name", PRIMITIVES)
def test_examples_run(name: str) -> None:
    """The doctest of a primitive gives what it shows; Before, After and Raises are all there."""
    text = inspect.cleandoc(PRIMITIVES[name].__doc__ or "")
    positions = [text.index(f"{heading}:\n") for heading in ("Before", "After", "Raises")]
    assert positions == sorted(positions)
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert "ScheduleError" in test.examples[-1].want, "the last example is a refusal"
    report: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    assert result.failed == 0, "".join(report)


def test_the_page_is_up_to_date() -> None:
    message = "run: python -m autotune.schedule.document > docs/primitives.md"
    assert PAGE.read_text(encoding="utf-8") == document.page(), message


def test_every_primitive_is_on_the_page() -> None:
    page = document.page()
    assert [name for name in PRIMITIVES if f"### {name}\n" not in page] == []
