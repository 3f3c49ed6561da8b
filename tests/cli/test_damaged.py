"""Databases that cannot be used: one clear error each, exit code 1, and nothing lost."""

from __future__ import annotations

import resource
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.cli import main as cli
from autotune.database import Database
from tests.cli.conftest import MODEL, TRIALS
from tests.patience import PATIENCE_S


@pytest.fixture
def copy(tuned: Path, tmp_path: Path) -> Path:
    """A copy of a tuned database; what is still in its log comes with it."""
    copy = tmp_path / "copy.db"
    with sqlite3.connect(tuned) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    source.close()
    target.close()
    return copy


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.run([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


INF = float("inf")
DAMAGES = [
    ("runs", "outcome", "splendid", "run 1 is damaged: 'splendid' is not a valid Outcome"),
    ("runs", "latency_min_ns", -5.0, "run 1 is damaged: its latency_min_ns is -5.0"),
    ("runs", "latency_min_ns", "fast", "run 1 is damaged: its latency_min_ns is 'fast'"),
    ("runs", "latency_median_ns", INF, "run 1 is damaged: its latency_median_ns is inf"),
    ("runs", "n", INF, "run 1 is damaged: its n is inf"),
    ("runs", "created", INF, "run 1 is damaged: its created is inf"),
    ("runs", "error", "small", "run 1 is damaged: its error is 'small'"),
    ("runs", "seed", b"\xff", "run 1 is damaged: its seed is b'\\xff'"),
    ("runs", "message", b"\xff", "run 1 is damaged: its message is no text but b'\\xff'"),
    ("runs", "config_json", '{"rows": ', "the configuration of run 1 is no JSON object"),
    ("runs", "workload_key", "gone", "row 1 of runs refers to a missing workloads"),
    ("runs", "target_key", "gone", "row 1 of runs refers to a missing targets"),
    ("workloads", "flops", INF, "is damaged: its flops is inf"),
    ("workloads", "text", b"\x00\x01", "is damaged: its text is no text"),
    ("workloads", "key", b"\x00", "is damaged: its key is no text"),
    ("targets", "json", "{", "is damaged: "),
    ("jobs", "created", "long ago", "is damaged: its created is 'long ago'"),
    ("layers", "names", "{}", "is damaged: its names are {}"),
]


@pytest.mark.parametrize(("table", "column", "value", "said"), DAMAGES)
def test_damaged_rows_are_named(
    copy: Path, capsys: pytest.CaptureFixture[str], table: str, column: str, value: object, said: str
) -> None:
    with sqlite3.connect(copy) as raw:
        raw.execute(
            f"UPDATE {table} SET {column} = ? WHERE rowid = (SELECT min(rowid) FROM {table})", (value,)
        )
    raw.close()
    code, out, err = run(capsys, "db", "verify", "--db", copy)
    assert (code, err) == (1, "")
    assert said in out
    code, out, err = run(capsys, "db", "export", "--db", copy, copy.with_suffix(".csv"))
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert not copy.with_suffix(".csv").exists()
    for arguments in (["db", "stats"], ["db", "prune", "--dry-run"], ["query", MODEL, "--threads", "1"]):
        code, _, err = run(capsys, *arguments, "--db", copy)
        assert code in (0, 1)
        assert err.count("\n") == code


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9])
def test_a_truncated_file(copy: Path, capsys: pytest.CaptureFixture[str], share: float) -> None:
    with sqlite3.connect(copy) as raw:
        raw.execute("PRAGMA journal_mode=DELETE")
    raw.close()
    whole = copy.read_bytes()
    copy.write_bytes(whole[: int(share * len(whole))])
    for command in (["verify"], ["export", copy.with_suffix(".csv")], ["stats"]):
        code, out, err = run(capsys, "db", *command, "--db", copy)
        assert code in (0, 1)
        assert "Traceback" not in out + err
        assert err.count("\n") <= 1
        if command == ["verify"]:
            assert code == 1


def test_a_table_that_cannot_be_written(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (copy / "runs.csv", copy.parent / "none" / "runs.parquet", Path("/proc/runs.jsonl")):
        code, out, err = run(capsys, "db", "export", "--db", copy, path)
        assert (code, out) == (1, "")
        assert err.startswith(f"error: cannot write {path}: ")
        code, out, err = run(capsys, "compile", MODEL, "-o", path.with_suffix(".atm"), "--db", copy)
        assert code == 1
        assert err.startswith("error: cannot write artifact ")
        assert err.count("\n") == 1


def test_a_full_disk(copy: Path) -> None:
    """A limit of the file size is to a process what a full disk is."""
    limit = copy.stat().st_size + 40_000
    for arguments in (["db", "export", str(copy.with_suffix(".csv"))], ["tune", MODEL, "--trials", "60"]):
        done = subprocess.run(
            [sys.executable, "-m", "autotune.cli.main", *arguments, "--db", str(copy)],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        )
        if arguments[0] == "tune":
            assert done.returncode == 1, done.stdout
            assert "error: " in done.stderr
        assert "Traceback" not in done.stderr
    with Database(copy, read_only=True) as database:
        assert len(database.records()) >= TRIALS
        assert database.damage() == []


def test_a_failing_command_keeps_no_file_open(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with sqlite3.connect(copy) as raw:
        raw.execute("UPDATE meta SET value = '99'")
    raw.close()
    for command in ("stats", "verify"):
        code, _, err = run(capsys, "db", command, "--db", copy)
        assert (code, err.count("\n")) == (1, 1)
        assert "has schema version 99, this autotune knows version" in err
    shutil.copy(copy, copy.with_suffix(".bak"))
    held = [path.resolve() for path in Path("/proc/self/fd").iterdir() if path.exists()]
    assert copy not in held
