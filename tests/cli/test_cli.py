"""The command line: what each command prints, exit codes, and one clear line for each mistake."""

from __future__ import annotations

import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from autotune.cli import main as cli
from autotune.frontends.model_builder import ModelBuilder
from autotune.suggest import counted
from cost_models import builtin, features
from cost_models.manifest import RankerManifest
from cost_models.registry import Registry
from tests.cli.conftest import MODEL, TRIALS


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.run([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


HEAVY = {
    "numpy",
    "scipy",
    "optuna",
    "xgboost",
    "numba",
    "llvmlite",
    "sqlalchemy",
    "onnx",
    "rich",
    "pandas",
    "pyarrow",
}
LIGHT = {
    "--version": HEAVY,
    "--help": HEAVY,
    "tune --help": HEAVY,
    "query --help": HEAVY,
    "db --help": HEAVY,
    "jobs": HEAVY - {"sqlalchemy"} | {"autotune.compiler.request", "click.shell_completion", "html"},
    "status": HEAVY - {"sqlalchemy"},
    "report": HEAVY - {"sqlalchemy"},
}
"""Modules that commands which answer at once must not import: that takes longer than they do."""


@pytest.mark.parametrize("line", LIGHT)
def test_what_answers_at_once_imports_little(line: str, tuned: Path) -> None:
    code = (
        "import json, sys\nfrom autotune.cli import main\n"
        "assert main.run(sys.argv[1:]) == 0\n"
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)\n"
    )
    words = [*line.split(), *([] if line.startswith("-") or "--help" in line else ["--db", str(tuned)])]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert LIGHT[line].isdisjoint(json.loads(done.stderr.splitlines()[-1]))


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "--help")[1]
    assert all(re.search(rf"^  {name} ", out, re.M) for name in cli.COMMANDS)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, name, "--help")
    assert code == 0
    assert f"Example: autotune {name}" in " ".join(out.split())


@pytest.mark.parametrize("group", ["db", "bench", "replay"])
def test_a_group_says_in_whole_sentences_what_its_commands_do(
    group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, group, "--help")
    assert code == 0
    assert "..." not in out.split("Commands:")[1]


def test_zoo(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "zoo")
    assert code == 0
    assert "squeezenet" in out
    code, out, _ = run(capsys, "zoo", "--json")
    assert {"name": "mlp", "origin": "built"}.items() <= json.loads(out)[10].items()


def test_compile_run_query_and_explain_use_what_was_tuned(
    tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    atm = tmp_path / "model.atm"
    options = ["--db", tuned, "--threads", 1]
    code, out, _ = run(capsys, "compile", MODEL, "-o", atm, "--json", *options)
    assert code == 0
    facts = json.loads(out)
    assert facts["database"] == str(tuned)
    states = [dispatch["state"] for dispatch in facts["dispatches"]]
    assert facts["coverage"].startswith(f"{states.count('tuned')} of {len(states)} dispatches tuned, ")
    assert {*states} <= {"tuned", "unconfirmed", "default confirmed", "default after trials", "default"}
    code, _, err = run(capsys, "compile", MODEL, "-o", atm, "--require-hit", *options)
    assert (code == 0) == ("default" not in states), err
    code, out, _ = run(capsys, "run", atm, "--random", "--repeat", 5, "--json")
    assert code == 0
    assert json.loads(out)["latency"]["repeat"] == 5
    code, out, _ = run(capsys, "query", MODEL, "--json", *options)
    answers = json.loads(out)
    used = [answer for answer in answers if answer["used"]]
    assert all(
        answer["hit"] and (answer["gain"] is not None) == (answer["state"] == "tuned") for answer in used
    )
    assert sorted(answer["state"] for answer in used) == sorted(
        {dispatch["workload_key"]: dispatch["state"] for dispatch in facts["dispatches"]}.values()
    )
    divided = [answer for answer in answers if not answer["used"]]
    assert all(answer["ranking"]["chosen"] != "direct" for answer in divided)
    code, out, _ = run(capsys, "query", answers[0]["workload"][:10], "--explain", *options)
    assert (code, out.startswith(answers[0]["workload"][:12])) == (0, True)
    assert "space convolution" in out
    code, out, _ = run(capsys, "explain", MODEL, "--predict", "--json", *options)
    predicted = json.loads(out)["dispatches"]
    assert code == 0
    assert [d["name"] for d in predicted] == [d["name"] for d in facts["dispatches"]]
    assert any(d["source"].startswith("measured") for d in predicted)
    picture = tmp_path / "plan.svg"
    code, out, _ = run(capsys, "explain", MODEL, *options, "--memory", picture)
    assert code == 0
    assert picture.read_text(encoding="utf-8").startswith("<svg ")
    assert out.startswith("expected latency ")
    assert facts["coverage"] in out
    assert f"schedules from {tuned}" in out


def test_a_picture_of_memory_is_drawn_of_what_is_compiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "explain", MODEL, "--predict", "--memory", tmp_path / "plan.svg")
    message = "--memory shows a model that is compiled for it; it was given for something else"
    assert (code, message in err) == (2, True)
    assert not (tmp_path / "plan.svg").exists()


def test_a_model_runs_on_given_inputs_and_writes_its_outputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    given = ["--input", f"x={tmp_path / 'x.npy'}", "--output", tmp_path / "out"]
    trace = tmp_path / "trace.json"
    code, out, _ = run(capsys, "run", MODEL, *given, "--trace", trace)
    assert (code, out.startswith("probabilities: float32 1×10")) == (0, True)
    assert np.load(tmp_path / "out" / "probabilities.npy").sum() == pytest.approx(1.0, abs=1e-5)
    assert json.loads(trace.read_text())["traceEvents"]
    code, out, _ = run(capsys, "run", MODEL, *given, "--profile")
    head, *lines = out.splitlines()[1:]
    assert (code, bool(re.fullmatch(r"profile of .+: median [\d.]+ µs of 20 runs", head))) == (0, True), head
    header = "share time GFLOP/s GB/s of roof bound busy idle stolen dispatch nodes"
    assert lines[1].split() == header.split()
    totals = [
        line.split("  ")[-1].split(":")[0] for line in lines if " total" in line or " unaccounted" in line
    ]
    assert totals == ["total", "unaccounted"]
    code, out, _ = run(capsys, "run", MODEL, *given, "--profile", "--repeat", 3, "--json")
    assert (code, json.loads(out)["profile"]["runs"], json.loads(out)["latency"]["repeat"]) == (0, 3, 3)


def test_files_of_bfloat16(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A .npy file keeps the bits of bfloat16 without its name."""
    b = ModelBuilder("squares")
    x = b.input("x", (3,), "bfloat16")
    b.node("Mul", [x, x], "y")
    (tmp_path / "squares.onnx").write_bytes(b.finish(["y"]).SerializeToString())
    np.save(tmp_path / "x.npy", np.array([1.5, -2.0, 3.0]).astype("bfloat16"))
    options = ["--input", f"x={tmp_path / 'x.npy'}", "--output", tmp_path / "out"]
    code, out, _ = run(capsys, "run", tmp_path / "squares.onnx", *options)
    assert (code, out.startswith("y: bfloat16 3")) == (0, True)
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "y.npy").view("bfloat16"), [2.25, 4.0, 9.0])


def test_database_commands(tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "db", "stats", "--db", tuned)
    assert code == 0
    assert out.startswith(f"{tuned}: {TRIALS} runs (")
    assert re.search(rf"^  job \w+  {MODEL}: done, {TRIALS} runs in \d+ s, begun ", out, re.M)
    assert re.search(
        r"^  \w{12}  convolution .* [µn]s .*  1x\d+x\d+x\d+, .* → 1x\d+x\d+x\d+\n {16}\w", out, re.M
    )
    listed = re.findall(r"^  \w{12}  ", run(capsys, "db", "stats", "--db", tuned, "--all")[1], re.M)
    code, out, _ = run(capsys, "db", "stats", "--db", tuned, "--json")
    measured = [row for row in json.loads(out)["workloads"] if row["runs"]]
    assert len(listed) == len(measured) > 0
    assert all(row["shapes"] and row["layers"] and row["best_ns"] <= row["default_ns"] for row in measured)
    assert (code, json.loads(out)["runs"]) == (0, TRIALS)
    assert run(capsys, "db", "verify", "--db", tuned)[:2] == (0, "no problems found\n")
    for suffix in (".csv", ".json"):
        table = tmp_path / f"runs{suffix}"
        assert run(capsys, "db", "export", "--db", tuned, "-o", table)[0] == 0
        assert len(table.read_text().splitlines()) == TRIALS + (suffix == ".csv")
    table = tmp_path / "runs.parquet"
    assert run(capsys, "db", "export", "--db", tuned, table)[:2] == (0, f"wrote {TRIALS} runs to {table}\n")
    read = pandas.read_parquet(table)
    assert set(read["model"]) == {MODEL}
    assert all(read["layer"])
    assert (read["gflops"][read["outcome"] == "ok"] >= 0).all()
    code, _, err = run(capsys, "db", "export", "--db", tuned, tmp_path / "no" / "runs.csv")
    assert (code, err.startswith("error: cannot write ")) == (1, True)
    assert run(capsys, "db", "export", "--db", tuned)[0] == 2
    code, _, err = run(capsys, "db", "export", "--db", tuned, "-o", tmp_path / "runs.doc")
    assert code == 2
    assert "unknown format '.doc'" in err


def test_merge_and_prune(tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.db"
    assert run(capsys, "db", "merge", tuned, "--db", mine)[1].startswith(f"{TRIALS} new runs, 0 known")
    assert run(capsys, "db", "merge", tuned, "--db", mine)[1].startswith(f"0 new runs, {TRIALS} known")
    with sqlite3.connect(mine) as raw:
        (space,) = raw.execute("SELECT space_key FROM runs WHERE id = 1").fetchone()
        raw.execute("UPDATE spaces SET key = 'old' WHERE key = ?", (space,))
        raw.execute("UPDATE runs SET space_key = 'old' WHERE space_key = ?", (space,))
        (old,) = raw.execute("SELECT count(*) FROM runs WHERE space_key = 'old'").fetchone()
    code, out, _ = run(capsys, "db", "prune", "--db", mine, "--dry-run")
    assert (code, out.startswith(f"would delete {counted(old, 'run')} of 1 search space ")) == (0, True)
    code, out, _ = run(capsys, "db", "prune", "--db", mine)
    assert out.startswith(f"deleted {counted(old, 'run')} of")
    assert json.loads(run(capsys, "db", "stats", "--db", mine, "--json")[1])["runs"] == TRIALS - old


def test_verify_finds_what_was_tampered_with(
    tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy.db"
    with sqlite3.connect(tuned) as source, sqlite3.connect(copy) as target:
        source.backup(target)
        target.execute("UPDATE runs SET trace_json = '[]' WHERE id = 2")
        target.execute("UPDATE workloads SET text = 'rubbish' WHERE kind = 'softmax'")
    code, out, _ = run(capsys, "db", "verify", "--db", copy)
    assert code == 1
    assert "schedule of run 2 cannot be read: not a trace" in out
    assert re.search(r"workload \w{12} cannot be read", out)


def test_retrain_says_when_there_is_too_little(tuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "retrain", "--db", tuned)
    assert code == 0
    assert out.startswith("kept what was in use")


def test_retrain_remembers_a_database_wherever_it_is_called(
    tuned: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tuned.parent)
    code, out, _ = run(capsys, "retrain", "--db", tuned.name, "--db", tuned, "--json")
    assert code == 0
    assert [source["name"] for source in json.loads(out)["sources"]] == [str(tuned.resolve())]


def test_models_are_listed_shown_and_rolled_back(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtin, "SHIPPED", builtin.NONE)
    registry = Registry(home / "cost_models")
    for version, parent in (("v0001", ""), ("v0002", "v0001")):
        (registry.folder / version).mkdir(parents=True)
        RankerManifest("cost-model", "", {}, parent=parent).write(registry.folder / version)
    registry.promote("v0002")
    (registry.folder / "v0003").mkdir()
    code, out, _ = run(capsys, "models", "list")
    first, second, third, last = out.splitlines()
    assert (code, first) == (0, "  v0001  0 runs of 0 workloads, replaced no other version")
    assert second == "* v0002  0 runs of 0 workloads, replaced v0001"
    assert third.startswith("  v0003  no readable cost model in ")
    assert last.startswith("v0002 is in use; cost models in ")
    code, out, _ = run(capsys, "models", "show")
    assert (code, out.startswith("v0002, in use: ")) == (0, True)
    code, out, _ = run(capsys, "models", "rollback")
    assert (code, registry.current()) == (0, "v0001")
    assert out.startswith("v0001 is in use instead of v0002; ")
    code, out, _ = run(capsys, "models", "rollback")
    assert (code, registry.current()) == (0, None)
    assert out.startswith("the analytic model is used alone instead of v0001; ")
    code, out, _ = run(capsys, "models", "list", "--json")
    assert [found["in_use"] for found in json.loads(out)["versions"]] == [False] * 3
    code, _, err = run(capsys, "models", "rollback")
    assert (code, err.startswith("error: nothing to roll back to in ")) == (1, True)
    code, _, err = run(capsys, "models", "show")
    assert (code, err.startswith("error: no cost model is in use in ")) == (1, True)


def test_what_is_built_in_serves_until_it_is_rolled_back(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x86-64-v3").mkdir()
    RankerManifest("cost-model", features.schema(), {}).write(tmp_path / "x86-64-v3")
    monkeypatch.setattr(builtin, "SHIPPED", builtin.Defaults(tmp_path))
    monkeypatch.setenv("AUTOTUNE_HOST", "x86-64-v3")
    code, out, _ = run(capsys, "models", "list")
    line, last = out.splitlines()
    assert (code, line.startswith("* built in (x86-64-v3)  ")) == (0, True)
    assert last == f"built in (x86-64-v3) is in use; cost models in {home / 'cost_models'}"
    code, out, _ = run(capsys, "models", "show")
    assert (code, out.startswith("built in (x86-64-v3), in use: ")) == (0, True)
    code, out, _ = run(capsys, "models", "rollback")
    assert (code, out.startswith("the analytic model is used alone instead of built in (x86-64-v3); ")) == (
        0,
        True,
    )
    code, out, _ = run(capsys, "models", "list", "--json")
    assert json.loads(out)["in_use"] is None
    code, out, _ = run(capsys, "models", "use", "builtin")
    assert (code, out.startswith("built in (x86-64-v3) is in use instead of the analytic model; ")) == (
        0,
        True,
    )
    code, out, _ = run(capsys, "models", "use", "analytic", "--json")
    assert (code, json.loads(out)["version"], json.loads(out)["replaced"]) == (0, None, "x86-64-v3")
    code, out, _ = run(capsys, "models", "use", "analytic")
    assert (code, out.startswith("the analytic model is used alone, as before; ")) == (0, True)


def test_a_version_is_used_again_after_a_rollback(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtin, "SHIPPED", builtin.NONE)
    registry = Registry(home / "cost_models")
    code, _, err = run(capsys, "models", "use", "builtin")
    assert (code, err.splitlines()) == (
        1,
        [
            "error: no cost model comes with this version of autotune; use 'analytic' or a version: none",
        ],
    )
    for version, schema in (("v0001", features.schema()), ("v0002", "other")):
        (registry.folder / version).mkdir(parents=True)
        RankerManifest("cost-model", schema, {}).write(registry.folder / version)
    code, out, _ = run(capsys, "models", "use", "v0001")
    assert (code, registry.current()) == (0, "v0001")
    assert out.startswith("v0001 is in use instead of the analytic model; ")
    registry.rollback()
    assert registry.current() is None
    assert run(capsys, "models", "use", "v0001")[0] == 0
    assert registry.current() == "v0001"
    code, _, err = run(capsys, "models", "use", "v0002")
    assert (code, err) == (1, "error: v0002 is of another version of autotune; run `autotune retrain`\n")
    code, _, err = run(capsys, "models", "use", "v9")
    assert code == 1
    assert err.startswith("error: no cost model 'v9' in ")
    assert err.rstrip().endswith("versions: v0001, v0002; also 'builtin' and 'analytic'")
    assert registry.current() == "v0001", "a mistake changes nothing"


def test_nothing_is_made_up_without_a_database(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "query", MODEL)
    assert code == 2
    assert err.startswith(f"error: no such database: {home / 'tuning.db'}; `autotune tune")
    code, out, _ = run(capsys, "compile", MODEL, "-o", home.parent / "m.atm")
    assert code == 0
    assert re.match(r"0 of [1-9]\d* dispatches tuned", out), out
    assert "there is no database" in out
    assert run(capsys, "compile", MODEL, "-o", home / "m.atm", "--require-hit")[0] == 1
    assert not home.exists()


def _files(folder: Path) -> dict[str, Path]:
    from autotune.frontends import zoo

    good = folder / "good.onnx"
    good.write_bytes(zoo.load("tiny_cnn").SerializeToString())
    (folder / "text.onnx").write_text("this is a text, not a model\n" * 40)
    (folder / "cut.onnx").write_bytes(good.read_bytes()[:20_000])
    np.save(folder / "shape.npy", np.zeros((1, 3, 8, 8), np.float32))
    np.save(folder / "dtype.npy", np.zeros((1, 3, 16, 16), np.float64))
    (folder / "text.npy").write_text("no array")
    (folder / "empty.npy").touch()
    (folder / "text.atm").write_text("no artifact")
    newer = folder / "newer.db"
    assert cli.run(["tune", MODEL, "--trials", "0", "--db", str(newer)]) == 2
    from autotune.database import Database

    Database(newer).close()
    with sqlite3.connect(newer) as raw:
        raw.execute("UPDATE meta SET value = '99'")
    return {path.stem + path.suffix: path for path in folder.iterdir()}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return _files(tmp_path_factory.mktemp("files"))


MISTAKES: Sequence[tuple[int, str, str]] = [
    (2, "tune missing.onnx --trials 1", "no such file: missing.onnx"),
    (1, "tune {text.onnx} --trials 1", "text.onnx"),
    (1, "tune {cut.onnx} --trials 1", "cut.onnx"),
    (2, "tune zoo:none --trials 1", "no zoo model is called 'none'"),
    (2, "tune MODEL --trials 1 --target z80", "unknown target 'z80'; known targets: host"),
    (2, "tune MODEL --trials 1 --target aarch64", "this machine, which cannot run code for"),
    (2, "tune MODEL --trials 1 --threads 0", "threads must be at least 1, got 0"),
    (2, "tune MODEL --trials 1 --threads 4321", "4321 threads were requested, but this process may use"),
    (2, "compile MODEL -o m.atm --threads 4321", "use at most"),
    (2, "run MODEL --random --threads 4321", "allow it by --allow-oversubscription"),
    (2, "tune MODEL --trials -3", "a budget must be positive, got trials=-3"),
    (2, "tune MODEL --trials 1 --seed -1", "a seed is from 0 to 4294967295, not -1"),
    (2, "run MODEL --random --seed 4294967296", "a seed is from 0 to 4294967295, not 4294967296"),
    (2, "tune MODEL --budget soon", "not a time budget: 'soon'"),
    (2, "tune MODEL --trials 1 --sampler best", "unknown sampler 'best'"),
    (1, "tune MODEL --trials 1 --db {newer.db}", "has schema version 99, this autotune knows version"),
    (1, "tune MODEL --trials 1 --db {text.onnx}", "it is not a database file"),
    (1, "tune MODEL --trials 1 --db /proc/tuning.db", "it cannot be opened or created"),
    (2, "tune MODEL --trials 1 --db nosuch://host/db", "not a database URL"),
    (1, "query MODEL --db {newer.db}", "has schema version 99"),
    (2, "query MODEL --db missing.db", "no such database: missing.db"),
    (2, "retrain --db missing.db", "no such database: missing.db"),
    (1, "models show v7", "no cost model 'v7' in"),
    (2, "run MODEL", "no value for the input x: float32[1, 3, 16, 16]"),
    (2, "run MODEL --input x={shape.npy}", "got float32[1, 3, 8, 8]"),
    (2, "run MODEL --input x={dtype.npy}", "got float64"),
    (2, "run MODEL --input y={dtype.npy} --random", "no input 'y'; its inputs are x"),
    (2, "run MODEL --input y={dtype.npy}", "no input 'y'; its inputs are x"),
    (2, "run MODEL --input x={shape.npy} --input x={shape.npy}", "--input x is given twice"),
    (2, "run MODEL --input x={text.npy}", "is not a NumPy array file"),
    (2, "run MODEL --input x={empty.npy}", "is not a NumPy array file"),
    (2, "run MODEL --input x=missing.npy", "cannot read missing.npy"),
    (2, "run MODEL --input x", "--input 'x' is not NAME=FILE.npy"),
    (2, "run missing.atm --random", "no such file: missing.atm"),
    (1, "run {text.atm} --random", "text.atm"),
    (1, "compile MODEL -o /proc/model.atm", "/proc/model.atm"),
    (2, "tune", "Missing argument 'MODEL...'"),
    (2, "tune MODEL --trials many", "'many' is not a valid integer"),
    (
        2,
        "nonsense",
        "No such command 'nonsense'; there are: zoo, tune, jobs, status, report, serve, place, compile",
    ),
    (2, "tuen MODEL", "No such command 'tuen'; did you mean 'tune'?"),
    (2, "db stat", "No such command 'stat'; did you mean 'stats'?"),
    (2, "bench modles", "No such command 'modles'; did you mean 'models'?"),
    (
        2,
        "zoo:squeezenet",
        "; a model comes after a command, for example: autotune run zoo:squeezenet --random",
    ),
    (2, "tune MODEL --buget 3m", "--budget"),
    (2, "tune zoo:sqeezenet --trials 1", "did you mean 'squeezenet'?"),
    (2, "tune squeezenet --trials 1", "no such file: squeezenet; did you mean 'zoo:squeezenet'?"),
    (2, "tune MODEL --trials 1 --target x86-64v3", "did you mean 'x86-64-v3'?"),
    (2, "tune MODEL --trials 1 --sampler TP", "did you mean 'tpe'?"),
    (2, "tune MODEL --trials 1 --db postgre://host/db", "did you mean 'postgresql'?"),
]


@pytest.mark.parametrize(("expected", "line", "words"), MISTAKES, ids=[m[1] for m in MISTAKES])
def test_a_mistake_gives_one_clear_error(
    expected: int,
    line: str,
    words: str,
    files: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [
        MODEL if word == "MODEL" else re.sub(r"\{(.*)\}", lambda m: str(files[m[1]]), word)
        for word in line.split()
    ]
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (expected, "")
    assert words in err
    assert len(re.findall("^error: ", err, re.M | re.I)) == 1
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) in ([], [tmp_path / "home"])


def test_all_unsupported_operators_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from onnx import TensorProto, helper, save

    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in "xy")
    nodes = [
        helper.make_node("StringNormalizer", ["x"], ["a"]),
        helper.make_node("StringSplit", ["a"], ["y"]),
    ]
    path = tmp_path / "odd.onnx"
    opsets = [helper.make_opsetid("", 17)]
    save(helper.make_model(helper.make_graph(nodes, "odd", [x], [y]), opset_imports=opsets), path)
    code, _, err = run(capsys, "tune", path, "--trials", 1)
    assert code == 1
    assert "StringNormalizer" in err
    assert "StringSplit" in err


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions")
def test_a_read_only_folder(tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "fixed"
    folder.mkdir()
    with sqlite3.connect(tuned) as source, sqlite3.connect(folder / "tuning.db") as target:
        source.backup(target)
    folder.chmod(0o555)
    try:
        db = ["--db", folder / "tuning.db", "--threads", 1]
        assert run(capsys, "query", MODEL, *db)[0] == 0
        if os.geteuid() != 0:  # the superuser may write anywhere
            code, _, err = run(capsys, "tune", MODEL, "--trials", 1, *db)
            assert code == 1
            assert "read-only" in err
    finally:
        folder.chmod(0o755)


def test_ctrl_c_is_exit_code_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("autotune.tuning.api.tune", interrupted)
    code, _, err = run(capsys, "tune", MODEL, "--trials", 1)
    assert (code, err.splitlines()[-1]) == (130, "error: interrupted")


def test_an_unknown_sampler_is_noticed_before_workers_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def started(*_: Any, **__: Any) -> None:
        raise AssertionError("a worker was started")

    monkeypatch.setattr("autotune.tuning.measure.pool.ProcessPool", started)
    code, _, err = run(capsys, "tune", MODEL, "--trials", 1, "--sampler", "best")
    assert code == 2
    assert "unknown sampler 'best'; known samplers: guided" in err


@pytest.mark.usefixtures("shared_pools")
def test_the_studies_of_a_job_are_kept_where_they_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database, journal = tmp_path / "tuning.db", tmp_path / "studies.log"
    asked = ["tune", MODEL, "--trials", 1, "--threads", 1, "--db", database]
    assert run(capsys, *asked, "--study-storage", journal)[0] == 0
    assert journal.read_text(encoding="utf-8").count('"outcome":"ok"') == 1
    assert not Path(f"{database}.studies").exists()
    code, _, err = run(capsys, *asked, "--again", "--study-storage", "what://ever")
    assert code == 1
    assert err.splitlines()[-2].startswith("error: cannot open the studies in what://ever: ")


@pytest.fixture
def open_model(tmp_path: Path) -> Path:
    """A model whose batch size is open."""
    b = ModelBuilder("open")
    b.node("Relu", [b.input("x", ("batch", 3))], "y")
    path = tmp_path / "open.onnx"
    path.write_bytes(b.finish(["y"]).SerializeToString())
    return path


def test_shape_gives_open_sizes(open_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "run", open_model, "--random")
    assert code != 0
    assert "--shape batch=1 (" in err
    code, out, _ = run(capsys, "run", open_model, "--random", "--shape", "x=4x3")
    assert code == 0
    assert "y: float32 4×3" in out
    code, out, _ = run(capsys, "explain", open_model, "--shape", "x=4x3")
    assert code == 0


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["x"], "--shape 'x' is not NAME=SIZES"),
        (["x=4xa"], "--shape 'x=4xa' is not NAME=SIZES"),
        (["x=0x3"], "--shape 'x=0x3' is not NAME=SIZES"),
        (["x=4x3", "x=5x3"], "--shape x is given twice"),
        (["q=4x3"], "has no input 'q'"),
        (["x=4x2"], "does not fit input 'x'"),
    ],
)
def test_wrong_shapes(
    texts: list[str], said: str, open_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [option for text in texts for option in ("--shape", text)]
    code, _, err = run(capsys, "run", open_model, "--random", *options)
    assert code != 0
    assert said in err


@pytest.mark.usefixtures("shared_pools")
def test_every_command_takes_sizes_by_the_names_of_dimensions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    b = ModelBuilder("open")
    b.node("Relu", [b.input("x", ("batch", "seq", 3))], "y")
    model, artifact, database = (str(tmp_path / name) for name in ("open.onnx", "open.atm", "t.db"))
    Path(model).write_bytes(b.finish(["y"]).SerializeToString())
    for batch in ("1", "2"):
        sizes = ["--shape", f"batch={batch}", "--shape", "seq=6"]
        for command in (
            ["tune", model, "--trials", 1, "--db", database],
            ["compile", model, "-o", artifact],
            ["lock", model, "-o", tmp_path / "open.lock"],
        ):
            code, _, err = run(capsys, *command, *sizes)
            assert code == 0, (command, err)
        code, out, _ = run(capsys, "run", artifact, "--random")
        assert f"y: float32 {batch}×6×3" in out
    for command in (
        ["run", model, "--random"],
        ["query", model, "--db", database],
        ["explain", model],
        ["explain", model, "--predict"],
        ["explain", model, "--text", tmp_path / "open.txt"],
        ["place", model, "--devices", "cpu,cpu:0", "--db", database],
    ):
        code, _, err = run(capsys, *command, *sizes)
        assert code == 0, (command, err)
    code, out, err = run(capsys, "check", model, "--lock", tmp_path / "open.lock")
    assert code == 0, err
    assert "nothing is slower" in out
    for more in (["seq=1..8"], ["seq=1..8:4,8"]):
        code, out, err = run(capsys, "compile", model, "-o", artifact, "--shape", "batch=2", "--shape", *more)
        assert code == 0, err
        assert "for batch = 2, seq = 8" in out
    code, out, _ = run(capsys, "query", model, "--db", database, "--shape", "batch=3", "--shape", "seq=6")
    advised = re.search("`(autotune tune [^`]*)`", out)
    assert advised is not None
    assert f"{model} --db {database} --shape batch=3 --shape seq=6" in advised[1]
    code, _, err = run(capsys, *shlex.split(advised[1])[1:], "--trials", 1)
    assert code == 0, err
    _, out, _ = run(capsys, "explain", model, "--db", database, "--shape", "batch=4", "--shape", "seq=6")
    assert f"`autotune tune {model} --db {database} --shape batch=4 --shape seq=6` does that" in out
    _, _, err = run(capsys, "query", model, "--db", tmp_path / "none.db", *sizes)
    assert f"`autotune tune {model} {' '.join(sizes)} --db {tmp_path / 'none.db'}` makes one" in err
    code, _, err = run(capsys, "lock", model, "-o", "a.lock", "--shape", "batch=1..8", "--shape", "seq=1")
    assert code == 2
    assert "ranges of sizes are for `autotune compile`" in err
