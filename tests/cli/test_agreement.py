"""All that counts tuned dispatches agrees: tune, report, compile, query, explain and the artifact."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.cli import main as cli
from autotune.compiler.build.build import generated_key
from autotune.compiler.dividing import distinct_workloads, divide
from autotune.compiler.plan import option_key
from autotune.compiler.planned import GIVEN, Planned
from autotune.compiler.request import CompileRequest
from autotune.database import Comparison, Database, Key, Latency, Outcome, Ratio, Run, WorkloadRow
from autotune.database.evidence import State, tally
from autotune.database.records import Origin
from autotune.frontends import zoo_built
from autotune.frontends.model_builder import ModelBuilder
from autotune.graph.region import Workload
from autotune.passes.options import options_of
from autotune.runtime.image import DispatchInfo
from autotune.target import Target
from cost_models.analytic import default_config
from search_spaces.spaces import space_for
from tests.database.examples import latency, schedules

TARGET = Target.parse("x86-64-v2", threads=1)
ON = ("--target", "x86-64-v2", "--threads", "1")
ZOO = "zoo:tiny_cnn"
TOLERANCE = CompileRequest("zoo:mlp").tolerance
States = dict[str, str]
"""By the names of dispatches."""


def measure(database: Database, workload: Workload, kind: int) -> None:
    """Store made-up measurements of a workload's schedules: none, the default's, or a faster one, compared or not."""
    space = space_for(workload, TARGET)
    if kind % 4 == 3:
        return
    default = default_config(space)
    configs = [default, *islice((c for c in space.random(np.random.default_rng(0), 40) if c != default), 1)]
    database.add_workload(WorkloadRow.of(workload))
    database.add_target(TARGET)
    database.add_space(space.key, workload.key, "{}")
    key = Key(workload.key, TARGET.key, space.key)
    for number, config in enumerate(configs[: 1 + (kind % 4 != 2)]):
        trace, ns = space.schedule(config).trace, (9000.0, 4000.0)[number]
        code = generated_key(Planned(workload, trace, GIVEN), TARGET)
        origin = Origin.SEARCH if number else Origin.DEFAULT
        took, text = Latency(3, ns, ns, 0.0), json.dumps(config)
        run = Run(key, trace.key, trace.to_json(), text, Outcome.OK, took, origin=origin, code=code)
        assert database.record(run)
    runs = database.records(workload=workload.key)
    if kind % 4 == 0 and len(runs) == 2:
        timed: list[tuple[Run, float]] = [*zip(runs, (9000.0, 4000.0), strict=True)]
        compared = schedules(*timed, won=runs[1].trace_key)
        database.compared(workload.key, TARGET.key, "schedule", compared, "net")


def decide(database: Database, workload: Workload) -> None:
    """Store that the last of a workload's options was faster than the first."""
    found = [
        each for each in options_of(workload, speculative=False, tolerance=TOLERANCE) if each.suits(TARGET)
    ]
    if len(found) < 2:
        return
    first, last = found[0], found[-1]
    rows = [
        Comparison(first.name, option_key(first, TARGET), latency(900.0)),
        Comparison(
            last.name, option_key(last, TARGET), latency(600.0), won=True, ratio=Ratio(0.66, (0.65, 0.67))
        ),
    ]
    database.compared(workload.key, TARGET.key, "option", rows, "net")


def attention(b: ModelBuilder) -> str:
    x = b.input("x", (1, 16, 32))
    query, key, value = (b.node("MatMul", [x, b.normal(f"w{n}", (32, 32), 0.2)], n) for n in "qkv")
    turned = b.node("Transpose", [key], "turned", perm=(0, 2, 1))
    scores = b.node("Softmax", [b.node("MatMul", [query, turned], "scores")], "shares")
    return b.node("Add", [b.node("MatMul", [scores, value], "mixed"), x], "y")


def branches(b: ModelBuilder) -> str:
    x = b.input("x", (1, 8, 12, 12))
    wide = b.node("Conv", [x, b.normal("w3", (8, 8, 3, 3), 0.2)], "wide", pads=(1, 1, 1, 1))
    deep = b.node("Conv", [x, b.normal("wd", (8, 1, 3, 3), 0.3)], "deep", group=8, pads=(1, 1, 1, 1))
    both = b.node("Concat", [b.node("Relu", [wide], "relu"), deep], "both", axis=1)
    return b.node("GlobalAveragePool", [both], "y")


@pytest.fixture
def models(tmp_path: Path) -> list[str]:
    """Four small models: one of the zoo, and files."""
    paths = []
    for make in (attention, branches):
        builder = ModelBuilder(make.__name__)
        path = tmp_path / f"{make.__name__}.onnx"
        path.write_bytes(builder.finish([make(builder)]).SerializeToString())
        paths.append(str(path))
    path = tmp_path / "encoder.onnx"
    path.write_bytes(
        zoo_built.encoder(layers=1, width=16, heads=2, sequence=6, hidden=32).SerializeToString()
    )
    return [ZOO, *paths, str(path)]


@pytest.fixture
def known(models: list[str], tmp_path: Path) -> str:
    """A database that knows something of these models; of each kind of evidence there is some."""
    path = tmp_path / "tuning.db"
    workloads = {each.key: each for model in models for each in distinct_workloads(divide(model))}
    with Database(path) as database:
        for number, workload in enumerate(workloads.values()):
            measure(database, workload, number)
            if number % 3 == 2:
                decide(database, workload)
    return str(path)


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Any:
    """The JSON that a command prints."""

    def run(*arguments: str) -> Any:
        capsys.readouterr()
        assert cli.run([*arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def of_rows(rows: list[dict[str, Any]]) -> States:
    return {row["name"]: row["state"] for row in rows}


def of_report(report: dict[str, Any]) -> dict[str, States]:
    """The states of each model's dispatches, by its name."""
    rows = [(model["model"], row) for model in report["models"] for row in model["dispatches"]]
    assert all(row["count"] == len(row["names"]) for _, row in rows)
    return {
        model["model"]: {
            name: row["state"] for of, row in rows if of == model["model"] for name in row["names"]
        }
        for model in report["models"]
    }


@pytest.mark.usefixtures("shared_pools")
def test_every_command_counts_the_same_dispatches(
    models: list[str], known: str, said: Any, tmp_path: Path
) -> None:
    report = autotune.tune(
        models, budget=autotune.Budget(trials=1), database=known, target=TARGET, time_model=False, quiet=True
    )
    tuned = of_report(json.loads(json.dumps(report.to_json())))
    assert of_report(said("report", "--db", known)["report"]) == tuned
    assert len(tuned) == len(models)
    for model, states in zip(models, tuned.values(), strict=True):
        agree(model, states, known, said, str(tmp_path / "out.atm"))
    assert tally(State(state) for states in tuned.values() for state in states.values()) in str(report)
    assert sum("tuned" in states.values() for states in tuned.values()) >= 3


def agree(model: str, tuned: States, path: str, said: Any, artifact: str) -> None:
    """All that is said of one model says that its dispatches are in these states."""
    with_database = (model, "--db", path, *ON)
    compiled = said("compile", *with_database, "-o", artifact)
    assert of_rows(compiled["dispatches"]) == tuned
    assert of_rows(said("explain", *with_database)["dispatches"]) == tuned
    (image,) = said("explain", artifact)["images"]
    assert of_rows(image["states"]) == tuned
    answers = said("query", *with_database)
    assert {name: a["state"] for a in answers if a["used"] for name in a["dispatches"]} == tuned
    count = tally(map(State, tuned.values()))
    first, *rest = count.split("; ")
    assert compiled["coverage"].startswith(f"{first}, ")
    assert f"{'; '.join(['', *rest])}; schedules: " in compiled["coverage"]
    assert image["schedules"] == count


def test_an_image_says_of_a_dispatch_what_its_state_says() -> None:
    for state in State:
        info = DispatchInfo("d", "w", "pool", state.value, "[]")
        assert info.is_tuned == state.tuned
