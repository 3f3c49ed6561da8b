"""The benchmark commands: help, smoke runs without peers, and mistakes with one clear line."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from autotune.cli import main as cli
from autotune.cli.bench import command as bench

QUICK = ("--threads", "1", "--rounds", "1", "--turn", "0.001", "--json")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path / "home"))


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.run(["bench", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def measured(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    code, out, err = run(capsys, *arguments)
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.parametrize("name", bench.list_commands(None))  # type: ignore[arg-type]
def test_every_benchmark_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, name, "--help")
    assert code == 0
    assert f"Example: autotune bench {name}" in " ".join(out.split())


def test_models(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "models.md"
    found = measured(capsys, "models", "tiny_cnn", "--peers", "none", "-o", page, *QUICK)
    (row,) = found["data"]
    assert row["contender"] == "default"
    assert row["min_ns"] > 0
    text = page.read_text(encoding="utf-8")
    assert "| tiny_cnn |" in text
    assert "Where our time goes, 1 thread" in text
    assert re.search(r"^autotune bench models tiny_cnn .*--peers none", text, re.M)


def test_products_beside_openblas(capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(capsys, "gemm", 7, "--peer-python", sys.executable, *QUICK)
    assert "--peer-python PYTHON" in found["command"]
    assert sys.executable not in found["command"]
    ours, theirs = found["data"]
    assert (ours["family"], ours["contender"], theirs["contender"]) == ("odd", "default", "numpy")
    assert theirs["error"] < 1e-5
    assert ours["native_ns"] > 0


def test_operators(capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(capsys, "operators", "SFM", "NRM:1,5,7", "--smallest", "--peers", "none", *QUICK)
    row, other = found["data"]
    assert (row["family"], row["case"], row["hits"], row["dispatches"]) == ("SFM", "(256,256)", 0, 1)
    assert (other["family"], other["case"]) == ("NRM", "(1,5,7)")
    assert found["notes"][0] == "SFM: softmax over axis 1 (M,N)"


@pytest.mark.slow
def test_operators_tuned_and_not(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    database = tmp_path / "secret" / "ops.db"
    database.parent.mkdir()
    arguments = ("operators", "SFM", "--smallest", "--peers", "none", "--db", database, "--trials", 2)
    found = measured(capsys, *arguments, *QUICK)
    assert [(row["contender"], row["hits"], row["dispatches"]) for row in found["data"]] == [
        ("default", 1, 1),
        ("tuned", 1, 1),
    ]
    assert "--db ops.db" in found["command"]
    assert "secret" not in found["command"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("operators", "XYZ"), "unknown family 'XYZ'; there are: C1D"),
        (("operators", "GMM:1,2"), "'GMM:1,2': GMM takes 4 whole numbers: batch matmul (B,N,M,K)"),
        (("models", "no_such_model", "--peers", "none"), "no zoo model is called 'no_such_model'"),
        (("models", "mlp", "--peers", "tensorflow"), "unknown peer 'tensorflow'"),
        (("models", "mlp", "--peer-python", "/no/python"), "cannot run the Python interpreter /no/python"),
        (("gemm", "7", "--threads", "0"), "usable cores; give 1 to"),
        (("gemm", "7", "--threads", "x"), "--threads 'x' is no list of numbers"),
        (("operators", "SFM", "--smallest", "--peers", "none", "--trials", "1"), "give --db FILE"),
    ],
)
def test_mistakes_are_one_line_with_exit_code_2(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert message in err
    assert "Traceback" not in err
