"""Tuning programs of a user's own: real jobs, small ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune import te
from autotune.database import Database, Outcome
from autotune.errors import KnobError, MeasureError, UsageError
from autotune.graph.program import ProgramWorkload
from autotune.schedule import Schedule
from autotune.tuning.jobs.program import TunedSchedule, tune_schedule
from autotune.tuning.search.online_model import OnlineModel
from autotune.tuning.verify import problems_of, stale_keys
from cost_models import analytic, features
from search_spaces.programs import program as program_space
from search_spaces.sketch import Sketch
from tests.schedule.printed import run_printed

pytestmark = pytest.mark.usefixtures("shared_pools")
N = 24
ROWS = (2, 8)


def program() -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """A stencil in two stages, 24x32."""
    a = te.placeholder((N + 2, 32), name="A")
    b = te.compute((N + 2, 32), lambda i, j: a[i, j] * 0.5, name="B")
    c = te.compute((N, 32), lambda i, j: b[i, j] + b[i + 1, j] + b[i + 2, j], name="C")
    return a, b, c


A, B, C = program()


def stencil(s: Schedule) -> None:
    """Rows a tile, where B is computed, and a choice that is wrong for some."""
    rows = s.knob("rows", ROWS, default=2)
    place = s.knob("place", ("root", "tile", "inline"))
    outer, _ = s[C].split(s[C].op.axis[0], factor=rows)
    if place == "tile":
        s[B].compute_at(s[C], outer)
    elif place == "inline":
        s[B].compute_inline()
        if rows == 8:
            s[C].unroll(s[C].op.axis[0])  # it was split: these are refused
    s[C].vectorize(s[C].op.axis[1])


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("program") / "tuning.db"


@pytest.fixture(scope="module")
def resumed(database: Path, shared_pools: None) -> tuple[TunedSchedule, list[str]]:
    """A job of three trials and then of all, and the events of the second part; "learn" is one."""
    events: list[str] = []
    tune(database, trials=3)
    learn = OnlineModel.learn
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OnlineModel, "learn", lambda self: events.append("learn") or learn(self))
        return tune(database, callback=lambda event: events.append(event.event)), events


@pytest.fixture(scope="module")
def tuned(resumed: tuple[TunedSchedule, list[str]]) -> TunedSchedule:
    return resumed[0]


def tune(database: Path, trials: int = 14, **options: Any) -> TunedSchedule:
    return tune_schedule(
        stencil,
        [A, C],
        budget=autotune.Budget(trials=trials),
        database=database,
        threads=1,
        quiet=True,
        name="stencil",
        **options,
    )


def test_the_result_is_a_schedule_that_builds_and_prints(tuned: TunedSchedule) -> None:
    assert tuned.report.trials == 2  # the job before it has measured three of the five that there are
    assert tuned.before_ns is not None
    assert min(tuned.before_ns, tuned.after_ns) > 0
    again = run_printed(str(tuned.trace), te.create_schedule(C))
    assert again.trace == tuned.trace == Sketch(stencil, [C]).bind(tuned.config)
    x = np.random.default_rng(0).standard_normal((N + 2, 32)).astype(np.float32)
    y = np.zeros((N, 32), np.float32)
    autotune.build(tuned.schedule, tuned.args, threads=1)(x, y)
    np.testing.assert_allclose(y, 0.5 * (x[:-2] + x[1:-1] + x[2:]), rtol=1e-5)
    assert repr(tuned).startswith("<TunedSchedule stencil: ")


def test_runs_are_stored_with_plain_traces(tuned: TunedSchedule, database: Path) -> None:
    with Database(database, read_only=True) as store:
        runs = store.records()
        assert problems_of(store) == []
        assert stale_keys(store) == []
    assert {run.outcome for run in runs} == {Outcome.OK}
    assert all("knob" not in run.trace_json for run in runs)


def test_what_the_function_refuses_is_never_proposed(tuned: TunedSchedule, database: Path) -> None:
    with Database(database, read_only=True) as store:
        met = {(run.config["place"], run.config["rows"]) for run in store.records()}
    assert met == {(p, r) for p in ("root", "tile", "inline") for r in ROWS} - {("inline", 8)}


def test_the_same_call_continues_with_what_is_undecided(tuned: TunedSchedule, database: Path) -> None:
    """All candidates are known; the answer may change by comparisons, and the database gives the same."""
    again = tune(database, trials=40)
    assert again.report.session_trials == 0
    workload = ProgramWorkload.of([A, C])
    (answer,) = autotune.query(workload.key, database=database, threads=1)
    assert isinstance(answer.answer, autotune.database.query.Hit)
    assert answer.answer.best.trace_json == again.trace.to_json()
    assert answer.workload.text == workload.text


def test_another_function_has_another_space(tuned: TunedSchedule) -> None:
    def other(s: Schedule) -> None:
        s[B].compute_inline()
        stencil_knobs = s.knob("rows", ROWS, default=2), s.knob("place", ("root", "tile", "inline"))
        s[C].split(s[C].op.axis[0], nparts=stencil_knobs[0])

    assert Sketch(other, [C]).knobs == Sketch(stencil, [C]).knobs
    assert (
        Sketch(other, [C]).fingerprint != Sketch(stencil, [C]).fingerprint == Sketch(stencil, [C]).fingerprint
    )


def test_a_program_without_a_function_gets_one(tmp_path: Path) -> None:
    budget = autotune.Budget(trials=3)
    found = tune_schedule(None, [A, C], budget=budget, database=tmp_path / "a.db", threads=1, quiet=True)
    assert found.report.outcomes == {"ok": 3}
    assert "C_vectors" in found.config


def test_schedules_with_one_machine_code_change_nothing(tmp_path: Path) -> None:
    """A/A, with the real compiler and worker."""

    def same(s: Schedule) -> None:
        rows, columns = s[C].op.axis
        for _ in range(s.knob("times", (0, 1, 2, 3))):
            s[C].reorder(rows, columns)  # as they are
        s[C].vectorize(columns)

    budget = autotune.Budget(trials=4)
    found = tune_schedule(same, [A, C], budget=budget, database=tmp_path / "t.db", threads=1, quiet=True)
    assert found.speedup is None
    assert str(found.report.gain).endswith(", no change: the same machine code")
    assert str(found.report.dispatches[0].evidence) == "default, 3 trials"


def test_functions_that_cannot_be_tuned_are_refused(tmp_path: Path) -> None:
    def refuse(function: object, kind: type[Exception], message: str) -> None:
        with pytest.raises(kind, match=message):
            tune_schedule(function, [A, C], budget="1s", database=tmp_path / "no.db", threads=1)  # type: ignore[arg-type]

    refuse(lambda s: None, UsageError, "declares no knobs")
    refuse(lambda s: s.knob("k", ()), KnobError, "knob 'k' has no values")


@pytest.mark.parametrize(
    ("function", "args", "message"),
    [
        (C, [A, C], r"the Tensor C: write tune_schedule\(None, \[A, C\], ...\)"),
        (C.op, [A, C], r"the ComputeOp C: write tune_schedule\(None, \[A, C\], ...\)"),
        (3, [A, C], "the int 3"),
        (None, C, "got the tensor C alone: write \\[..., C\\] with its inputs"),
        (None, [A, np.zeros(3)], "got Tensor, ndarray"),
        (None, 7, "got int"),
    ],
)
def test_arguments_of_another_kind_say_what_to_pass(
    function: object, args: object, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        tune_schedule(function, args, budget="1s", database=tmp_path / "no.db")  # type: ignore[arg-type]


def test_a_budget_that_starting_uses_up_still_measures_one_candidate(tmp_path: Path) -> None:
    found = tune_schedule(stencil, [A, C], budget="0.01s", database=tmp_path / "s.db", threads=1, quiet=True)
    assert found.report.outcomes == {"ok": 1}


def test_a_resumed_job_measures_before_it_learns(resumed: tuple[TunedSchedule, list[str]]) -> None:
    """Training loads a library, which takes seconds on a busy machine."""
    _, events = resumed
    assert "learn" not in events[: 1 + events.index("measured")]


def test_a_program_that_never_works_says_why(tmp_path: Path) -> None:
    x, y = te.placeholder((8,), name="x"), te.placeholder((8,), name="y")
    z = te.compute((8,), lambda i: x[i] + y[i], name="z")
    mine = te.decl_tensor_intrin(z.op, None, name="known_to_this_process_only")
    a, b = te.placeholder((32,), name="a"), te.placeholder((32,), name="b")
    c = te.compute((32,), lambda i: a[i] + b[i], name="c")

    def wrong(s: Schedule) -> None:
        _, inner = s[c].split(s[c].op.axis[0], factor=8)
        s[c].pragma(inner, "unroll_explicit", s.knob("hint", (1, 2)))
        s[c].tensorize(inner, mine)

    budget = autotune.Budget(trials=2)
    with pytest.raises(MeasureError, match="known_to_this_process_only"):
        tune_schedule(wrong, [a, b, c], budget=budget, database=tmp_path / "w.db", threads=1, quiet=True)


def test_candidates_are_distinct_schedules_that_the_cost_model_describes() -> None:
    target = autotune.Target.parse("x86-64-v3", threads=1)
    space = program_space.space(ProgramWorkload.of([A, C]), target, Sketch(stencil, [C]))
    population = space.population(np.random.default_rng(0), 64)
    assert len(population) == 5
    assert len({space.schedule(config).trace.key for config in population}) == 5
    seconds = analytic.predict(space, population)
    assert np.isfinite(seconds).all()
    assert (seconds > 0).all()
    assert len(set(seconds)) > 2
    assert np.isfinite(features.extract(space, population)).all()
