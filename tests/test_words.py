"""The words of docs, messages and docstrings: those of ``docs/glossary.md``, in sentences of a reasonable length."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
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


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield every string of a module, docstrings among them, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a module and of all that is in it, attributes too, with their lines."""
    for node in ast.walk(tree):
        for statement in getattr(node, "body", []) if isinstance(getattr(node, "body", None), list) else []:
            if (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
            ):
                yield statement.lineno, statement.value.value


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
        for line, text in docstrings(ast.parse(path.read_text(encoding="utf-8")))
        if OPENINGS.match(text)
    ]
    assert found == [], "open with an imperative (Return ...), or with a noun for a class or a value"


def test_docstrings_of_functions_say_more_than_their_names() -> None:
    """``Return the columns`` on ``columns`` is no documentation."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}: {text}"
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        if (text := ast.get_docstring(node) or "").startswith("Return ")
        if meaning(text) <= meaning(node.name.replace("_", " "))
    ]
    assert found == []


def test_a_class_name_is_one_idea() -> None:
    """A name used twice is the same idea at two stages or in two backends, and each docstring names the other."""
    classes: dict[str, dict[str, str]] = defaultdict(dict)
    for path in sources():
        module = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not module.startswith("results."):
                classes[node.name][module] = ast.get_docstring(node) or ""
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
        for line, text in texts(ast.parse(path.read_text(encoding="utf-8")))
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
