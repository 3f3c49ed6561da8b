"""Peers that tune before they take part: a stub in MetaSchedule's place, and the forms of operators with TVM."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.bench import systems, worker
from autotune.bench.columns import race, side_by_side
from autotune.bench.compare import BenchmarkPlan, PeerTuning, _reached, compare
from autotune.bench.experiment import FrameRows, Record, frame_of
from autotune.bench.own import Own, known_history, tune_up_to
from autotune.bench.problem import BenchmarkCase, write_graph
from autotune.bench.side_by_side import Pace
from autotune.bench.suites import operators
from autotune.bench.suites.convolutions import Convolution, convolution
from autotune.bench.suites.dense import matmul
from autotune.cli import main as cli
from autotune.database.records import JobRow, Key, Outcome, Run
from autotune.graph import evaluate
from autotune.graph.text import parse_graph
from autotune.tuning.report.history import History, Improvement, _timed

STUB = """
import json, os, pathlib, sys, numpy as np
sys.path.insert(0, {folder!r})
import worker

class Stub:
    module = "numpy"

    def tune(self, model, inputs, threads, trials):
        kept = pathlib.Path(json.loads(pathlib.Path(model, "recipe.json").read_text())["tuned"])
        kept.mkdir(parents=True, exist_ok=True)
        known = len(list(kept.iterdir()))
        for number in range(known, trials):
            (kept / str(number)).touch()
            if number == {dies_after}:
                os._exit(7)
        return {{"trials": len(list(kept.iterdir())), "seconds": 2.0, "until_best_s": 1.5}}

    def load(self, model, inputs, threads):
        a, b = inputs.values()
        self._out = a @ b
        return lambda: None

    def outputs(self):
        return [self._out]

worker.main({{"stub": Stub}})
"""
SMALL = {
    "C1D": (1, 12, 4, 8, 3, 2, 1),
    "C2D": (1, 9, 9, 4, 8, 3, 2, 1),
    "C3D": (1, 5, 6, 6, 4, 8, 3, 2, 1),
    "GMM": (2, 8, 9, 7),
    "GRP": (1, 9, 9, 8, 16, 3, 2, 1),
    "DIL": (1, 9, 9, 4, 8, 3, 1, 1),
    "DEP": (1, 9, 9, 16, 3, 2, 1),
    "T2D": (1, 5, 5, 4, 6, 4, 2, 1),
    "CAP": (1, 6, 6, 3, 5, 3, 2, 1),
    "NRM": (2, 5, 7),
    "SFM": (5, 9),
    "CBR": (1, 9, 9, 4, 8, 3, 2, 1),
    "TBG": (2, 5, 3, 4),
    "ODD": (1, 7, 7, 3, 3, 3, 1, 1),
}


def stub(dies_after: int = -1) -> systems.System:
    text = STUB.format(folder=str(Path(worker.__file__).parent), dies_after=dies_after)
    return systems.System("metaschedule", "Stub", "graph", (sys.executable, "-c", text, "stub"), tunes=True)


def compared(peer: systems.System, folder: Path, trials: int) -> FrameRows:
    plan = BenchmarkPlan(
        (1,),
        (peer,),
        Pace(rounds=1, turn_s=0.001, rest_s=0.0),
        peer_tuning=PeerTuning(trials, 60.0, folder),
    )
    (records,) = compare(
        [BenchmarkCase("GMM", "(3,4,5)", lambda: matmul((3, 4, 5), 0))], plan, lambda _: None
    )
    return FrameRows(records)


def tuned(rows: FrameRows) -> tuple[int, float, float]:
    theirs = rows.where(contender="metaschedule")
    return theirs.get("trials"), theirs.get("tune_s"), theirs.get("best_after_s")


def test_a_peer_is_tuned_before_it_takes_part_and_keeps_what_it_found(tmp_path: Path) -> None:
    rows = compared(stub(), tmp_path, trials=3)
    theirs = rows.where(contender="metaschedule")
    assert tuned(rows) == (3, 2.0, 1.5)
    assert theirs.get("min_ns") is not None
    assert theirs.get("error") < 1e-6
    assert [path.name for path in tmp_path.iterdir()] == ["GMM-3-4-5-1-threads"]
    again = compared(stub(dies_after=0), tmp_path, trials=3)
    assert tuned(again) == (3, 2.0, 1.5), "nothing is tuned twice"


def test_a_tuner_that_dies_counts_with_what_it_had_found(tmp_path: Path) -> None:
    rows = compared(stub(dies_after=1), tmp_path, trials=3)
    theirs = rows.where(contender="metaschedule")
    assert theirs.get("trials") == 2
    assert "exit code 7" in theirs.get("tuner_failure")
    assert theirs.get("min_ns") is not None
    (table,) = side_by_side("T", "case").tables(frame_of(rows))
    assert table.notes[-1].startswith("(3,4,5), metaschedule's tuner: ")


def test_a_graph_is_written_in_our_layout_with_the_folder_of_its_tuner(tmp_path: Path) -> None:
    problem = convolution(Convolution((5, 6), 3, 4, 3, pad=1), 0)
    folder = Path(write_graph(problem, tmp_path / "graph", tmp_path / "kept"))
    recipe = json.loads((folder / "recipe.json").read_text())
    assert recipe["tuned"] == str(tmp_path / "kept")
    assert (recipe["constants"], recipe["outputs"]) == (["w"], ["conv"])
    assert recipe["nodes"][0]["attrs"]["layout"] == "NHWC"
    assert worker.recipe_constants(folder)["w"].shape == (3, 3, 3, 4)
    again = parse_graph((folder / "graph.txt").read_text(), problem.graph.constants)
    assert again.nodes == problem.graph.nodes


def test_progress_is_read_from_the_batches_that_ended(tmp_path: Path) -> None:
    progress = worker._beside("worker_tvm").progress
    assert progress(tmp_path) == {"trials": 0, "seconds": 0.0, "until_best_s": 0.0}
    batches = [(64, 10.0, 2e-3), (128, 21.0, 1e-3), (192, 30.0, None), (256, 44.0, 1.5e-3)]
    lines = [json.dumps(dict(zip(("trials", "seconds", "best_s"), batch, strict=True))) for batch in batches]
    (tmp_path / "progress.jsonl").write_text("\n".join(lines))
    assert progress(tmp_path) == {"trials": 256, "seconds": 44.0, "until_best_s": 21.0}


def raced(default_ns: float, found: History | None) -> Sequence[Record]:
    about = {"family": "GMM", "case": f"({default_ns:g},{len(found.steps) if found else 0})", "threads": 2}
    times = {"default": default_ns, "tuned": 800.0, "metaschedule": 1000.0}
    records: list[dict[str, Any]] = [
        {**about, "contender": name, "kind": "own", "min_ns": ns, "median_ns": ns}
        for name, ns in times.items()
    ]
    own = Own((), 0.5, 1, 1)
    records[0] |= {"trials": found.trials, "tune_s": found.seconds} if found else {}
    records[2] |= {"kind": "peer", "trials": 64, "tune_s": 160.0, "best_after_s": 160.0}
    records[2]["as_fast_s"] = _reached(1000.0, own, default_ns, found)
    return records


def test_the_race_says_when_we_were_as_fast() -> None:
    history = History(64, 8.0, (Improvement(0.25, 1500.0), Improvement(1.5, 900.0), Improvement(6.0, 700.0)))
    records = [
        *raced(1500.0, history),
        *raced(950.0, None),
        *raced(1500.0, History(4, 1.0, (Improvement(0.25, 1500.0),))),
    ]
    (table,) = race("T", "metaschedule", "MetaSchedule").tables(frame_of(records))
    assert table.rows[0] == (
        "GMM (1500,3)", "64", "8.0 s", "8.00", "64", "160.0 s", "0.40", "20.00", "1.50", "0.80", "160.0 s", "2.0 s",
        "0.013",
    )  # fmt: skip
    assert table.rows[1][-2:] == ("0.5 s", "0.003"), "the default is as fast: the time of compiling it"
    assert table.rows[2][-2:] == ("–", "–"), "never as fast"
    assert table.rows[3][9] == "0.80"


@pytest.mark.usefixtures("shared_pools")
def test_a_history_has_every_step_down(tmp_path: Path) -> None:
    problem, database = matmul((9, 10, 11), 0), str(tmp_path / "tuning.db")
    tune_up_to(problem, 5, 1, database)
    found = known_history(problem, 1, database)
    assert found.trials == 5
    assert found.steps
    assert 0 < found.steps[0].seconds <= found.steps[-1].seconds <= found.seconds
    assert [step.ns for step in found.steps] == sorted((step.ns for step in found.steps), reverse=True)
    assert found.reached(found.steps[-1].ns) == found.steps[-1].seconds
    assert found.reached(0.0) is None


def test_jobs_follow_one_another_in_a_history() -> None:
    def run(job: str, created: float) -> Run:
        return Run(Key("w", "t", "s"), "", "", "", Outcome.OK, job=job, created=created)

    def job(name: str, created: float, elapsed: float) -> JobRow:
        return JobRow(name, "", "", "", "", JobRow.DONE, "", elapsed, created, created)

    runs = [run("late", 1003.0), run("early", 102.0), run("elsewhere", 5.0), run("early", 700.0)]
    timed = _timed(runs, [job("late", 1000.0, 9.0), job("early", 100.0, 20.0)])
    assert [seconds for seconds, _ in timed] == [23.0, 2.0, 0.0, 20.0], "the last after a pause of its job"


def test_without_tvm_one_line_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(systems, "_installed", lambda _, modules: dict.fromkeys(modules, False))
    assert cli.run(["bench", "operators", "SFM:5,9", "--peers", "metaschedule"]) != 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "MetaSchedule is not installed here; install it with pip install apache-tvm==" in line


@pytest.mark.parametrize("family", SMALL)
def test_every_family_has_a_form_that_computes_the_same_in_tvm(family: str, tmp_path: Path) -> None:
    tvm: Any = pytest.importorskip("tvm")
    problem = operators.case(family, SMALL[family]).build()
    recipe = json.loads(Path(write_graph(problem, tmp_path, tmp_path), "recipe.json").read_text())
    constants: dict[str, Any] = dict(problem.graph.constants)
    prim_func = worker._beside("worker_tvm_ops").prim_func
    function, arrays = prim_func(recipe, dict(problem.inputs), constants)
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    tvm.compile(module, tvm.target.Target({"kind": "llvm"}))["main"](*tensors)
    (output,) = problem.graph.outputs
    expected = evaluate.run(problem.graph, problem.inputs)[output]
    np.testing.assert_allclose(tensors[-1].numpy(), expected, rtol=1e-5, atol=1e-5)


def test_all_families_are_covered() -> None:
    assert SMALL.keys() == operators.FAMILIES.keys()
