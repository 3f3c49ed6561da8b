"""The words of docs, messages and docstrings: those of ``docs/glossary.md``, in sentences of a reasonable length."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("autotune", "search_spaces", "cost_models", "results")
OPENINGS = re.compile(r"\s*(What|Whether|How|Where|Which)\b")
FORBIDDEN = re.compile(
    r"\b(take|takes|taking|took|taken) turns\b|\bin turns\b|\bbeyond doubt\b"
    r"|\b(read|reads|reading|readings) inside (a|the) models?\b"
    r"|\b0\.\d+ (to 0\.\d+ )?of (the|its|their) time\b"
)
EMPTY_WORDS = frozenset(
    {
        "return",
        "the",
        "a",
        "an",
        "of",
        "it",
        "its",
        "this",
        "all",
        "as",
        "in",
        "by",
        "with",
        "for",
        "to",
        "from",
    }
    | {"that", "which", "has", "have", "each"}
)
"""Say nothing in a docstring (:func:`meaning`)."""
MOST_WORDS = 60
"""Of a list item."""


def pages() -> list[Path]:
    """Return all pages but the glossary, which names the words that are not used."""
    named = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "results/README.md")]
    return [*named, *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name != "glossary.md")]


def sources(*more: str) -> list[Path]:
    """Return the modules of the packages, and of ``more`` folders."""
    return [path for package in (*PACKAGES, *more) for path in sorted((ROOT / package).rglob("*.py"))]


@dataclass
class Source:
    """Words of a module, each with its line: docstrings of it and of all that is in it, attributes too; functions and
    classes as line, name and docstring; every string."""

    docstrings: list[tuple[int, str]] = field(default_factory=list)
    functions: list[tuple[int, str, str]] = field(default_factory=list)
    classes: list[tuple[int, str, str]] = field(default_factory=list)
    texts: list[tuple[int, str]] = field(default_factory=list)


@cache
def source(path: Path) -> Source:
    """Return the words of a file, which is parsed once for all tests."""
    found = Source()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.texts.append((node.lineno, node.value))
        body = getattr(node, "body", None)
        found.docstrings += [
            (statement.lineno, statement.value.value)
            for statement in (body if isinstance(body, list) else [])
            if isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Constant)
            and isinstance(statement.value.value, str)
        ]
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            kind = found.functions if isinstance(node, ast.FunctionDef) else found.classes
            kind.append((node.lineno, node.name, ast.get_docstring(node) or ""))
    return found


def meaning(text: str) -> set[str]:
    """Return the words of a docstring or a name, without those that carry no meaning and without endings."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    return {re.sub(r"(?<=\w{3})(ies|es|s|ed|ing)$", "", word) for word in words} - EMPTY_WORDS


def items(text: str) -> Iterator[str]:
    """Yield the items of a page's lists, each as one line."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    for found in re.finditer(r"^ *(?:[-*]|\d+\.) +(.*(?:\n +(?!(?:[-*]|\d+\.) )\S.*)*)", text, re.M):
        yield " ".join(found[1].split())


def test_docstrings_do_not_open_with_a_question_word() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text[:60]}"
        for path in sources("tests")
        for line, text in source(path).docstrings
        if OPENINGS.match(text)
    ]
    assert found == [], "open with an imperative (Return ...), or with a noun for a class or a value"


def test_docstrings_of_functions_say_more_than_their_names() -> None:
    """``Return the columns`` on ``columns`` is no documentation."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}: {text}"
        for path in sources()
        for line, name, text in source(path).functions
        if text.startswith("Return ") and meaning(text) <= meaning(name.replace("_", " "))
    ]
    assert found == []


def test_a_class_name_is_one_idea() -> None:
    """A name used twice is the same idea at two stages or in two backends, and each docstring names the other."""
    classes: dict[str, dict[str, str]] = defaultdict(dict)
    for path in sources():
        module = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        for _, name, text in [] if module.startswith("results.") else source(path).classes:
            classes[name][module] = text
    unexplained = [
        f"{module}.{name}"
        for name, found in classes.items()
        for module, text in found.items()
        if len(found) > 1 and not any(f"{other}.{name}" in text for other in found if other != module)
    ]
    assert unexplained == []


def test_messages_and_docstrings_use_the_words_of_the_glossary() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match[0]}"
        for path in sources()
        for line, text in source(path).texts
        for match in FORBIDDEN.finditer(" ".join(text.split()))
    ]
    assert found == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_use_the_words_of_the_glossary(page: Path) -> None:
    text = " ".join(page.read_text(encoding="utf-8").split())
    assert [match[0] for match in FORBIDDEN.finditer(text)] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_list_items_are_short(page: Path) -> None:
    long = [item for item in items(page.read_text(encoding="utf-8")) if len(item.split()) > MOST_WORDS]
    assert long == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_that_pages_name_exist(page: Path) -> None:
    named = re.findall(
        r"`((?:autotune|search_spaces|cost_models|tests|docs)/[\w/.]+)`", page.read_text(encoding="utf-8")
    )
    assert [path for path in named if "NAME" not in path and not (ROOT / path).exists()] == []
