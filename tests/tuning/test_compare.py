"""Who is faster inside a model, and the process in which versions of it take turns."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from autotune.compiler import compile_in_detail, divide
from autotune.compiler.plan import OPTION, rank
from autotune.compiler.request import CompileRequest
from autotune.database import Database, Latency, Outcome
from autotune.database.records import SAME_CODE, crash_message
from autotune.errors import MeasureError
from autotune.graph.build import GraphBuilder
from autotune.passes.options import APART, options_of
from autotune.passes.partition import Partition
from autotune.passes.preference import Preference
from autotune.passes.substitute import substitute
from autotune.runtime.image import ModuleImage
from autotune.target import Target
from autotune.tuning.compare.sites import Site
from autotune.tuning.jobs.budget import Budget
from autotune.tuning.jobs.job import Job, Options
from autotune.tuning.jobs.model import MeasuredModel, subject_of, work_of
from autotune.tuning.jobs.subject import Subject, TunedModel
from autotune.tuning.measure.gain import gain_of
from autotune.tuning.measure.interface import BuiltOption, Candidate
from autotune.tuning.measure.outcome import Measurement
from autotune.tuning.measure.turns import WORKER, FreshProcesses, Rounds, Turns
from autotune.tuning.measure.whole_model import Profile, Version, Watch
from autotune.tuning.report.status import Progress
from autotune.workers.process import WorkerProcess
from tests.tuning.simulated import SimulatedMeasurer

TARGET = Target.parse("x86-64-v3", threads=1)


class Table(SimulatedMeasurer):
    """Alone all options take about the same; those in ``wrong`` are less exact than they declare."""

    def __init__(self, wrong: tuple[str, ...] = ()) -> None:
        super().__init__(self._alone)
        self.wrong = wrong

    def _alone(self, candidate: Candidate) -> Measurement:
        fused = "WinogradInput" in candidate.workload and "WinogradOutput" in candidate.workload
        ns = 100.0 if fused or "Conv(" in candidate.workload else 33.0
        return Measurement(Outcome.OK, Latency(5, ns, ns, 0.0))

    def check(self, option: BuiltOption) -> Measurement:
        if option.name in self.wrong:
            return Measurement(Outcome.WRONG_RESULT, error=0.5, message="relative error 0.5")
        return Measurement(Outcome.OK, error=1e-6)


class ScriptedModel(MeasuredModel):
    """A model in which the dispatches of an option take what ``ns`` says together, and others 100 ns each."""

    ns: dict[str, float]

    def read(self, versions: Any, rounds: Rounds, *rest: Any) -> list[Profile | None]:
        return [self._profile(version, rounds) for version in versions]

    def _profile(self, version: Version, rounds: Rounds) -> Profile:
        parts = substitute(self._parts, version.options)
        names = {d.name: version.options.get(d.workload.key) for d in self._parts.dispatches}
        row = []
        for dispatch in parts.dispatches:
            option = names[dispatch.name.partition("/")[0]]
            steps = 1 if option is None else len(option.regions)
            row.append(self.ns.get(option.name if option else "", 100.0) / steps)
        dispatches = [(d.name, d.workload.key) for d in parts.dispatches]
        return Profile(dispatches, np.tile(row, (rounds.most, 1)))

    def gain(self, untuned: Any, tuned: Any, out_of_time: Any) -> None:
        return None


def job_of_one_convolution(
    database: Database, model: type[ScriptedModel], ns: dict[str, float], wrong: tuple[str, ...] = ()
) -> tuple[Job, Site]:
    """A job, and the only site that has options; those without ``ns`` take 900 ns."""
    b = GraphBuilder("two")
    w = np.random.default_rng(0).standard_normal((16, 16, 3, 3)).astype(np.float32)
    x = b.node("Conv", b.input("x", (1, 16, 24, 24)), b.constant("w", w), pads=(1, 1, 1, 1))
    parts = divide(b.graph(b.node("Relu", x, name="y")))
    subjects, sites = work_of(parts, TARGET, Preference())
    (site,) = [site for site in sites if len(site.options) > 1]
    return job_of(parts, subjects, sites, site, database, model, ns, wrong), site


def job_of(
    parts: Partition,
    subjects: Sequence[Subject],
    sites: Sequence[Site],
    site: Site,
    database: Database,
    model: type[ScriptedModel],
    ns: dict[str, float],
    wrong: tuple[str, ...] = (),
) -> Job:
    """A job whose model is scripted; options of ``site`` without ``ns`` take 900 ns."""
    whole = model(parts, sites, TARGET, database, Preference(), 0)
    whole.ns = {**{option.name: 330.0 for option in site.options}, **ns}
    return Job(
        models=[TunedModel("two", subjects, sites, whole)],
        target=TARGET,
        budget=Budget(trials=60),
        database=database,
        measurer=Table(wrong),
        progress=Progress(),
        options=Options(sampler="random"),
    )


@pytest.mark.parametrize(
    ("ns", "wrong", "winner"),
    [
        ({"direct": 300.0, "winograd F(2x2)": 200.0, "winograd F(4x4)": 290.0}, (), "winograd F(2x2)"),
        ({"direct": 300.0, "winograd F(2x2)": 200.0}, ("winograd F(2x2)",), "direct"),
        ({"direct": 100.0, "winograd F(2x2)": 200.0}, (), "direct"),
    ],
)
def test_what_is_faster_inside_the_model_and_exact_is_used(
    tmp_path: Path, ns: dict[str, float], wrong: tuple[str, ...], winner: str
) -> None:
    with Database(tmp_path / "tuning.db") as database:
        job, site = job_of_one_convolution(database, ScriptedModel, ns, wrong)
        report = job.run()
        history = database.comparison_history(site.workload.key, TARGET.key, OPTION)
        rows = {row.name: row for row in history}
        assert rank([site.workload], TARGET, database, Preference())[site.workload.key].chosen.name == winner
    assert [row.name for row in history if row.won and row.created == history[-1].created] == [winner]
    assert {name for name, row in rows.items() if row.latency is None} == set(wrong)
    assert rows[site.default.name].inside == "two"
    (line,) = report.decisions
    assert line.partition(": ")[2].startswith(winner)
    assert all(f"{name}: relative error 0.5" in line for name in wrong)


def test_a_chain_that_is_no_task_as_a_whole_has_its_options_compared(tmp_path: Path) -> None:
    b = GraphBuilder("block")
    rng = np.random.default_rng(0)
    x = b.input("x", (1, 16, 112, 112))
    for name, shape, group in (("w", (96, 16, 1, 1), 1), ("d", (96, 1, 3, 3), 96), ("p", (16, 96, 1, 1), 1)):
        pads = (shape[2] // 2,) * 4
        weights = b.constant(name, rng.standard_normal(shape).astype(np.float32))
        x = b.node("Relu", b.node("Conv", x, weights, pads=pads, group=group))
    parts = divide(b.graph(x))
    _, sites = work_of(parts, TARGET, Preference())
    (chain,) = [site for site in sites if site.default.name == APART.label]
    options = tuple(option for option in options_of(chain.workload) if option.steps is not None)
    assert len(options) > 1
    site = replace(chain, options=options)
    regions = dict.fromkeys(region for option in options for region in option.regions)
    subjects = [subject_of(region, TARGET, site.names) for region in regions]
    assert chain.workload.key not in {subject.workload.key for subject in subjects}
    with Database(tmp_path / "tuning.db") as database:
        job = job_of(parts, subjects, [site], site, database, ScriptedModel, {APART.label: 300.0})
        job.run()
        rows = database.comparison(site.workload.key, TARGET.key, OPTION)
    assert [row.name for row in rows if row.won] == [APART.label]
    assert len(rows) > 1


class Late(ScriptedModel):
    """There is time for the least number of rounds only."""

    def read(self, versions: Any, rounds: Rounds, *rest: Any) -> list[Profile | None]:
        return super().read(versions, replace(rounds, most=rounds.least), *rest)


def test_a_single_process_decides_as_far_as_it_is_believed(tmp_path: Path) -> None:
    ns = {"direct": 300.0, "winograd F(2x2)": 200.0, "winograd F(4x4)": 290.0}
    with Database(tmp_path / "tuning.db") as database:
        job, site = job_of_one_convolution(database, Late, ns)
        job.run()
        rows = database.comparison(site.workload.key, TARGET.key, OPTION)
    assert [row.name for row in rows if row.won] == ["winograd F(2x2)"]
    assert all(row.ratio is None or row.ratio.interval is None for row in rows)


@pytest.fixture(scope="module")
def image() -> ModuleImage:
    return compile_in_detail(CompileRequest("zoo:tiny_cnn", threads=1)).image


@contextmanager
def taking_turns(*images: ModuleImage) -> Iterator[Turns]:
    with Turns(seed=0) as turns:
        for image in images:
            turns.add(image)
        yield turns


def test_versions_take_turns_in_two_processes(image: ModuleImage) -> None:
    with taking_turns(image, image) as turns:
        readings = turns.profile(Rounds(4), lambda: False)
        whole = turns.time(Rounds(2), lambda: False)
    for found in readings:
        assert cast(Any, found).shape == (4, len(image.dispatches))
        assert np.all(cast(Any, found) >= 0)
    assert all(cast(Any, found).shape[0] == 2 for found in whole)


def test_a_version_that_ends_the_process_leaves(image: ModuleImage, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Turns._ask

    def ask(self: Turns, number: int, request: Any, limit_s: float) -> Any:
        wanted = (
            {**request, "do": "no such request"} if (number, request["do"]) == (1, "profile") else request
        )
        return original(self, number, wanted, limit_s)

    monkeypatch.setattr(Turns, "_ask", ask)
    with taking_turns(image, image, image) as turns:
        first, second, third = turns.profile(Rounds(3), lambda: False)
        assert "worker died" in turns.failures[1]
    assert second is None
    assert cast(Any, first).shape == cast(Any, third).shape == (3, len(image.dispatches))


def test_a_version_that_hangs_is_ended_and_leaves(
    image: ModuleImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = FreshProcesses.ask

    def hung(self: FreshProcesses, request: Any, limit_s: float) -> Any:
        if request["do"] == "profile" and request["version"] == 1:
            (worker,) = self._workers._workers[self._current]
            assert worker._live is not None
            worker._live.process.send_signal(signal.SIGSTOP)
            limit_s = 0.5
        return ask(self, request, limit_s)

    monkeypatch.setattr(FreshProcesses, "ask", hung)
    reasons: dict[int, str] = {}
    with taking_turns(image, image, image) as turns:
        watch = Watch(failed=reasons.__setitem__)
        first, second, third = turns.profiles(Rounds(3), lambda: False, watch)
    assert (first is None, second, third is None) == (False, None, False)
    assert crash_message(reasons[1]) == "timed out inside the model: profile took longer than 0.5 s"


def test_many_processes_start_together_a_few_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.tuning.measure.turns._AHEAD", 3)
    monkeypatch.setattr("autotune.tuning.measure.turns.usable_cores", lambda: 2)
    started = list[str]()
    monkeypatch.setattr(WorkerProcess, "start", lambda self: started.append(self.name))
    path = tmp_path / "executor.o"
    processes = FreshProcesses(WORKER, (path, ""))
    processes.start(8)
    counts = list[int]()
    for _ in range(9):
        processes.next()
        counts.append(len(started))
    processes.close()
    assert counts == [3, 3, 3, 5, 5, 7, 7, 8, 9]


def test_a_process_loads_nothing_of_the_compiler() -> None:
    """So many are started that every module counts."""
    code = "import sys, autotune.tuning.measure.models; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    stages = {".".join(name.split(".")[:2]) for name in done.stdout.split()}
    assert not stages & {f"autotune.{stage}" for stage in ("compiler", "graph", "lower", "passes", "te")}


def test_a_process_loads_no_executor_but_the_one_that_the_job_has_compiled(image: ModuleImage) -> None:
    with taking_turns(image) as turns:
        (path,) = turns.folder.glob("*.o")
        path.write_bytes(path.read_bytes() + b"more")
        with pytest.raises(MeasureError, match="was changed"):
            turns.time(Rounds(1), lambda: False)


def test_a_gain_is_read_in_fresh_processes(image: ModuleImage) -> None:
    objects = (image.objects[0] + bytes(1), *image.objects[1:])
    found = gain_of(image, replace(image, objects=objects), 0, lambda: False, processes=2)
    assert found is not None
    assert (found.processes, found.before.n, found.ratio.interval) == (2, found.after.n, None)
    assert str(found).endswith("(medians of 2 processes): unconfirmed, which takes 6 processes")
    assert gain_of(image, image, 0, lambda: True) is None


def test_the_same_machine_code_is_no_change_whatever_is_read(image: ModuleImage) -> None:
    renamed = [replace(dispatch, schedule_source="tuned", trace_json="[]") for dispatch in image.dispatches]
    found = gain_of(image, replace(image, dispatches=tuple(renamed)), 0, lambda: False)
    assert found is not None
    assert (found.ratio, found.processes, found.before) == (SAME_CODE, 1, found.after)
    assert str(found).endswith("s, no change: the same machine code")


def test_a_version_that_needs_no_more_turns_rests_while_the_others_go_on(image: ModuleImage) -> None:
    asked = list[list[int]]()

    def settled(read: Any) -> list[int]:
        asked.append([len(found) for found in read])
        return [[], [2], [0, 1]][len(asked) - 1]

    with taking_turns(image, image, image) as turns:
        readings = turns.profile(Rounds(8, 2, processes=8), lambda: False, settled)
    assert asked == [[2, 2, 2], [3, 3, 3], [4, 4, 3]]
    assert [len(cast(Any, found)) for found in readings] == [4, 4, 3]


def test_too_few_rounds_decide_nothing(image: ModuleImage) -> None:
    with taking_turns(image) as turns:
        assert turns.profile(Rounds(12), lambda: True) == [None]


def test_what_is_not_loaded_when_time_is_up_was_not_read(image: ModuleImage) -> None:
    looks = iter([False, True])  # before the first is loaded, before the second
    with taking_turns(image, image) as turns:
        assert turns.profile(Rounds(12), lambda: next(looks)) == [None, None]


def test_those_that_are_loaded_when_time_is_up_take_turns_where_a_part_is_enough(image: ModuleImage) -> None:
    looks = iter([False, False, True])  # before each of three versions is loaded
    with taking_turns(image, image, image) as turns:
        first, second, third = turns.profile(Rounds(3, part=True), lambda: next(looks, True))
    assert cast(Any, first).shape == cast(Any, second).shape == (1, len(image.dispatches))
    assert third is None


def test_processes_start_ahead_and_have_read_nothing(image: ModuleImage) -> None:
    with taking_turns(image) as turns:
        turns.start(2)
        turns.time(Rounds(2, 2, processes=2), lambda: False)
        workers = [worker for found in turns._processes._workers._workers.values() for worker in found]
    assert [worker.starts for worker in workers] == [1, 1]
