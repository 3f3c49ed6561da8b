"""Competitors in processes of their own: turns, failures, differences of outputs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from autotune.bench import systems
from autotune.bench.columns import to_best
from autotune.bench.compare import BenchmarkPlan, _Share, compare, peer_entries
from autotune.bench.experiment import FrameRows
from autotune.bench.own import enter, runs_known, tune_up_to
from autotune.bench.problem import BenchmarkCase, Problem, write_recipe
from autotune.bench.side_by_side import Competitor, Pace, SideBySide, difference
from autotune.bench.suites.convolutions import Convolution, convolution
from autotune.bench.suites.dense import matmul
from autotune.bench.worker import SYSTEMS, Worker, serve, timed
from autotune.compiler import distinct_workloads, divide
from autotune.compiler.planned import schedule_for
from autotune.database import Database, Latency, Origin, Ratio
from autotune.errors import MissingExtraError, UsageError
from autotune.schedule.trace import Trace
from autotune.target import Target
from autotune.tuning.measure.gain import Gain
from autotune.workers.process import WorkerProcess
from tests.database.examples import record, schedules
from tests.patience import PATIENCE_S

PACE = Pace(rounds=2, processes=1, turn_s=0.002, rest_s=0.0)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return matmul((9, 10, 11), 0)


def test_ours_and_numpy_take_turns_and_agree(problem: Problem) -> None:
    case = BenchmarkCase("square", "matmul", lambda: problem)
    said: list[str] = []
    plan = BenchmarkPlan((1,), (systems.OPENBLAS, systems.COPY), PACE)
    (records,) = compare([case], plan, said.append)
    rows = FrameRows(records)
    assert [(row["contender"], row["kind"]) for row in rows] == [
        ("default", "own"),
        ("numpy", "peer"),
        ("copy", "floor"),
    ]
    assert rows.all("failure") == []
    ours, theirs = rows.where(contender="default"), rows.where(contender="numpy")
    assert [row.get("error") is not None for row in rows] == [False, True, False]
    assert theirs.get("error") < 1e-6
    assert ours.get("min_ns") <= ours.get("median_ns")
    assert to_best(rows) == ours.get("min_ns") / theirs.get("min_ns"), "a floor is no peer"
    assert ours.get("kinds_ns").keys() == {"contraction"}
    assert rows.all("native_ns") == [], "it was not asked for"
    assert (theirs.get("label"), theirs.get("version")) == ("OpenBLAS (NumPy)", np.__version__)
    assert "matmul, 1 thread" in said[0]
    assert json.loads(json.dumps(records))[2]["min_ns"] > 0


@pytest.mark.parametrize(
    "command",
    [systems.OPENBLAS.command, (sys.executable, "-I", str(systems._WORKER), "numpy")],
    ids=["ours", "in another environment"],
)
def test_a_peer_that_works_ends_with_a_killed_parent(command: tuple[str, ...]) -> None:
    code = (
        "import sys\n"
        "from autotune.workers.process import WorkerProcess\n"
        "worker = WorkerProcess(sys.argv[1:])\n"
        "worker.start()\n"
        "print('started', flush=True)\n"
        "worker.call({'do': 'time', 'seconds': 1e6, 'least': 1, 'most': 10**9}, 1e6, 'timing')\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, *command], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    parent.stdout.readline()
    time.sleep(0.1)  # it works at the request
    children = psutil.Process(parent.pid).children()
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
    assert len(children) == 1
    assert alive == []


def test_a_peer_that_dies_or_fails_is_a_row_and_the_others_go_on(problem: Problem, tmp_path: Path) -> None:
    dying = systems.System("dying", "Dying", "bytes", (sys.executable, "-c", "raise SystemExit(3)"))
    own = enter(problem, tmp_path, 1, None)
    (good,) = peer_entries(problem, [systems.OPENBLAS], tmp_path)
    broken = Competitor("broken", systems.OURS, str(tmp_path / "missing.atm"), good.inputs)
    entries = [*own.entries, Competitor("dying", dying, "", {}), broken, good]
    with SideBySide(1, tmp_path, Pace(rounds=1, turn_s=0.001, rest_s=0.0)) as running:
        readings = running.run(entries)
    assert "exit code 3" in readings["dying"].failure
    assert "ArtifactError" in readings["broken"].failure
    assert readings["numpy"].latency is not None
    assert readings["default"].latency is not None


@pytest.mark.parametrize(("rounds", "processes", "starts"), [(4, 1, 1), (4, 3, 2), (3, 3, 3)])
def test_rounds_are_shared_by_fresh_processes(
    rounds: int,
    processes: int,
    starts: int,
    problem: Problem,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = list[str]()
    original = WorkerProcess._start
    monkeypatch.setattr(WorkerProcess, "_start", lambda self: (started.append(self.name), original(self))[1])
    entries = peer_entries(problem, [systems.OPENBLAS], tmp_path)
    pace = Pace(rounds, processes, turn_s=0.0, rest_s=0.0, least=2, most=2, native=True)
    with SideBySide(1, tmp_path, pace) as running:
        reading = running.run(entries)["numpy"]
    assert reading.latency is not None
    assert (len(started), reading.latency.n) == (starts, 2 * rounds)


def test_a_case_that_cannot_be_built_or_compiled_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Problem:
        raise RuntimeError("no such operator\nand more")

    def refused(*_: object) -> None:
        raise UsageError("no such file")

    plan = BenchmarkPlan((1,), pace=Pace(rounds=1, turn_s=0.0, rest_s=0.0))
    ((row,),) = compare([BenchmarkCase("family", "broken", broken)], plan, print)
    assert row["failure"] == "RuntimeError: no such operator"
    monkeypatch.setattr("autotune.bench.compare.enter", lambda *_: broken())
    ((row,),) = compare([BenchmarkCase("family", "matmul", lambda: matmul((2, 3, 4), 0))], plan, print)
    assert row["failure"] == "RuntimeError: no such operator"
    assert row["flops"] == 48
    monkeypatch.setattr("autotune.bench.compare.enter", refused)
    with pytest.raises(UsageError, match="no such file"):
        list(compare([BenchmarkCase("family", "matmul", lambda: matmul((2, 3, 4), 0))], plan, print))


@pytest.mark.usefixtures("shared_pools")
def test_tuning_stops_at_the_runs_that_are_known(problem: Problem, tmp_path: Path) -> None:
    database = str(tmp_path / "tuning.db")
    assert tune_up_to(problem, 3, 1, database).session_trials == 3
    assert runs_known(problem, 1, database) == 3
    assert tune_up_to(problem, 3, 1, database).session_trials == 0
    assert tune_up_to(problem, 4, 1, database, per_workload=True).session_trials == 1
    with pytest.raises(UsageError, match="give --db FILE"):
        tune_up_to(problem, 3, 1, None)


@pytest.mark.parametrize(("winner", "entered"), [("t", ["default", "tuned"]), ("d", ["default"])])
def test_tuned_code_is_entered_where_it_is_other_code(
    problem: Problem, tmp_path: Path, winner: str, entered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gain = Gain(Latency(2, 100, 100, 0.0), Latency(2, 90, 90, 0.0), Ratio(0.9, (0.8, 0.95)), 9)
    monkeypatch.setattr("autotune.bench.own.gain_of", lambda *_: gain)
    (workload,), target = distinct_workloads(divide(problem.graph)), Target.detect(1)
    path = tmp_path / "tuning.db"
    default = schedule_for(workload, target, None, {}).trace.to_json()
    with Database(path) as store:
        record(store, workload, target, default, 100.0, "d", Origin.DEFAULT)
        record(store, workload, target, Trace().to_json(), 90.0)
        inside = (100.0, 80.0 if winner == "t" else 110.0)
        both = schedules(*zip(store.records(), inside, strict=True), won=64 * winner)
        store.compared(workload.key, target.key, "schedule", both, "net")
    own = enter(problem, tmp_path, 1, str(path))
    assert [entry.name for entry in own.entries] == entered
    assert (own.hits, own.dispatches) == (len(entered) - 1, 1)
    assert own.gain == (gain if "tuned" in entered else None)


def test_time_for_tuning_is_shared_by_what_is_left() -> None:
    left = _Share(60.0, 3)
    assert left.take() == 20.0
    left.used(10.0)
    assert left.take() == 25.0
    left.used(80.0)
    assert left.take() == 0.0
    assert _Share(None, 3).take() is None


def test_difference_is_relative_to_the_largest_value() -> None:
    same = [np.array([1.0, -4.0])]
    assert difference(same, [np.array([1.0, -4.0])], lambda a: a) == 0.0
    assert difference(same, [np.array([1.4, -4.0])], lambda a: a) == pytest.approx(0.1)
    assert difference(same, [np.array([[1.0, -4.0]])], lambda a: a[0]) == 0.0
    assert difference(same, [np.array([1.0])], lambda a: a) == float("inf")
    assert difference(same, [], lambda a: a) == float("inf")
    assert difference([np.array([np.nan])], [np.array([1.0])], lambda a: a) == float("inf")


def test_the_worker_answers_every_line_and_reports_errors(tmp_path: Path) -> None:
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.eye(3, dtype=np.float32))
    inputs = {name: str(tmp_path / f"{name}.npy") for name in "ab"}
    requests = [
        {"do": "load", "model": "", "threads": 1, "inputs": inputs},
        {"do": "outputs", "folder": str(tmp_path)},
        {"do": "time", "seconds": 0.0, "least": 3, "most": 3},
        {"do": "profile"},
        {"do": "load", "model": "", "threads": 1, "inputs": {"a": "missing.npy"}},
    ]
    answers: list[str] = []

    def lines() -> Iterator[str]:
        yield from map(json.dumps, requests)

    serve(Worker(SYSTEMS["numpy"]), lines(), answers.append)
    loaded, ran, times, profile, failed = map(json.loads, answers)
    assert loaded["version"] == np.__version__
    np.testing.assert_array_equal(np.load(ran["paths"][0]), np.eye(3))
    assert len(times["ns"]) == 3
    assert profile == {"kinds": {}}
    assert failed["error"].startswith("FileNotFoundError")


def test_timing_runs_once_before_it_counts_and_at_least_as_often_as_asked() -> None:
    calls: list[int] = []
    times = timed(lambda: calls.append(1), seconds=0.0, least=4, most=9)
    assert len(times) == 4
    assert len(calls) == 5
    assert len(timed(lambda: None, seconds=10.0, least=1, most=6)) == 6


def test_copying_moves_all_bytes_on_every_number_of_threads() -> None:
    for threads in (1, 3):
        system = SYSTEMS["copy"]()
        run = system.load("1001", {}, threads)
        run()
        assert system.outputs() == []


def test_a_recipe_holds_the_model_without_onnx(problem: Problem, tmp_path: Path) -> None:
    assert problem.model is not None
    folder = Path(write_recipe(problem.model, tmp_path / "recipe"))
    recipe = json.loads((folder / "recipe.json").read_text())
    assert recipe == {
        "nodes": [{"op": "MatMul", "inputs": ["a", "b"], "outputs": ["c"], "attrs": {}}],
        "outputs": ["c"],
        "constants": [],
    }


def test_another_version_takes_part_from_an_environment_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(MissingExtraError, match=r"autotune, other version is not installed here"):
        systems.find_peers(["earlier"])
    python = tmp_path / "python"
    root = Path(systems.__file__).parents[2]
    python.write_text(f'#!/bin/sh\nshift\nPYTHONPATH="{root}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    peers = systems.find_peers(["earlier"], [str(python)])
    problem = convolution(Convolution((5, 6), 3, 4, 3, pad=1), 0)
    (records,) = compare(
        [BenchmarkCase("C2D", "small", lambda: problem)], BenchmarkPlan((1,), peers, PACE), lambda _: None
    )
    assert [(row["contender"], row["failure"]) for row in records] == [("default", None), ("earlier", None)]
    assert records[1]["error"] == 0.0, "the same compiler here"


def test_peers_are_found_where_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = systems._Peer("Json", "onnx", "pip install json")
    monkeypatch.setattr(systems, "PEERS", {"json": peer, "no_such_module_anywhere": peer})
    (found,) = systems.find_peers(["json"], [sys.executable])
    assert found.command[0] == sys.executable
    assert found.command[-1] == "json"
    with pytest.raises(MissingExtraError, match=r"install it with pip install json.*--peer-python"):
        systems.find_peers(["no_such_module_anywhere"])
    with pytest.raises(UsageError, match="unknown peer 'tensorflow'; known peers: json"):
        systems.find_peers(["tensorflow"])
    with pytest.raises(UsageError, match="cannot run the Python interpreter /no/python"):
        systems.find_peers(["json"], ["/no/python"])
    assert systems.find_peers([], ["/no/python"]) == []
