"""The documentation as a site: its table of contents, its notebooks and its docstrings. ``.ci/run`` builds it."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mkdocstrings")

SITE = Path(__file__).parent.parent / "packaging" / "site"


@pytest.fixture(scope="module")
def hooks() -> dict[str, Any]:
    return runpy.run_path(str(SITE / "repository_pages.py"))


def test_the_index_is_the_table_of_contents(hooks: dict[str, Any]) -> None:
    index = "# All\n\n## How-to\n\n- [Start](start.md): begin\n\nModels:\n\n- [A](a.md), by [b](b.md)\n"
    index += "- [N](x/n.ipynb)\n"
    index += "\nMore: [c](c.md).\n\n## Reference\n\n- [R](../results/README.md)\n"
    assert hooks["navigation"](index) == [
        {
            "How-to": [
                {"Start": "docs/start.md"},
                {"Models": [{"A": "docs/a.md"}, {"N": "docs/x/n.ipynb.md"}]},
            ]
        },
        {"Reference": [{"R": "results/README.md"}]},
    ]


def test_links_to_notebooks_lead_to_their_pages(hooks: dict[str, Any]) -> None:
    page = hooks["on_page_markdown"]("[a](x/a.ipynb), [b](b.md)")
    assert page == "[a](x/a.ipynb.md), [b](b.md)"


def test_a_notebook_is_a_page_of_its_cells(hooks: dict[str, Any], tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "\n", "Text."]},
        {"cell_type": "code", "source": ["a = 1\n", "a"]},
    ]
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    page = hooks["notebook_page"](path)
    assert page.startswith('# Title\n\n<a href="n.ipynb" download>')
    assert page.endswith("Text.\n\n```python\na = 1\na\n```")


def test_roles_of_docstrings_are_code() -> None:
    griffe = pytest.importorskip("griffe")
    roles = runpy.run_path(str(SITE / "roles.py"))["Roles"]()
    function = griffe.Function("f")
    function.docstring = griffe.Docstring("See :func:`~autotune.runtime.load`, :meth:`run` and ``x``.")
    roles.on_instance(obj=function)
    assert function.docstring.value == "See `load`, `run` and `x`."
