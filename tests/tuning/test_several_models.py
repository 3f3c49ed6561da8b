"""One job of several models: what they share is searched once, each counts the same, each has its own report."""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import autotune
from autotune.database import Database, Latency
from autotune.database.records import SAME_CODE, Key, Ratio
from autotune.errors import ModelImportError, UsageError
from autotune.frontends.model_builder import ModelBuilder
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.passes.options import Option
from autotune.tuning.compare.sites import Site, Sites
from autotune.tuning.jobs.beliefs import Beliefs
from autotune.tuning.jobs.budget import Budget
from autotune.tuning.jobs.models import read_models, sources_of
from autotune.tuning.jobs.subject import subjects_of
from autotune.tuning.measure.gain import Gain
from autotune.tuning.report.progress import JsonLines, PlainLines
from autotune.tuning.report.result import Report
from tests.tuning.simulated import SimulatedMeasurer
from tests.tuning.synthetic import Synthetic, measurer
from tests.tuning.test_job import TARGET, A, B, Model, Stopping, hit, job, tuned
from tests.tuning.test_sites import Other, W, task

C = Synthetic("c", scale=3.0)


def two(path: Path, **changes: Any) -> Any:
    """A job of two models that share a workload."""
    models = [tuned("one", A, B), tuned("two", A, C)]
    return job(path, A, B, C, **{"trials": 60, "models": models, "measurer": measurer(A, B, C), **changes})


def test_a_shared_workload_is_searched_once_and_is_in_both_reports(tmp_path: Path) -> None:
    measuring = measurer(A, B, C)
    report = two(tmp_path / "t.db", measurer=measuring).run()
    assert report.trials == 60
    candidates = Counter((c.workload, json.dumps(dict(c.config), sort_keys=True)) for c in measuring.measured)
    assert set(candidates.values()) == {1}
    assert [each.model for each in report.models] == ["one", "two"]
    assert [{row.name for row in each.dispatches} for each in report.models] == [{"a0", "b0"}, {"a0", "c0"}]
    (mine, other) = (next(row for row in each.dispatches if row.name == "a0") for each in report.models)
    assert mine == other
    assert hit(tmp_path / "t.db", A).runs == mine.runs


def test_subjects_of_several_models_are_named_after_them() -> None:
    found = {
        subject.workload.key: subject.names for subject in subjects_of([tuned("one", A, B), tuned("two", A)])
    }
    assert found[A.workload.key] == ("one:a0", "two:a0")
    assert found[B.workload.key] == ("one:b0",)
    assert [subject.names for subject in subjects_of([tuned("one", A)])] == [("a0",)]


def option(name: str) -> Any:
    return (Other("direct", name),)


def sites_of(*found: tuple[str, str, int], ns: dict[str, float]) -> Sites:
    """Sites by model, workload and number of dispatches."""
    sites = [
        Site(
            tuple(f"{key}{n}" for n in range(count)),
            cast(Any, W[key]),
            cast(tuple[Option, ...], option(key)),
            model=model,
        )
        for model, key, count in found
    ]
    return Sites([task(key, 1, value) for key, value in ns.items()], sites)


def test_a_part_of_a_models_latency_counts_the_same_in_each_model() -> None:
    ns = {"plain": 10.0, "direct": 990.0, "rows": 1.0, "product": 99.0}
    found = sites_of(
        ("large", "plain", 1), ("large", "direct", 1), ("small", "rows", 1), ("small", "product", 1), ns=ns
    )
    assert found.models == ("large", "small")
    assert found.total(lambda t: t.best_ns) == pytest.approx((1000.0 * 100.0) ** 0.5)
    assert found.of("small").total(lambda t: t.best_ns) == pytest.approx(100.0)
    weights = Beliefs(found).weights()
    shares = {key: weights[key] * value for key, value in ns.items()}
    assert shares == pytest.approx({"plain": 0.005, "direct": 0.495, "rows": 0.005, "product": 0.495})


def test_a_shared_workload_counts_for_all_models_that_have_it() -> None:
    ns = {"plain": 10.0, "direct": 90.0}
    found = sites_of(("one", "plain", 1), ("one", "direct", 1), ("two", "plain", 3), ns=ns)
    weights = Beliefs(found).weights()
    assert weights["plain"] * 10.0 == pytest.approx(0.5 * 0.1 + 0.5 * 1.0)
    assert weights["direct"] * 90.0 == pytest.approx(0.5 * 0.9)


def test_the_weight_is_that_of_the_aim() -> None:
    """The derivative of the log of the geometric mean, by what a dispatch takes."""
    ns, step = {"plain": 10.0, "direct": 90.0}, 1e-6
    rows = (("one", "plain", 2), ("one", "direct", 1), ("two", "plain", 3))
    less = {**ns, "plain": ns["plain"] - step}
    before, after = (sites_of(*rows, ns=each).total(lambda t: t.best_ns) for each in (ns, less))
    weight = Beliefs(sites_of(*rows, ns=ns)).weights()["plain"]
    assert (np.log(before) - np.log(after)) / step == pytest.approx(weight, rel=1e-4)


def test_each_model_is_measured_and_has_its_own_line_at_the_end(tmp_path: Path) -> None:
    class Timed(Model):
        def gain(self, *rest: Any) -> Gain | None:
            latency = Latency(5, 100.0, 100.0, 0.0)
            return Gain(latency, latency, SAME_CODE, 1)

    wholes = [Timed(A, B), Timed(A, C)]
    models = [
        replace(model, whole=cast(Any, whole))
        for model, whole in zip([tuned("one", A, B), tuned("two", A, C)], wholes, strict=True)
    ]
    out, said = io.StringIO(), io.StringIO()
    report = two(tmp_path / "t.db", models=models, progress=JsonLines(out)).run()
    assert all(whole.asked for whole in wholes)
    assert [line.split(":")[0] for line in str(report).splitlines() if line.startswith("whole model")] == [
        "whole model one",
        "whole model two",
    ]
    events = [json.loads(line) for line in out.getvalue().splitlines()]
    assert events[0]["models"] == ["one", "two"]
    measured = [event for event in events if event["event"] == "measured"]
    assert all([model["model"] for model in event["models"]] == ["one", "two"] for event in measured)
    assert measured[-1]["models"][0]["best_ns"] < measured[-1]["models"][1]["best_ns"]
    assert [model["model"] for model in events[-1]["models"]] == ["one", "two"]
    assert all(model["gain"] is not None for model in events[-1]["models"])
    two(tmp_path / "again.db", progress=PlainLines(said)).run()
    assert "one: " in said.getvalue()
    assert "; two: " in said.getvalue()


class Judged(Model):
    """A model whose whole takes ``over`` times what follows from its dispatches with any code but the default's."""

    def __init__(self, *tasks: Synthetic, over: float) -> None:
        super().__init__(*tasks)
        self.over = over
        self.timed: list[dict[str, str]] = []
        """The schedules of each timing of the whole, by their workloads."""

    def gain(self, untuned: Any, tuned: Any, out_of_time: Any) -> Gain | None:
        self.timed.append({key: built.trace_key for key, built in tuned.items()})
        took = [
            sum(self._takes(t, code.get(t.workload.key)) for t in self.tasks) for code in (untuned, tuned)
        ]
        ratio, latency = self.over * took[1] / took[0], Latency(9, 100.0, 100.0, 0.0)
        found = Ratio(ratio, (0.999 * ratio, 1.001 * ratio)) if took[0] != took[1] else SAME_CODE
        return Gain(latency, latency, found, 9)


def judged(path: Path, over: float) -> tuple[list[Judged], Report]:
    """The models of a job whose wholes take ``over`` times what follows from their dispatches."""
    wholes = [Judged(A, B, over=over), Judged(A, C, over=over)]
    models = [
        tuned(name, *whole.tasks, whole=cast(Any, whole))
        for name, whole in zip(("one", "two"), wholes, strict=True)
    ]
    return wholes, two(path, models=models).run()


def test_models_are_timed_again_if_what_wholes_take_changes_what_is_used(tmp_path: Path) -> None:
    wholes, report = judged(tmp_path / "t.db", 3.0)
    assert [len(whole.timed) for whole in wholes] == [2, 2]
    assert all(whole.timed[0] != whole.timed[1] for whole in wholes)
    now = {t.workload.key: hit(tmp_path / "t.db", t).best.trace_key for t in (A, B, C)}
    assert not any(whole.timed[0].items() <= now.items() for whole in wholes)
    with Database(tmp_path / "t.db") as database:
        rows = database.compared_schedules(Key(A.workload.key, TARGET.key, A.space.key))
    assert sum(row.part is not None for row in rows) == 2  # once in each model: the second timing is a claim
    assert all(each.gain is not None for each in report.models)
    assert all(whole.timed[1].items() <= now.items() for whole in wholes)


def test_models_are_timed_once_where_wholes_take_what_follows_from_their_dispatches(tmp_path: Path) -> None:
    wholes, report = judged(tmp_path / "t.db", 1.0)
    assert [len(whole.timed) for whole in wholes] == [1, 1]
    assert all(each.gain is not None for each in report.models)


def test_ctrl_c_keeps_the_best_of_all_models_and_the_same_call_continues(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    report = two(path, measurer=Stopping(measurer(A, B, C), 25)).run()
    assert report.stopped
    assert report.trials == 25
    assert [each.model for each in report.models] == ["one", "two"]
    again = two(path).run()
    assert (again.job, again.trials, again.session_trials) == (report.job, 60, 35)
    other = job(path, A, B, trials=10, models=[tuned("one", A, B)]).run()
    assert other.job != report.job


def graph_of(*shape: int) -> Graph:
    b = GraphBuilder("net")
    w = np.random.default_rng(0).standard_normal((shape[-1], 8)).astype(np.float32)
    return b.graph(b.node("MatMul", b.input("x", shape), b.constant("w", w), name="y"))


def refused(cores: int) -> SimulatedMeasurer:
    raise AssertionError("something was to be measured")


@pytest.mark.parametrize(
    ("second", "error", "said"),
    [
        ("missing.onnx", UsageError, "missing.onnx"),
        (b"no model", ModelImportError, "ONNX"),
        ("zoo:none", UsageError, "none"),
    ],
)
def test_a_model_that_cannot_be_read_is_one_error_before_anything_is_measured(
    tmp_path: Path, second: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        autotune.tune(
            [graph_of(4, 16), second], budget="1s", database=tmp_path / "t.db", measurer=refused, quiet=True
        )
    assert not (tmp_path / "t.db").exists()


def test_a_model_of_which_nothing_is_computed_is_an_error(tmp_path: Path) -> None:
    b = GraphBuilder("empty")
    b.input("x", (4,))
    empty = b.graph()
    with pytest.raises(ModelImportError, match=r"^empty: nothing of the model is computed"):
        autotune.tune(
            [graph_of(4, 16), empty], budget="1s", database=tmp_path / "t.db", measurer=refused, quiet=True
        )


def test_sites_of_the_whole_model_that_models_share_are_not_compared(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="threads: decided in jobs of one model only"):
        autotune.tune(
            [graph_of(4, 16), graph_of(8, 16)],
            budget="1s",
            database=tmp_path / "t.db",
            measurer=refused,
            sites=("threads",),
            quiet=True,
        )


def test_a_folder_stands_for_its_onnx_files(tmp_path: Path) -> None:
    for name in ("b.onnx", "a.onnx", "notes.txt"):
        (tmp_path / name).touch()
    files = [str(tmp_path / "a.onnx"), str(tmp_path / "b.onnx")]
    assert sources_of(str(tmp_path)) == files
    assert sources_of([tmp_path, files[0], "zoo:mlp", "zoo:mlp"]) == [*files, "zoo:mlp"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="a folder without models"):
        sources_of(tmp_path / "empty")
    with pytest.raises(UsageError, match="empty list"):
        sources_of([])


@pytest.mark.usefixtures("shared_pools")
def test_models_of_one_name_are_told_apart(tmp_path: Path) -> None:
    report = autotune.tune(
        [graph_of(4, 16), graph_of(8, 16)],
        budget=Budget(trials=6),
        database=tmp_path / "t.db",
        time_model=False,
        threads=1,
        quiet=True,
    )
    assert [each.model for each in report.models] == ["net", "net (2)"]
    assert report.trials == 6


def test_each_of_several_models_takes_the_sizes_that_it_leaves_open(tmp_path: Path) -> None:
    for name, shape in {"a": ("batch", 3), "b": ("batch", "seq"), "c": (2, 3)}.items():
        b = ModelBuilder(name)
        b.node("Relu", [b.input("x", shape)], "y")
        (tmp_path / f"{name}.onnx").write_bytes(b.finish(["y"]).SerializeToString())
    sources = sources_of(str(tmp_path))
    read = read_models(sources, shapes={"batch": 4, "seq": 5})
    assert [model.graph.type_of("x").shape for model in read] == [(4, 3), (4, 5), (2, 3)]
    with pytest.raises(UsageError, match=r"none of 3 models has .* dimension 'sea'\n.*did you mean 'seq'"):
        read_models(sources, shapes={"batch": 4, "sea": 5})
    with pytest.raises(ModelImportError, match="--shape seq=128"):
        read_models(sources, shapes={"batch": 4})
