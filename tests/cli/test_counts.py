"""Counts in what users read: one thing has no plural."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autotune.cli import main as cli
from tests.product import write_product

WRONG = re.compile(r"(?<![\w.,×:])1 (?!ms\b|ns\b|µs\b)(?:(?:more|new|fresh|later|measured) )?\w+s\b")
RIGHT = re.compile(r"1 (process|has|is|was|times|class|pass|less)\b")
ALONE = ("--threads", "1")
COMMANDS = {
    "first": ("tune", "MODEL", "--trials", "1", *ALONE),
    "again": ("tune", "MODEL", "--trials", "1", "--again", *ALONE),
    "status": ("status",),
    "jobs": ("jobs",),
    "report": ("report",),
    "page": ("report", "--html", "page.html"),
    "explain": ("explain", "MODEL", *ALONE),
    "explain page": ("explain", "MODEL", "--html", "model.html", *ALONE),
    "compile": ("compile", "MODEL", "-o", "model.atm", "--verbose", *ALONE),
    "artifact": ("explain", "model.atm"),
    "query": ("query", "MODEL", "--verbose", *ALONE),
    "run": ("run", "model.atm", "--random", "--repeat", "1"),
    "profile": ("run", "model.atm", "--random", "--repeat", "1", "--profile"),
    "statistics": ("db", "stats"),
    "prune": ("db", "prune"),
    "lock": ("lock", "MODEL", "-o", "model.lock", *ALONE),
}


def wrong(text: str) -> list[str]:
    """Return the counts of one that have a plural."""
    return [found[0] for found in WRONG.finditer(text) if not RIGHT.match(found[0])]


def test_what_is_wrong_is_found() -> None:
    assert wrong("1 dispatches, 1 more options, 11 runs, 0.1 runs, 1 process, 1 ms, 1 run") == [
        "1 dispatches",
        "1 more options",
    ]


@pytest.mark.usefixtures("shared_pools")
def test_one_of_each_is_written_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model of one dispatch, one trial, one thread, one run."""
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    write_product(Path("product.onnx"))
    shown = dict[str, str]()
    for name, command in COMMANDS.items():
        code = cli.run([part.replace("MODEL", "product.onnx") for part in command])
        shown[name] = "".join(capsys.readouterr())
        assert code == 0, (name, shown[name])
    pages = {path.name: path.read_text() for path in tmp_path.glob("*.html")}
    assert [*sorted(pages)] == ["model.html", "page.html"]
    assert "1 dispatch" in shown["first"]
    assert "1 run, 1 thread" in shown["run"]
    assert {name: found for name, text in (shown | pages).items() if (found := wrong(text))} == {}
