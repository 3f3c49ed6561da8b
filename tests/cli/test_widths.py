"""Lines of commands on terminals of every width, and in a pipe."""

from __future__ import annotations

import fcntl
import io
import os
import re
import struct
import sys
import termios
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotune.cli import main as cli
from tests.cli.conftest import MODEL, TRIALS
from tests.once import made_once

ONE = ("--threads", "1")
COMMANDS = {
    "zoo": "zoo",
    "jobs": "jobs --db {db}",
    "status": "status --db {db}",
    "report": "report --db {db}",
    "tune": f"tune {{model}} --trials {TRIALS} --threads 1 --db {{db}}",
    "query": "query {model} --threads 1 --db {db}",
    "query -v": "query {model} --threads 1 --db {db} -v",
    "compile -v": "compile {model} --threads 1 --db {db} -v -o {folder}/out.atm",
    "explain": "explain {model} --threads 1 --db {db}",
    "explain artifact": "explain {artifact}",
    "run --profile": "run {artifact} --random --repeat 2 --profile",
    "db stats": "db stats --db {db}",
    "devices": "devices",
    "models list": "models list",
}
"""Of the job of ``tune`` the report is shown again: it has come to its end."""


@pytest.fixture(scope="module")
def words(tuned: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The words of commands: a database, a model, and its artifact."""

    def make(folder: Path) -> None:
        artifact = str(folder / "model.atm")
        assert cli.run(["compile", MODEL, *ONE, "--db", str(tuned), "-o", artifact, "-q"]) == 0

    folder = made_once(tmp_path_factory, "widths", make)
    return {
        "db": str(tuned),
        "model": MODEL,
        "folder": str(tmp_path_factory.mktemp("out")),
        "artifact": str(folder / "model.atm"),
    }


@contextmanager
def output(columns: int | None) -> Iterator[list[str]]:
    """Yield the lines that are printed meanwhile, on a terminal of so many columns or into a pipe."""
    lines = list[str]()
    reader, writer = os.pipe() if columns is None else os.openpty()
    if columns is not None:
        fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    thread = threading.Thread(target=_read, args=(reader, lines))
    thread.start()
    before = sys.stdout
    with io.TextIOWrapper(io.FileIO(writer, "w"), encoding="utf-8", line_buffering=True) as sys.stdout:
        try:
            yield lines
        finally:
            sys.stdout.flush()
            last, sys.stdout = sys.stdout, before
            last.close()
            thread.join()
            os.close(reader)


def _read(reader: int, lines: list[str]) -> None:
    """Read until the other side is closed, which a terminal says by an error."""
    found = b""
    while True:
        try:
            part = os.read(reader, 1 << 16)
        except OSError:
            break
        if not part:
            break
        found += part
    lines += found.decode().replace("\r\n", "\n").splitlines()


def pasteable(line: str) -> bool:
    """Return whether a line is too long for a command in it, or for one word such as a path."""
    return "`" in line or len(max(line.split(), key=len)) > 40


def meant(word: str, whole: list[str]) -> set[str]:
    """Return the names that were cut to a word, among lines in which nothing is cut."""
    name = re.compile(re.escape(word).replace("…", ".*?"))
    return {found[0] for line in whole if (found := name.search(line))}


@pytest.mark.parametrize("columns", [80, 200, None, pytest.param(120, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", COMMANDS)
def test_lines_are_whole_and_names_are_different(
    name: str, columns: int | None, words: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_HOME", words["folder"])
    with output(columns) as lines:
        assert cli.run(COMMANDS[name].format(**words).split()) == 0
    assert lines
    shown = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in lines]
    wide = [line for line in shown if columns is not None and len(line) > columns and not pasteable(line)]
    assert not wide, "\n".join(wide)
    cut = Counter(word for line in shown for word in line.split() if "…" in word and len(word) > 1)
    assert columns is not None or not cut
    several = [word for word, count in cut.items() if count > 1]
    if several:
        with output(None) as whole:
            assert cli.run(COMMANDS[name].format(**words).split()) == 0
        for word in several:
            assert len(meant(word, whole)) == 1, word
