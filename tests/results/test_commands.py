"""The commands of experiments: help, smoke runs without peers, and mistakes with one clear line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autotune.bench.experiment import frame_of
from autotune.cli import main as cli
from results.bench import balance
from results.bench.__main__ import command as bench

NAME = "python -m results.bench"
QUICK = ("--threads", "1", "--rounds", "1", "--turn", "0.001", "--json")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path / "home"))


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.run([*map(str, arguments)], bench, NAME)
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
    assert f"Example: {NAME} {name}" in " ".join(out.split())


def test_parts_switched_off(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "ablation.md"
    arguments = ("ablation", "tiny_cnn", "--threads", 1, "--processes", 1, "--without", "fusion", "-o", page)
    whole, off = measured(capsys, *arguments, "--json")["data"]
    assert (whole["switch"], off["switch"]) == (None, "fusion")
    assert not off["same"]
    assert off["dispatches"] > whole["dispatches"]
    assert off["region_bytes"] > whole["region_bytes"]
    assert off["off_over_on"] > 0
    assert "| tiny_cnn | fusion |" in page.read_text(encoding="utf-8")


def test_unknown_parts_are_not_switched_off(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "ablation", "mlp", "--without", "fusions")
    assert code == 2
    assert "--without 'fusions' is no part that can be switched off\n  one of fusion, " in err


def test_vector_functions(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "math", "exp", "--count", 100, "--rounds", 1)
    assert code == 0
    assert "exp, float64" in out
    assert "geometric mean" in out


def test_lowering(capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(capsys, "lowering", "GMM", "--repeat", 2, "--json")
    rows = found["data"]
    assert [row["stage"] for row in rows] == ["program", "replay", "lower", "emit", "LLVM"]
    assert all(row["lines"] > 100 and len(row["milliseconds"]) == 2 and row["min_ms"] > 0 for row in rows)


@pytest.mark.slow
def test_search(capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(capsys, "search", "SFM", "--trials", 2, "--candidates", 100, "--threads", 1, "--json")
    job, scores = found["data"]
    assert job["trials"] == 2
    assert scores["candidates"] == 100


@pytest.mark.slow
def test_promises_of_two_jobs_each(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ("SFM:64,64", "--twice", "--trials", 4, "--threads", 1, "--keep", tmp_path, "--json")
    found = measured(capsys, "promises", *arguments)
    *jobs, pair = found["data"]
    assert [job["trials"] for job in jobs] == [4, 4]
    assert pair["winners"]["processes"] >= 1
    assert sorted(path.name for path in tmp_path.glob("*.db")) == [
        "sfm-64-64-0.db",
        "sfm-64-64-1.db",
    ]


def test_promises_need_new_databases(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "gmm-1-64-64-64-0.db").touch()
    code, _, err = run(capsys, "promises", "GMM:1,64,64,64", "--keep", tmp_path)
    assert code != 0
    assert "gmm-1-64-64-64-0.db exists; a job from nothing makes it: name another folder" in err


@pytest.mark.slow
def test_promises_of_the_same_code(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("SFM:64,64", "--same-code", "--trials", 12, "--threads", 1, "--json")
    found = measured(capsys, "promises", *arguments)
    (job,) = found["data"]
    assert (job["kept"], job["claims"]) == (True, 0)
    assert job["report"]["trials"] == 12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("math", "sine"), "unknown function 'sine'; there are: exp"),
        (("search", "XYZ"), "unknown operator 'XYZ'; there are: GMM"),
        (("int8", "XYZ"), "no problem's name has 'XYZ'; there are: digits"),
        (("memory", "XYZ"), "unknown family 'XYZ'; there are: elementwise"),
        (("lowering", "XYZ"), "unknown operator 'XYZ'; there are: CBR"),
    ],
)
def test_mistakes_are_one_line_with_exit_code_2(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_overhead(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "overhead")
    assert code == 0
    assert "call from Python, 1 worker" in out


def test_several_requests_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    ways = ("call", "submit", "submit_all", "await")
    found = measured(
        capsys,
        *("requests", "tiny_cnn", "--threads", "1", "--in-flight", "1,3", "--ways", ",".join(ways)),
        *("--seconds", "0.2", "--peers", "none", "--json"),
    )["data"]
    assert [(each["in_flight"], each["way"]) for each in found] == [(n, way) for n in (1, 3) for way in ways]
    for each in found:
        assert each["requests"] > 0
        assert each["wrong"] == 0
        assert sum(each["latencies_ns"].values()) == each["requests"]
        assert len(each["rss_bytes"]) == 5


def test_a_slow_worker_among_others() -> None:
    said = list[str]()
    (found,) = balance.measure(said.append, ["mlp"], 2, 2, (1.0, 4.0))
    assert said == ["mlp: 2 factors, 2 rounds"]
    assert [(each["model"], each["factor"], len(each["following_ns"])) for each in found] == [
        ("mlp", 1, 2),
        ("mlp", 4, 2),
    ]
    assert all(0 < each["share"] < 1 and min(each["fixed_ns"]) > 0 for each in found)
    page, means = balance.EXPERIMENT.tables(frame_of(found))
    assert page.title == "One of 2 workers is slow"
    assert [row[0] for row in page.rows] == ["mlp, 1", "mlp, 4"]
    assert [row[0] for row in means.rows] == ["1", "4"]


def test_memory_beside_copying(capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(capsys, "memory", "gather", "--megabytes", 0.05, *QUICK)
    assert [(row["contender"], row["kind"]) for row in found["data"]] == [
        ("default", "own"),
        ("copy", "floor"),
    ]


def test_quantised_operators_beside_float32(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "int8.md"
    found = measured(capsys, "int8", "7² 512", "--peers", "none", "-o", page, *QUICK)
    assert [row["family"] for row in found["data"]] == ["float32", "int8"]
    (line,) = [line for line in page.read_text(encoding="utf-8").splitlines() if "7² 512→512" in line]
    assert "–" not in line


def test_quantised_models_beside_float32(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="digits come with scikit-learn")
    page = tmp_path / "int8.md"
    arguments = ("int8", "digits", "--peers", "none", "--processes", 1, "-o", page, *QUICK)
    accuracy, plain, quantised = measured(capsys, *arguments)["data"]
    assert (accuracy["model"], accuracy["runtime"]) == ("digits", "autotune")
    assert accuracy["right_before"] > 0.95
    assert accuracy["right"] > accuracy["right_before"] - 0.01
    assert accuracy["error"] < 0.05
    assert [each["family"] for each in (quantised, plain)] == ["quantised model", "float32 model"]
    text = page.read_text(encoding="utf-8")
    assert "| digits | autotune quantize | autotune |" in text
    assert "| digits, by autotune quantize |" in text
    assert "Quantised operators" not in text


@pytest.mark.parametrize("text", ["fast", "0.5", "1,", "1001"])
def test_factors_of_a_slow_worker_are_checked(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "balance", "mlp", "--factors", text)
    assert code == 2
    assert f"--factors {text}" in err.replace("'", "")
