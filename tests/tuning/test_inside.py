"""Candidates of all workloads are read together, a version of the model with one of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from autotune.database import Database
from autotune.database.inside import estimates
from autotune.database.posterior import SCHEDULE
from autotune.database.records import Latency, Outcome, Reading
from autotune.tuning.compare.sites import Sites
from autotune.tuning.jobs.budget import Budget
from autotune.tuning.measure.inside import Found, InModelReader
from autotune.tuning.measure.interface import Built
from autotune.tuning.measure.outcome import Measurement
from autotune.tuning.measure.turns import Rounds
from autotune.tuning.measure.whole_model import UNWATCHED, Profile, Version, Watch
from tests.tuning.synthetic import measurer
from tests.tuning.test_job import A, B, Model, hit, job
from tests.tuning.test_sites import sites


def built(trace: str) -> Built:
    return Built(cast(Any, None), trace, "[]")


class Table:
    """A model whose dispatches take what ``ns`` says of their code, by trace key; without code 100 ns."""

    name = "net"
    nbytes = 0

    def __init__(
        self, options: Sites, ns: dict[str, float], most: int = 16, crashing: Iterable[str] = ()
    ) -> None:
        self.crashing = set(crashing)
        self.sites = options
        self.ns = ns
        self.most = most
        self.asked: list[list[set[str]]] = []
        """The code of each version, a list for each process."""

    def rankings(self) -> dict[str, Any]:
        return {s.workload.key: SimpleNamespace(chosen=s.default) for s in self.sites.several}

    def read(
        self, versions: Sequence[Version], rounds: Rounds, late: Callable[[], bool], watch: Watch = UNWATCHED
    ) -> list[Any]:
        codes = [{b.trace_key for b in version.code.values()} for version in versions]
        self.asked.append(codes)
        both = zip(versions, codes, strict=True)
        for number, code in enumerate(codes):
            if mine := self.crashing & code:
                watch.failed(number, f"{min(mine)} was fatal")
        return [
            self._one(version, rounds) if self.crashing.isdisjoint(code) else None for version, code in both
        ]

    def _one(self, version: Version, rounds: Rounds) -> Profile:
        keys = list(self.sites.uses(version.options))
        code = {key: b.trace_key for key, b in version.code.items()}
        row = [self.ns.get(code.get(key, ""), 100.0) for key in keys]
        return Profile([(key, key) for key in keys], np.tile(row, (rounds.most, 1)))

    def time(self, tuned: Any, late: Any) -> None:
        return None


def test_a_version_has_a_candidate_of_each_workload() -> None:
    options = sites(direct=100.0, rows=20.0, product=90.0)
    model = Table(options, {"p1": 80.0, "p2": 120.0, "d1": 50.0})
    candidates = {"plain": [built("p1"), built("p2")], "direct": [built("d1")]}
    found = InModelReader(options, cast(Any, model)).read(candidates, lambda: False)
    assert model.asked == [[set(), {"p1", "d1"}, {"p2"}]]
    assert found.readings == {
        "plain": [Reading("p1", 0.8, 3, 100.0), Reading("p2", 1.2, 3, 100.0)],
        "direct": [Reading("d1", 0.5, 3, 100.0)],
    }


@pytest.mark.parametrize(("most", "processes"), [(16, 1), (3, 2)])
def test_what_another_option_needs_is_read_in_versions_that_have_it(most: int, processes: int) -> None:
    options = sites(direct=100.0, rows=20.0, product=30.0)
    model = Table(options, {"d1": 50.0, "r1": 70.0}, most)
    candidates = {"direct": [built("d1")], "rows": [built("r1")]}
    found = InModelReader(options, cast(Any, model)).read(candidates, lambda: False)
    assert [code for asked in model.asked for code in asked] == [set(), {"d1"}, set(), {"r1"}]
    assert len(model.asked) == processes
    assert (found.readings["direct"][0].ratio, found.readings["rows"][0].ratio) == (0.5, 0.7)


@pytest.mark.parametrize("crashing", ["a1", "b1", "c1", "d1"])
def test_only_the_candidate_that_ends_its_process_is_not_read(crashing: str) -> None:
    keys = "abcd"
    plain = SimpleNamespace(all=[], several=[], task_of={}, uses=lambda options: dict.fromkeys(keys, 1))
    model = Table(cast(Any, plain), {f"{key}1": 80.0 for key in keys}, crashing=[crashing])
    candidates = {key: [built(f"{key}1"), built(f"{key}2")] for key in keys}
    found = InModelReader(cast(Any, plain), cast(Any, model)).read(candidates, lambda: False)
    read = {reading.trace_key: reading.ratio for readings in found.readings.values() for reading in readings}
    assert read.keys() == {f"{key}{number}" for key in keys for number in (1, 2)} - {crashing}
    assert all(read[f"{key}1"] == 0.8 for key in keys if f"{key}1" in read)
    assert found.crashed == {crashing[0]: {crashing: f"{crashing} was fatal"}}
    assert [len(asked) for asked in model.asked] == [3, 4, 4]  # each half has the untuned model beside it


def test_nothing_is_known_of_what_there_was_no_time_for() -> None:
    options = sites(direct=100.0, rows=20.0, product=90.0)
    reader = InModelReader(options, cast(Any, Table(options, {})))
    assert reader.read({"plain": [built("p1")]}, lambda: True) == Found()


@pytest.mark.parametrize("late", [False, True])
def test_a_candidate_alone_has_crashed_when_it_ends_its_process_twice(late: bool) -> None:
    one = SimpleNamespace(all=[], several=[], task_of={}, uses=lambda options: {"a": 1})
    model = Table(cast(Any, one), {}, crashing=["a1"])
    times = iter([False, late, late, late])
    found = InModelReader(cast(Any, one), cast(Any, model)).read({"a": [built("a1")]}, lambda: next(times))
    assert found.crashed == ({} if late else {"a": {"a1": "a1 was fatal"}})
    assert len(model.asked) == (1 if late else 2)


def test_what_crashes_inside_the_model_is_not_used_and_not_tried_again(tmp_path: Path) -> None:
    """Alone it works, and would be the fastest."""
    path, tried = tmp_path / "tuning.db", list[str]()

    class Crashing(Model):
        def read(self, versions: Sequence[Version], rounds: Rounds, *_: Any) -> list[Any]:
            return [self._read(version, rounds) for version in versions]

        def _read(self, version: Version, rounds: Rounds) -> Any:
            code = version.code.get(A.workload.key)
            if code is None or A.latency(code.candidate.config) >= 0.7 * A.latency(A.space.default()):
                return self._one(version, rounds)
            tried.append(code.trace_key)
            return None

    report = job(path, A, trials=40, whole=Crashing(A, inside=A.latency)).run()
    crashed = set(tried)
    assert crashed
    assert len(tried) == 2 * len(crashed)
    found = hit(path, A)
    assert (found.crashed, found.ok) == (len(crashed), report.outcomes["ok"] - len(crashed))
    assert f"; {len(crashed)} crashed inside a model" in str(found.evidence)
    assert f"; {len(crashed)} crashed inside a model" in str(report.dispatches[0].evidence)
    assert found.best.trace_key not in crashed
    job(path, A, budget=Budget(per_workload=60), whole=Crashing(A, inside=A.latency)).run()
    assert {trace: tried.count(trace) for trace in crashed} == dict.fromkeys(crashed, 2)


def test_few_readings_count_for_less() -> None:
    (once,) = estimates([Reading("a", 0.5, 2, 1.0)]).values()
    (small,) = estimates([Reading("a", 0.95, 2, 1.0)]).values()
    assert 1.0 < small.ratio < 1.03  # among many candidates one is as lucky
    assert 0.6 < once.ratio < 0.9  # one process may be disturbed: it is measured again
    assert once.posterior.error > 3 * small.posterior.error
    (twice,) = estimates([Reading("a", 0.5, 2, 1.0)] * 2).values()
    assert 0.5 < twice.ratio < 0.52  # nobody is so lucky
    assert small.posterior.error < 2 * SCHEDULE
    (often,) = estimates([Reading("a", 0.5, 3, 1.0)] * 10).values()
    assert 0.5 < often.ratio < 0.503
    assert (often.rounds, often.processes) == (30, 10)


def test_a_search_learns_from_readings_inside_the_model(tmp_path: Path) -> None:
    """Alone all are alike; inside the model the synthetic bowl decides."""
    path = tmp_path / "tuning.db"
    alone = measurer(A)
    alone._answer = lambda candidate: A.measurement(A.space.default())
    report = job(path, A, trials=60, measurer=alone, whole=Model(A, inside=A.latency)).run()
    with Database(path) as database:
        key = database.records()[0].key
        readings = database.readings(key)
        best = database.best(key.workload, key.target, key.space)
    assert report.trials == 60
    assert len({reading.trace_key for reading in readings}) > 40
    config = cast(Any, best).config
    assert A.latency(config) < 0.6 * A.latency(A.space.default())


def test_no_more_candidates_wait_than_there_is_memory_for_in_a_process(tmp_path: Path) -> None:
    whole = Model(A, inside=A.latency)
    whole.most = 6
    alone = measurer(A)
    alone._answer = lambda candidate: A.measurement(A.space.default())
    job(tmp_path / "tuning.db", A, trials=60, measurer=alone, whole=whole).run()
    read = [versions for versions, processes in whole.asked if processes == 1]
    assert read
    assert max(read) <= whole.most


def test_what_is_unlikely_by_its_timing_alone_is_not_measured_inside(tmp_path: Path) -> None:
    path, fast = tmp_path / "tuning.db", 100.0
    alone = measurer(A)

    def answer(candidate: Any) -> Measurement:
        unusual = candidate.config["rows"] == 16 and candidate.config != A.space.default()
        ns = 5 * fast if unusual else fast
        return Measurement(Outcome.OK, Latency(5, ns, ns, 0.0), 1e-7)

    alone._answer = answer
    job(path, A, trials=60, measurer=alone, whole=Model(A)).run()
    with Database(path) as database:
        runs = {run.trace_key: run for run in database.records()}
        read = {reading.trace_key for reading in database.readings(next(iter(runs.values())).key)}
    assert any(run.latency_ns > fast for run in runs.values())
    assert read
    assert all(runs[trace].latency_ns == fast for trace in read)


def test_a_default_that_was_lucky_once_does_not_discard_all_others(tmp_path: Path) -> None:
    path, fast = tmp_path / "tuning.db", 100.0
    alone = measurer(A)
    lucky, usual = (Latency(5, ns, ns, 0.0) for ns in (fast, 3 * fast))
    alone._answer = lambda candidate: Measurement(
        Outcome.OK, lucky if candidate.config == A.space.default() else usual
    )
    job(path, A, trials=20, measurer=alone, whole=Model(A)).run()
    with Database(path) as database:
        assert len(database.readings(database.records()[0].key)) > 5


def test_what_was_not_read_before_a_job_was_killed_is_read_by_the_next(tmp_path: Path) -> None:
    class Killed(Model):
        def read(self, versions: Sequence[Version], rounds: Rounds, *rest: Any) -> list[Any]:
            raise KeyboardInterrupt

    path = tmp_path / "tuning.db"
    job(path, A, B, trials=40, whole=Killed(A, B)).run()
    with Database(path) as database:
        runs = [run for run in database.records(workload=A.workload.key) if run.latency]
        assert database.readings(runs[0].key) == []
    job(path, A, B, trials=40, whole=Model(A, B)).run()
    with Database(path) as database:
        read = {reading.trace_key for reading in database.readings(runs[0].key)}
    close = {run.trace_key for run in runs[1:] if run.latency_ns <= 2 * runs[0].latency_ns}
    assert close
    assert close <= read
