"""One artifact for several targets from the command line: compile, explain, and what cannot be together."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest
from click.testing import CliRunner

from autotune.cli.main import cli
from autotune.errors import ArtifactError, UsageError
from autotune.runtime.artifacts.archive import read_members

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="its levels are those of x86-64")

MODEL = "zoo:tiny_cnn"


def run(*arguments: object) -> str:
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("several") / "m.atm"
    said = run("compile", MODEL, "-o", made, "--threads", 1, "--target", "x86-64", "--target", "cuda:sm_90")
    assert [line for line in said.splitlines() if line.startswith("for ")] == ["for x86-64", "for cuda:sm_90"]
    assert "MB for 2 targets in" in said
    return made


def test_explain_says_what_it_holds(path: Path) -> None:
    facts = json.loads(run("explain", path, "--json"))
    assert facts["format"] == "autotune-model"
    assert facts["bytes"] == path.stat().st_size
    assert [image["target"] for image in facts["images"]] == ["x86-64", "cuda:sm_90"]
    assert facts["taken_here"] in ("x86-64", "cuda:sm_90")
    assert facts["images"][0]["why_not_here"] == ""
    lines = run("explain", path).splitlines()
    assert lines[0].endswith("autotune-model version 2")
    assert lines[3].startswith("x86-64, 1 thread: ")
    assert lines[-1] == "every member is what its hash says"


def test_the_one_that_fits_runs(path: Path) -> None:
    assert json.loads(run("run", path, "--random", "--json"))["outputs"]


def test_explain_finds_damage(path: Path, tmp_path: Path) -> None:
    data = bytearray(path.read_bytes())
    with path.open("rb") as file:
        data[read_members(file)["constants/0.bin"].start] ^= 1
    (tmp_path / "bad.atm").write_bytes(data)
    with pytest.raises(ArtifactError, match=r"constants/\d+\.bin is damaged"):
        run("explain", tmp_path / "bad.atm")


def test_what_does_not_go_together(tmp_path: Path) -> None:
    two = ("compile", MODEL, "-o", tmp_path / "no.atm", "--target", "x86-64", "--target", "x86-64-v2")
    with pytest.raises(UsageError, match="are both x86-64: one artifact holds it once"):
        run(*two, "--target", "x86-64")
    with pytest.raises(UsageError, match=r"target given together with the lock m\.lock"):
        run(*two, "--lock", "m.lock")
    with pytest.raises(UsageError, match="runs on the devices that are named for it"):
        run(*two, "--place", "Conv=cpu")
    assert not (tmp_path / "no.atm").exists()
