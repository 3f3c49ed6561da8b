"""Texts of others: names that would steer a terminal, leave a folder or be too long, JSON that nests without end."""

from __future__ import annotations

import copy
import pickle
import re
import xml.etree.ElementTree
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import autotune
from autotune.cli import main as cli
from autotune.compiler.lock import Lock
from autotune.database.pack import _tables_of
from autotune.database.pack_rows import from_line
from autotune.database.schema import targets
from autotune.errors import AutotuneError, LockError, PackError, UsageError
from autotune.foreign import file_name, parse_json, printable
from autotune.frontends.model_builder import ModelBuilder
from autotune.runtime.artifacts.manifest import Manifest
from autotune.schedule.trace import Trace
from autotune.target import Target

EVIL = "a\x1b[31mred\x07\x9b2J\u202e\x7f"
STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


def foreign_model(tmp_path: Path, name: str = EVIL) -> Path:
    b = ModelBuilder(name)
    x = b.input(f"{name} x", (4, 8))
    hidden = b.node("MatMul", [x, b.normal(f"{name} w", (8, 8), 1.0)], f"{name} h")
    b.node("Softmax", [hidden], f"{name} y")
    path = tmp_path / "foreign.onnx"
    path.write_bytes(b.finish([f"{name} y"]).SerializeToString())
    return path


@pytest.mark.usefixtures("shared_pools")
def test_names_of_others_never_steer_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path / "home"))
    model, artifact, database = str(foreign_model(tmp_path)), str(tmp_path / "m.atm"), str(tmp_path / "t.db")
    svg, shown = tmp_path / "m.svg", 0
    for code, command in (
        (0, ["tune", model, "--trials", "1", "--db", database]),
        (0, ["tune", model, "--trials", "1", "--db", database, "--json"]),
        (0, ["compile", model, "-o", artifact, "--verbose"]),
        (0, ["run", model, "--random", "--repeat", "2", "--profile", "--output", str(tmp_path / "out")]),
        (0, ["run", artifact, "--random", "--json"]),
        (0, ["query", model, "--db", database, "--explain", "--top", "2"]),
        (0, ["explain", model, "--memory", str(svg)]),
        (0, ["explain", model, "--json"]),
        (0, ["explain", artifact]),
        (2, ["run", model]),
        (2, ["run", model, "--random", "--input", f"{EVIL}={model}"]),
        (2, ["compile", str(tmp_path / EVIL), "-o", artifact]),
    ):
        assert cli.run(command) == code, command
        captured = capsys.readouterr()
        text = captured.out + captured.err
        assert STEERS.findall(text) == [], command
        shown += "\\x1b[31mred" in text or "\\u001b[31mred" in text
    assert shown > 8
    assert [*(tmp_path / "out").glob("*.npy")]
    xml.etree.ElementTree.parse(svg)


def test_errors_print_names_of_others() -> None:
    error = AutotuneError(f"no {EVIL}\n  next line")
    assert STEERS.findall(str(error)) == []
    assert str(error).splitlines()[1] == "  next line"


@given(st.text())
def test_printable_text_is_left_alone_and_other_is_made_so(text: str) -> None:
    found = printable(text)
    assert STEERS.findall(found) == []
    assert printable(found) == found
    if text.isprintable():
        assert found == text


@given(st.text(st.characters(), max_size=300))
def test_names_of_files_stay_in_their_folder(text: str) -> None:
    name = file_name(text)
    assert 1 <= len(name.encode()) <= 255
    assert not {"/", "\0"} & {*name}
    assert name not in (".", "..")


@pytest.mark.parametrize("name", ["long" * 400, "..", "\0", "ü" * 200])
def test_dumps_of_any_name_are_in_their_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_DUMP", str(tmp_path / "dump"))
    b = ModelBuilder(name)
    b.node("Relu", [b.input("x", (4,))], "y")
    autotune.compile(b.finish(["y"]).SerializeToString(), threads=1)
    (folder,) = (tmp_path / "dump").iterdir()
    assert (folder / "dispatches.txt").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["dump"]


DEEP = {depth: "[" * depth + "]" * depth for depth in (300, 900, 100_000)}


@pytest.mark.parametrize("depth", DEEP)
def test_json_that_nests_without_end_is_one_error_everywhere(depth: int) -> None:
    deep = DEEP[depth]
    with pytest.raises(ValueError, match="it nests deeper than 200 lists and objects"):
        parse_json(deep)
    for read, error in (
        (lambda: _tables_of(f'{{"format": "autotune-pack", "version": {deep}}}'.encode()), PackError),
        (lambda: from_line(targets, f'{{"key": {deep}}}'.encode(), 1), PackError),
        (lambda: Lock.from_json(f'{{"format": "autotune-lock", "version": {deep}}}'), LockError),
        (lambda: Manifest.from_json(f'{{"format": {deep}}}'.encode()), autotune.errors.ArtifactError),
        (lambda: Trace.from_json(f'{{"version": 1, "steps": {deep}}}'), autotune.errors.ScheduleError),
        (lambda: Target.from_json(f'{{"features": {deep}}}'), autotune.errors.TargetError),
    ):
        with pytest.raises(error, match="it nests deeper than 200 lists and objects"):
            read()


def test_wide_json_is_read() -> None:
    assert parse_json(f"[{', '.join(['[[1]]'] * 1000)}]") == [[[1]]] * 1000


def test_modules_say_that_they_are_not_pickled(tmp_path: Path) -> None:
    module = autotune.compile("zoo:tiny_cnn", threads=1)
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(
            UsageError, match=r"a Module cannot be pickled or copied: .*\n  write it by module\.save"
        ):
            attempt(module)
    b = ModelBuilder("open")
    b.node("Relu", [b.input("x", ("n",))], "y")
    with pytest.raises(UsageError, match="a Module cannot be pickled"):
        pickle.dumps(autotune.compile_for_sizes(b.finish(["y"]), {"n": "1..2"}, threads=1))


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0, 1e30])
def test_times_that_are_none_are_usage_errors(wrong: float) -> None:
    with autotune.compile("zoo:tiny_cnn", threads=1) as module:
        (spec,) = module.inputs
        x = np.zeros(spec.shape, np.float32)
        with pytest.raises(UsageError, match="the deadline of a request is in more than 0 seconds, got"):
            module.submit(x, deadline=wrong)
        with pytest.raises(UsageError, match="a timeout is 0 to 1e"):
            module.submit(x, timeout=wrong)
