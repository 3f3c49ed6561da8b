"""Shell completion: answers to a shell, by click's own interface to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import BashComplete, CompletionItem, ShellComplete

from autotune.cli import main as cli
from autotune.frontends import zoo


def items(*words: str) -> list[CompletionItem[str]]:
    """Return all that may follow; the last word is begun."""
    return ShellComplete(cli.cli, {}, "autotune", "_AUTOTUNE_COMPLETE").get_completions(
        [*words[:-1]], words[-1]
    )


def values(*words: str) -> list[str]:
    return [item.value for item in items(*words)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with files and a folder."""
    for name in ("a.onnx", "b.onnx", "b.atm", "notes.md", "t.db"):
        (tmp_path / name).touch()
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "c.onnx").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands_and_options() -> None:
    assert values("qu") == ["quantize", "query"]
    assert values("db", "st") == ["stats"]
    assert {"--db", "--target", "--threads", "--top"} <= set(values("query", "--t")) | set(
        values("query", "--d")
    )


def test_models_of_the_zoo_and_files() -> None:
    assert values("tune", "zoo:sq") == ["zoo:squeezenet"]
    assert len(values("run", "zoo:")) == len(zoo.names())
    assert values("tune", "a") == ["a.onnx"]
    assert values("tune", "b") == ["b.atm", "b.onnx", "below/"]
    assert values("query", "below/") == ["below/c.onnx"]
    assert [(item.type, item.value) for item in items("run", "bel")] == [("dir", "bel")]
    assert values("run", "nothing") == []
    assert values("run", "none/x") == []


def test_databases() -> None:
    assert values("jobs", "--db", "") == ["below/", "t.db"]
    assert values("db", "merge", "t") == ["t.db"]


def test_jobs_of_the_database_that_is_named(tuned: Path) -> None:
    (job,) = items("report", "--db", str(tuned), "")
    assert values("status", "--db", str(tuned), job.value[:3]) == [job.value]
    assert job.help == "zoo:tiny_cnn, done"
    assert values("report", "--db", "t.db", "") == []
    assert values("report", "--db", str(tuned), "zz") == []


def test_devices_one_after_the_other() -> None:
    assert "cpu" in values("tune", "a.onnx", "--devices", "")
    assert "cpu,cpu" in values("place", "a.onnx", "--devices", "cpu,")
    assert "Conv=cpu" in values("compile", "a.onnx", "--place", "Conv=")
    assert values("compile", "a.onnx", "--place", "Con") == []


def test_targets() -> None:
    assert values("compile", "a.onnx", "--target", "x86-64-v3") == ["x86-64-v3", "x86-64-v3-vnni"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell(
    shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BashComplete, "_check_version", lambda *_: None)
    assert cli.run(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert f"_AUTOTUNE_COMPLETE={shell}_complete" in out
    assert ("COMP_WORDBREAKS" in out) == (shell == "bash")
    assert cli.run(["completion", "csh"]) == 2
