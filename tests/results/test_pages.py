"""The pages of results: each names a command that there is, with options that it has."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shlex
from pathlib import Path

import click
import pytest

from autotune.cli.main import cli
from results.bench.__main__ import EXPERIMENTS
from results.bench.__main__ import command as experiments

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
SCRIPTS = {"tests.tuning.sweep_of_defaults"}
"""Modules that make a page and have no options of click's."""


def pages() -> list[Path]:
    return [page for page in sorted(RESULTS.glob("*.md")) if page.name != "README.md"]


def named(page: Path) -> str:
    """Return the command of a page: the first line of its first block, or the first in a sentence."""
    found = re.search(r"^```\n(.+?)$|`((?:autotune|python) [^`]+)`", page.read_text(encoding="utf-8"), re.M)
    assert found, f"{page.name} names no command"
    return found[1] or found[2]


def resolved(words: list[str]) -> tuple[click.Command | None, list[str]]:
    """Return the command of click's that words call, and what is left of them; None for a script that exists."""
    if words[:2] == ["python", "-m"]:
        name, rest = words[2], words[3:]
        if name in SCRIPTS:
            assert importlib.util.find_spec(name) is not None
            return None, rest
        found: click.Command = importlib.import_module(f"{name}.__main__").command
    else:
        assert words[0] == "autotune", words
        found, rest = cli, words[1:]
    while isinstance(found, click.Group):
        inner = found.get_command(click.Context(found), rest[0])
        assert inner is not None, f"no command {rest[0]}"
        found, rest = inner, rest[1:]
    return found, rest


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_the_command_of_a_page_exists(page: Path) -> None:
    command, rest = resolved(shlex.split(named(page)))
    if command is not None:
        options = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in rest if re.match("--?[a-z]", word)} <= options


def test_the_table_of_pages_has_each_with_a_command_that_exists() -> None:
    table = (RESULTS / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]+\.md`) \| ([^|]+) \|", table, re.M)
    listed = {name for names, _ in rows for name in re.findall(r"`([^`]+\.md)`", names)}
    assert listed == {page.name for page in pages()}
    for _, made in rows:
        for text in re.findall(r"`((?:autotune|python) [^`]+)`", made):
            resolved(shlex.split(text))


def test_every_experiment_is_in_the_list() -> None:
    folder = RESULTS / "bench"
    declared = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in folder.rglob("*.py")
        if re.search(r"^EXPERIMENT = Experiment\(", path.read_text(encoding="utf-8"), re.M)
    }
    assert declared == set(EXPERIMENTS.values())
    assert list(EXPERIMENTS) == sorted(EXPERIMENTS) == experiments.list_commands(click.Context(experiments))


def test_what_is_installed_imports_nothing_of_the_checkout() -> None:
    wrong = [
        path
        for package in ("autotune", "search_spaces", "cost_models")
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"^\s*(?:from|import) (?:results|tests)\b", path.read_text(encoding="utf-8"), re.M)
    ]
    assert wrong == []
