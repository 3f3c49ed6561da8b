"""The page of operators lists those that are known."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from autotune.frontends.onnx.domains import DEFINED
from autotune.frontends.onnx.support import known_operators

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"


def page(text: str) -> str:
    """Return the page with the lists that it should have."""
    begun = text[: text.index("## All of ONNX")]
    lists = {"ONNX, or without a domain": "", "com.microsoft": "com.microsoft", "ai.onnx.ml": "ai.onnx.ml"}
    return begun + "\n".join(f"## All of {title}\n\n{listed(domain)}\n" for title, domain in lists.items())


def listed(wanted: str) -> str:
    parts = [name.rpartition(".") for name in known_operators()]
    names = sorted(name for domain, _, name in parts if domain == wanted)
    return "\n".join(textwrap.wrap(", ".join(names) + ".", 118))


def test_the_page_lists_what_is_known(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text(encoding="utf-8")
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page(text), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(text), (
        f"run: pytest --update-golden {Path(__file__).name}"
    )


def test_operators_by_their_definition_are_known() -> None:
    assert {"Attention", "Conv", "HammingWindow", "If", "Shape", *DEFINED} <= {*known_operators()}
    assert not {"IntegerConv", "Patches", "StringNormalizer"} & {*known_operators()}
