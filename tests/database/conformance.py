"""The contract of tuning databases, wherever they are kept: a test class a kind of database inherits this."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from autotune.database import (
    Database,
    Evidence,
    Footprint,
    Hit,
    JobRow,
    Miss,
    MissReason,
    Origin,
    Outcome,
    Run,
    State,
    WorkloadRow,
    schema,
)
from autotune.database.address import DatabaseAddress
from autotune.database.answers import KeptAnswers
from autotune.database.merge import forget, merge
from autotune.database.records import DEVICES, MODEL, Comparison, Latency, Ratio, Reading
from autotune.database.session import Session
from autotune.database.summary import RunCounts
from autotune.errors import DatabaseError, SchemaVersionError
from tests.database.crowd import WRITERS, crowd
from tests.database.examples import (
    HOST,
    KEY,
    OTHER,
    compare,
    job,
    options,
    prepare,
    run,
    schedules,
)
from tests.database.processes import start_together

_NEGATIVE = "UPDATE runs SET memory_bytes = -1 WHERE trace_key = 'a'"


def _best(database: Database) -> Run:
    best = database.best(KEY.workload, KEY.target, KEY.space)
    assert isinstance(best, Run)
    return best


class Conformance:
    """Subclasses have a fixture ``empty``: the path or URL of a database that nobody has opened."""

    @pytest.fixture
    def where(self, empty: str) -> str:
        """A database with a workload, two targets and two search spaces, without runs."""
        with Database(empty) as database:
            prepare(database)
        return empty

    def test_a_run_comes_back_as_it_was_stored(self, where: str) -> None:
        stored = run("a", 100.0, error=1e-6, message="m", host="h", versions="v", seed=3)
        with Database(where) as database:
            assert database.record(stored)
        with Database(where, read_only=True) as database:
            (found,) = database.records()
            assert replace(found, id=None) == stored
            assert database.workload_rows() == [WorkloadRow(KEY.workload, "text", "contraction", 10, 20)]
            assert database.targets() == {HOST.key: HOST, OTHER.key: OTHER}

    def test_the_same_schedule_is_not_counted_twice(self, where: str) -> None:
        with Database(where) as database:
            assert database.record(run("a", 100.0))
            assert not database.record(run("a", 50.0))
            assert [r.latency_ns for r in database.records()] == [100.0]

    def test_runs_that_are_stored_together_are_counted_once_each(self, where: str) -> None:
        with Database(where) as database:
            found = database.record_all([run("a", 100.0), run("b", 80.0), run("a", 50.0)])
            assert found == [True, True, False]
            assert [r.trace_key for r in database.records(traces={"b"})] == ["b"]
            assert database.record_all([]) == []

    def test_best_is_the_fastest_that_worked_where_the_default_did_not(self, where: str) -> None:
        with Database(where) as database:
            for trace, ns in [("a", None), ("b", 80.0), ("c", 100.0)]:
                database.record(run(trace, ns, origin=Origin.DEFAULT if trace == "a" else Origin.SEARCH))
            best = database.best(KEY.workload, KEY.target, KEY.space)
            assert isinstance(best, Run)
            assert best.trace_key == "b"
            hit = database.lookup(KEY.workload, KEY.target, KEY.space)
            assert isinstance(hit, Hit)
            assert (hit.runs, hit.ok, hit.latencies) == (3, 2, (None, 80.0))
            assert (hit.evidence, hit.side_by_side) == (Evidence(State.UNCONFIRMED, 2), False)
            assert [r.trace_key for r in database.top(KEY, 5)] == ["b", "c"]

    def test_what_is_faster_by_all_comparisons_is_used(self, where: str) -> None:
        with Database(where) as database:
            for trace, ns in [("a", 80.0), ("b", 81.0), ("c", 99.0)]:
                database.record(run(trace, ns, origin=Origin.DEFAULT if trace == "c" else Origin.SEARCH))
            a, b, c = database.records()
            compare(database, schedules((c, 99.0), (a, 95.0), (b, 85.0), won="b"), "net")
            best = _best(database)
            assert (best.trace_key, best.confirmed_ns, best.inside) == ("b", 85.0, "net")
            for _ in range(9):
                compare(database, schedules((c, 84.0), (a, 90.0), (b, 89.0), won="c"), "other net")
            assert (_best(database).trace_key, _best(database).inside) == ("c", "other net")

    def test_how_well_it_is_known_that_a_schedule_is_the_one_to_use(self, where: str) -> None:
        def known() -> Evidence:
            found = database.lookup(KEY.workload, KEY.target, KEY.space)
            assert isinstance(found, Hit)
            return found.evidence

        with Database(where) as database:
            database.record(run("default", 100.0, origin=Origin.DEFAULT))
            assert known() == Evidence(State.DEFAULT)
            database.record(run("a", 99.0))
            assert known() == Evidence(State.TRIED, 1)
            database.record(run("b", 99.0))
            for _ in range(2):
                database.read_inside(KEY, [Reading("b", 0.5, 3, 100.0)], "net")
            assert _best(database).trace_key == "b"
            assert known() == Evidence(State.UNCONFIRMED, 2)  # it was picked by these measurements
            default, a, b = database.records()
            for _ in range(9):  # b was lucky
                compare(database, schedules((default, 100.0), (a, 80.0), (b, 101.0), won="a"))
            found = known()
            assert (found.state, found.trials) == (State.TUNED, 2)
            assert found.ratio is not None
            assert found.ratio.median == pytest.approx(0.8, rel=0.02)
            for _ in range(99):
                compare(database, schedules((default, 100.0), (a, 110.0), (b, 110.0), won="default"))
            assert known() == Evidence(State.CONFIRMED, 2)

    def test_what_was_measured_is_used_as_far_as_that_is_believed(self, where: str) -> None:
        with Database(where) as database:
            database.record(run("default", 100.0, origin=Origin.DEFAULT))
            for trace in ("alone", "close", "once", "often"):
                database.record(run(trace, 50.0))
            assert _best(database).trace_key == "default"
            database.read_inside(KEY, [Reading("close", 0.995, 3, 90.0)], "net")
            assert _best(database).trace_key == "default"
            database.read_inside(KEY, [Reading("once", 0.9, 3, 90.0)], "net")
            assert _best(database).trace_key == "default"
            for _ in range(3):
                database.read_inside(KEY, [Reading("often", 0.9, 3, 90.0)], "net")
            assert _best(database).trace_key == "often"
            hit = database.lookup(KEY.workload, KEY.target, KEY.space)
            assert hit.evidence == Evidence(State.UNCONFIRMED, 4)

    def test_no_measurement_is_replaced_by_a_later_one(self, where: str) -> None:
        with Database(where) as database:
            database.record(run("default", 100.0, origin=Origin.DEFAULT))
            database.record(run("a", 90.0))
            default, a = database.records()
            for ns in (90.0, 90.0, 90.0, 101.0):
                compare(database, schedules((default, 100.0), (a, ns), won="default"))
            assert _best(database).trace_key == "a"
            assert len(database.comparison_history(KEY.workload, KEY.target, "schedule")) == 8
            assert [row.name for row in database.compared_schedules(KEY)] == ["default", "a"] * 4

    def test_answers_are_renewed_by_all_that_any_process_stores(self, where: str) -> None:
        stores: list[Callable[[Database], object]] = [
            lambda database: database.record(run("default", 100.0, origin=Origin.DEFAULT)),
            lambda database: database.record(run("a", 90.0)),
            *[lambda database: database.read_inside(KEY, [Reading("a", 0.6, 3, 90.0)], "net")] * 3,
            lambda database: compare(
                database, schedules(*zip(database.records(), (100.0, 80.0), strict=True), won="a")
            ),
            lambda database: database.crashed_inside(KEY, {"a": ""}, "net"),
        ]
        with Database(where) as database, Database(where) as other:
            answers, seen = KeptAnswers(database), list[Hit | Miss]()
            for store in stores:
                store(other)
                found = answers.lookup([KEY])[KEY]
                assert found == database.lookup(KEY.workload, KEY.target, KEY.space)
                assert answers.best([KEY])[KEY] == database.best(KEY.workload, KEY.target, KEY.space)
                assert answers.lookup([KEY])[KEY] is found
                seen.append(found)
            assert all(earlier != later for earlier, later in pairwise(seen))

    def test_comparisons_of_several_workloads_come_in_their_order(self, where: str) -> None:
        with Database(where) as database:
            other = replace(KEY, workload="5" * 64)
            database.add_workload(WorkloadRow(other.workload, "other", "contraction", 1, 2))
            for key in (KEY, other, KEY):
                found = options(("direct", 100.0), ("rows", 90.0), won="rows")
                database.compared(key.workload, KEY.target, "option", found, "net")
            asked = [other.workload, "6" * 64, KEY.workload]
            known = database.comparison_histories(asked, KEY.target, "option")
            assert [(key, len(rows)) for key, rows in known.items()] == [
                (other.workload, 2),
                (KEY.workload, 4),
            ]
            assert known[KEY.workload] == database.comparison_history(KEY.workload, KEY.target, "option")

    def test_what_crashed_inside_a_model_is_never_used(self, where: str) -> None:
        with Database(where) as database:
            for trace in ("default", "won", "fast", "slow"):
                origin = Origin.DEFAULT if trace == "default" else Origin.SEARCH
                database.record(run(trace, 100.0 if trace == "slow" else 90.0, origin=origin))
            for _ in range(2):
                database.read_inside(KEY, [Reading("fast", 0.5, 3, 100.0)], "net")
            runs = {run.trace_key: run for run in database.records()}
            compare(database, schedules((runs["default"], 90.0), (runs["won"], 80.0), won="won"))
            assert _best(database).trace_key == "fast"
            database.crashed_inside(KEY, {"fast": "", "unknown": ""}, "net")
            assert _best(database).trace_key == "won"
            database.crashed_inside(KEY, {"won": "the worker died (SIGSEGV)"}, "other net")
            assert _best(database).trace_key == "default"
            hit = database.lookup(KEY.workload, KEY.target, KEY.space)
            assert isinstance(hit, Hit)
            assert (hit.runs, hit.ok, hit.crashed) == (4, 2, 2)
            assert hit.evidence == Evidence(State.TRIED, 3, crashed=2)
            assert [row.name for row in hit.compared] == ["default", "won"]
            crashed = {run.trace_key: (run.inside, run.crashed) for run in database.records() if run.crashed}
            assert crashed == {
                "fast": ("net", "crashed inside the model"),
                "won": ("other net", "crashed inside the model: the worker died (SIGSEGV)"),
            }
            assert database.outcomes() == {"ok": 2, "crashed": 2}
            assert database.damage() == []

    def test_what_hung_inside_a_model_has_timed_out(self, where: str) -> None:
        with Database(where) as database:
            for name in ("a", "b", "c"):
                database.record(run(name, 90.0))
            database.crashed_inside(KEY, {"a": "it hung: profile took longer than 20 s", "b": ""}, "net")
            crashed = {run.trace_key: run.crashed for run in database.records() if run.crashed}
            assert crashed == {
                "a": "timed out inside the model: profile took longer than 20 s",
                "b": "crashed inside the model",
            }
            assert database.outcomes() == {"ok": 1, "crashed": 1, "timeout": 1}

    def test_what_a_distrusted_node_has_measured_alone_is_not_used(self, where: str) -> None:
        with Database(where) as database:
            mine = database.claim_job(job("a"), lambda owner: False).id
            for trace, host in [("default", "liar"), ("alone", "liar"), ("inside", "liar"), ("b", "honest")]:
                origin = Origin.DEFAULT if trace == "default" else Origin.SEARCH
                database.record(run(trace, 90.0, origin=origin, host=host, job=mine))
            database.record(run("earlier", 95.0, host="liar"))
            lies = [Reading(trace, 0.3, 3, 90.0, host="liar") for trace in ("alone", "inside")]
            database.read_inside(
                KEY, [Reading("inside", 0.9, 3, 90.0, host="honest"), *lies[:1]], "net", mine
            )
            database.read_inside(KEY, lies[1:], "net", mine)
            assert database.distrust(mine, "liar", "it lies") == 1
            assert database.distrust(mine, "liar", "it lies") == 0
            assert [(found.trace_key, found.host) for found in database.readings(KEY)] == [
                ("inside", "honest")
            ]
            found = {run.trace_key: run for run in database.records()}
            assert (found["alone"].outcome, found["alone"].latency) == (Outcome.DISTRUSTED, None)
            assert (found["alone"].host, found["alone"].message) == ("liar", "it lies")
            assert {trace for trace, run in found.items() if run.outcome is Outcome.OK} == {*found} - {
                "alone"
            }
            assert "alone" not in [run.trace_key for run in database.top(KEY, 9)]
            assert database.damage() == []

    def test_nothing_is_used_where_all_that_worked_alone_crashed_inside_a_model(self, where: str) -> None:
        with Database(where) as database:
            database.record(run("default", None, origin=Origin.DEFAULT))
            database.record(run("a", 90.0))
            database.crashed_inside(KEY, {"a": ""}, "net")
            found = database.best(KEY.workload, KEY.target, KEY.space)
            assert isinstance(found, Miss)
            assert found.found == "of 2 measured candidates none worked (2 crashed)"

    def test_readings_come_back_as_they_were_stored(self, where: str) -> None:
        with Database(where) as database:
            database.record(run("a", 100.0))
            database.read_inside(KEY, [Reading("a", 0.9, 3, 90.0), Reading("unknown", 0.8, 3, 90.0)], "net")
            (found,) = database.readings(KEY)
            assert replace(found, created=0.0) == Reading("a", 0.9, 3, 90.0, "net")
            assert database.damage() == []
            assert forget(database, [KEY]) == 1
            assert database.readings(KEY) == []

    def test_footprints_are_kept_with_runs(self, where: str) -> None:
        with Database(where) as database:
            database.record(run("a", 100.0, footprint=Footprint(3 << 40, 0)))
            database.record(run("b", 100.0))
            assert [run.footprint for run in database.records()] == [Footprint(3 << 40, 0), None]
            database.session.write(lambda connection: connection.exec_driver_sql(_NEGATIVE))
            with pytest.raises(DatabaseError, match="run 1 is damaged: its memory_bytes is -1"):
                database.records()
            assert len(database.damage()) == 1

    def test_points_are_read_where_it_counts_most(self, where: str) -> None:
        sizes = Footprint(64, 640)
        with Database(where) as database:
            database.record(run("default", 100.0, footprint=sizes, origin=Origin.DEFAULT))
            for trace in ("compared", "inside", "alone"):
                database.record(run(trace, 80.0, footprint=sizes))
            database.record(run("unknown", 80.0))
            database.record(run("failed", None, footprint=sizes))
            default, compared = database.records()[:2]
            for ns in (70.0, 60.0):
                compare(database, schedules((default, 50.0), (compared, ns), won="default"))
            read = [Reading(trace, 0.9, 3, 90.0) for trace in ("compared", "inside")]
            database.read_inside(KEY, read, "net")
            found = {p.run.trace_key: (p.ratio.median, p.read.value) for p in database.points(KEY)}
        assert found == {
            "default": (1.0, "compared"),
            "compared": (1.2, "compared"),
            "inside": (pytest.approx(0.9), "inside a model"),
            "alone": (1.0, "alone"),
        }

    def test_comparisons_at_a_site_of_a_whole_model_come_back_as_they_were_stored(self, where: str) -> None:
        one = Comparison("one", "c1", Latency(3, 8.0, 9.0, 1.0), won=True, detail='{"*": "cpu:0"}')
        two = Comparison("two", "c2", Latency(3, 9.0, 9.5, 1.0), ratio=Ratio(1.1, (1.0, 1.2)), detail="{}")
        with Database(where) as database:
            prepare(database)
            database.add_workload(WorkloadRow("m", "", MODEL, 0, 0))
            mine = database.claim_job(job(), lambda owner: False)
            assert database.compared_at(DEVICES, workload="m") == []
            database.compared("m", KEY.target, DEVICES, [one, two], "net", mine.id)
            database.compared("m", KEY.target, DEVICES, [one], "net")
            first, second, third = database.compared_at(DEVICES, workload="m")
            assert replace(first, created=0.0) == replace(one, inside="net")
            assert replace(second, created=0.0) == replace(two, inside="net")
            assert third.created > second.created == first.created
            assert database.compared_at(DEVICES, job=mine.id) == [first, second]
            assert database.compared_at("threads", workload="m") == []
            assert database.comparison("m", KEY.target, DEVICES) == [third]
            assert database.find_workload("m") == []

    def test_a_comparison_of_another_search_space_says_nothing_of_this_one(self, where: str) -> None:
        other = replace(KEY, space="t" * 64)
        with Database(where) as database:
            for key in (KEY, other):
                database.record(run("default", 100.0, key=key, origin=Origin.DEFAULT))
                database.record(run("a", 95.0, key=key))
            default, a = database.records(space=other.space)
            compare(database, schedules((default, 90.0), (a, 70.0), won="a"))
            assert _best(database).trace_key == "default"
            found = database.best(other.workload, other.target, other.space)
            assert isinstance(found, Run)
            assert found.trace_key == "a"

    def test_a_comparison_has_one_winner(self, where: str) -> None:
        with Database(where) as database:
            database.record(run("a", 80.0))
            (a,) = database.records()
            with pytest.raises(DatabaseError, match="one winner"):
                compare(database, schedules((a, 1.0), won="b"))
            with pytest.raises(DatabaseError, match="came from the database"):
                compare(database, schedules((run("b", 1.0), 1.0), won="b"))
            assert database.comparison(KEY.workload, KEY.target, "schedule") == []

    @pytest.mark.parametrize(
        ("rows", "reason", "words"),
        [
            ([], MissReason.NO_WORKLOAD, "not in the database; run `autotune tune`"),
            ([{"target": OTHER.key}], MissReason.OTHER_TARGET, "only for other targets (x86-64-v4, 8"),
            ([{"space": "t" * 64}], MissReason.OTHER_SPACE, "in another search space (1 known)"),
            ([{}], MissReason.ALL_FAILED, "of 1 measured candidate none worked (1 crashed)"),
        ],
    )
    def test_a_miss_says_why_and_what_to_run(
        self, where: str, rows: list[dict[str, str]], reason: MissReason, words: str
    ) -> None:
        with Database(where) as database:
            for changes in rows:
                database.record(run("a", None, key=replace(KEY, **changes)))
            for answer in (
                database.best(KEY.workload, KEY.target, KEY.space),
                database.lookup(KEY.workload, KEY.target, KEY.space),
            ):
                assert isinstance(answer, Miss)
                assert answer.reason is reason
                assert words in str(answer)

    def test_runs_can_be_narrowed_and_followed(self, where: str) -> None:
        with Database(where) as database:
            database.record(run("a", 1.0))
            database.record(run("b", 2.0, key=replace(KEY, space="t" * 64)))
            assert [r.trace_key for r in database.records(space=KEY.space)] == ["a"]
            last = database.records()[-1].id
            assert last is not None
            database.record(run("c", 3.0))
            assert [r.trace_key for r in database.records(after=last)] == ["c"]
            assert database.outcomes() == {"ok": 3}

    def test_a_job_is_continued_only_when_its_owner_is_gone(self, where: str) -> None:
        with Database(where) as database:
            first = database.claim_job(job(), alive=lambda owner: True)
            assert first.id == "j1"
            assert database.claim_job(job(name="j2", owner="you"), lambda owner: True).id == "j2"
            taken = database.claim_job(job(name="j3", owner="new"), lambda owner: owner == "you")
            assert (taken.id, taken.owner) == ("j1", "new")
            database.update_job(replace(taken, state=JobRow.DONE))
            database.update_job(replace(job(name="j2"), state=JobRow.STOPPED, elapsed_s=4.0))
            stopped = database.claim_job(job(name="j4"), lambda owner: True)
            assert (stopped.id, stopped.elapsed_s) == ("j2", 4.0)

    def test_reading_never_writes(self, where: str) -> None:
        with Database(where, read_only=True) as database:
            with pytest.raises(DatabaseError, match="opened for reading only"):
                database.record(run("a", 1.0))
            assert database.records() == []

    def test_time_stamps_are_filled_in(self, where: str) -> None:
        before = time.time()
        with Database(where) as database:
            database.record(run("a", 1.0, created=0.0))
            assert before <= database.records()[0].created <= time.time()

    def test_the_newest_comparison_of_each_kind_of_site_is_found_again(self, where: str) -> None:
        with Database(where) as database:
            database.record(run("a", 1.0))
            first = schedules((database.records()[0], 2.0), won="a")
            compare(database, first)
            assert database.comparison(KEY.workload, KEY.target, "option") == []
            database.compared(
                KEY.workload, KEY.target, "option", options(("a", 1.0), ("b", 2.0), won="a"), "net"
            )
            newest = options(("a", 3.0), ("c", None), won="a")
            database.compared(KEY.workload, KEY.target, "option", newest, "net")
            found = database.comparison(KEY.workload, KEY.target, "option")
            assert [replace(row, created=0.0) for row in found] == newest
            assert database.comparison(KEY.workload, OTHER.key, "option") == []
            (again,) = database.comparison(KEY.workload, KEY.target, "schedule")
            assert replace(again, created=0.0, inside="") == first[0]

    def test_comparisons_and_layers_are_merged_once(self, where: str) -> None:
        with Database(where) as database:
            mine = database.claim_job(job(), lambda owner: True)
            database.add_layers(mine.id, {KEY.workload: ("conv1", "conv2")})
            database.record(run("a", 1.0, job=mine.id))
            database.compared(KEY.workload, KEY.target, "option", options(("a", 1.0), won="a"), "net")
            compare(database, schedules((database.records()[0], 2.0), won="a"))
            assert str(merge(database, database)) == "0 new runs, 1 known"
            assert database.layers() == {(mine.id, KEY.workload): ("conv1", "conv2")}
            for site in ("option", "schedule"):
                assert len(database.comparison(KEY.workload, KEY.target, site)) == 1
            assert database.damage() == []

    def test_jobs_and_their_runs_are_counted(self, where: str) -> None:
        with Database(where) as database:
            assert (database.jobs(2), database.count_jobs(), database.heard()) == ([], 0, {})
            for at in range(5):
                fresh = replace(job(f"f{at}", f"o{at % 2}", f"j{at}"), created=float(at), updated=10.0 - at)
                database.claim_job(fresh, lambda owner: True)
                database.add_layers(fresh.id, {KEY.workload: ("conv1", f"conv{at % 2}")})
            for at, outcome in enumerate((1.0, None, 3.0)):
                database.record(run(f"r{at}", outcome, job=f"j{at % 2}"))
            assert [row.id for row in database.jobs()] == ["j0", "j1", "j2", "j3", "j4"]
            assert [row.id for row in database.jobs(2)] == ["j3", "j4"]
            assert (database.count_jobs(), database.heard()) == (5, {"o0": 10.0, "o1": 9.0})
            assert database.jobs_with(KEY.workload, 3) == dict.fromkeys(["j4", "j3", "j2"], "m")
            assert database.jobs_with("none", 3) == {}
            assert database.names([KEY.workload, "none"]) == {KEY.workload: ["conv1", "conv0"]}
            few, many = ["j0", "j1", "j4"], ["j0", "j1", *map(str, range(200))]
            assert database.job_trials(few) == {"j0": 2, "j1": 1, "j4": 0}
            assert database.job_trials(many) == {**dict.fromkeys(many, 0), "j0": 2, "j1": 1}
            failed = run("b", None).outcome.value
            assert database.outcomes() == {"ok": 2, failed: 1}
            assert database.outcomes(job="j0") == {"ok": 2}
            database.record(run("c", 4.0))
            by_job = database.outcomes_by_job()
            assert by_job == {"": {"ok": 1}, "j0": {"ok": 2}, "j1": {failed: 1}}
            assert database.outcomes(by_job=by_job) == database.outcomes() == {"ok": 3, failed: 1}

    def test_runs_are_counted_from_where_they_were(self, where: str) -> None:
        def counted() -> list[tuple[str, int, float | None, float | None]]:
            return [
                (row.target_key, row.runs, row.best_ns, row.default_ns) for row in database.summary(known)
            ]

        with Database(where) as database:
            known = database.run_counts()
            assert (known, counted()) == (RunCounts(), [])
            database.record(run("a", 3.0, origin=Origin.DEFAULT))
            database.record(run("b", None))
            known = database.run_counts(known)
            assert (known.last, known.total) == (2, 2)
            assert counted() == [(KEY.target, 2, 3.0, 3.0)]
            database.record(run("c", 2.0))
            database.record(run("d", None, key=replace(KEY, target=OTHER.key)))
            known = database.run_counts(known)
            assert known == database.run_counts()
            assert sorted(counted()) == sorted([(KEY.target, 3, 2.0, 3.0), (OTHER.key, 1, None, None)])
            columns = schema.runs.c
            for gone in (columns.trace_key == "c", columns.target_key == OTHER.key):
                removed = schema.runs.delete().where(gone)
                database.session.write(lambda connection, query=removed: connection.execute(query))
                known = database.run_counts(known)
            assert counted() == [(KEY.target, 2, 3.0, 3.0)]

    def test_a_summary_has_the_newest_winner(self, where: str) -> None:
        with Database(where) as database:
            for name, ns in (("a", 3.0), ("b", 2.0), ("c", None)):
                database.record(run(name, ns))
            ((workload, target, runs, ratio),) = [
                (row.workload_key, row.target_key, row.runs, row.ratio) for row in database.summary()
            ]
            assert (workload, target, runs, ratio) == (KEY.workload, KEY.target, 3, None)
            first, second, _ = database.records()
            for ns in (1.0, 1.5):
                compare(database, schedules((first, 2.0), (second, ns), won="b"))
            assert [row.ratio.median for row in database.summary() if row.ratio] == [0.75]

    def test_any_text_and_number_that_a_measurement_gives(self, where: str) -> None:
        with Database(where) as database:
            mine = database.claim_job(replace(job(), model="model\udcff.onnx"), lambda owner: True)
            database.record(
                run("a", None, message="NUL \0, half \ud83d, ünï", error=float("inf"), seed=2**40)
            )
            database.record(run("b", None, error=float("nan"), job=mine.id))
            first, second = database.records()
            assert (first.message, first.error, first.seed) == (
                "NUL \ufffd, half ?, ünï",
                float("inf"),
                2**40,
            )
            assert second.error is None
            assert [row.model for row in database.jobs()] == ["model?.onnx"]

    def test_counts_are_exact_whatever_writers_are_killed(self, empty: str) -> None:
        found = crowd(empty, seconds=1.5)
        found.check()
        assert found.kills > WRITERS
        assert found.reads > 0
        assert len(found.said) > WRITERS

    def test_a_newer_schema_is_refused_with_both_versions(self, where: str) -> None:
        with Database(where) as database:
            newer = schema.meta.update().values(value="99")
            database.session.write(lambda connection: connection.execute(newer))
        for read_only in (False, True):
            with pytest.raises(SchemaVersionError) as caught:
                Database(where, read_only=read_only)
            assert str(caught.value) == (
                f"the database {DatabaseAddress.parse(where)} has schema version 99, "
                f"this autotune knows version {schema.VERSION}; "
                "install a newer autotune, or give another --db"
            )

    def test_other_tables_are_left_alone(self, empty: str) -> None:
        session = Session(DatabaseAddress.parse(empty), read_only=False, timeout=5)
        session.write(lambda connection: connection.exec_driver_sql("CREATE TABLE songs (name TEXT)"))
        with pytest.raises(DatabaseError, match=r"it holds other tables \(songs\); give another --db"):
            Database(empty)
        session.close()

    @pytest.mark.parametrize("count", [3, pytest.param(6, marks=pytest.mark.slow)])
    def test_processes_that_open_an_empty_database_at_once(self, empty: str, count: int) -> None:
        start_together(empty, ["open_and_write"] * count)
        with Database(empty, read_only=True) as database:
            assert len(database.jobs()) == count

    def test_readers_wait_for_tables_that_are_being_made(self, empty: str) -> None:
        if "://" not in empty:
            Path(empty).touch()
        start_together(empty, ["only_read", "open_and_write", "only_read"])

    def test_several_processes_write_at_once(self, where: str) -> None:
        start_together(where, ["write", "write", "only_read"])
        with Database(where) as database:
            assert len(database.records()) == 60

    @pytest.mark.parametrize("count", [4, pytest.param(8, marks=pytest.mark.slow)])
    def test_one_of_several_processes_gets_a_dead_job(self, where: str, count: int) -> None:
        with Database(where) as database:
            database.claim_job(job(owner="dead", name="left"), lambda owner: True)
        got = start_together(where, ["claim"] * count)
        assert got.count("left") == 1
        assert len(set(got)) == count
