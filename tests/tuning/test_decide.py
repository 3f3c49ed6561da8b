"""Sites of a whole model: compared in it, stored beside the options of workloads, used, printed and locked."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import autotune.compiler.sites.decision as decision_module
from autotune.compiler import compile_in_detail, divide, predict_in_detail
from autotune.compiler.lock import Lock
from autotune.compiler.locked import lock_of
from autotune.compiler.request import CompileRequest
from autotune.compiler.sites import KINDS, SiteKind
from autotune.compiler.sites.decision import decided, model_row
from autotune.compiler.sites.kinds.threads import KIND as THREADS
from autotune.database import Database
from autotune.errors import LockError, UsageError
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.target import Target
from autotune.tuning.api import decided_request, query, tune
from autotune.tuning.compare.decide import CompiledVersions, Compiler, checked_sites, decide, decide_for
from autotune.tuning.jobs.budget import Budget
from autotune.tuning.jobs.models import AskedModel
from autotune.tuning.measure.turns import Rounds
from autotune.tuning.measure.whole_model import UNWATCHED, Profile, Version, Watch

NS = {
    "threads": {"2": 100.0, "1": 80.0},
    "layout": {"NHWC": 100.0, "NCHW": 70.0},
    "order": {"concurrency": 100.0, "memory": 101.0},
}
"""Latencies of the fake, by kind and option."""


def graph(channels: int = 8) -> Graph:
    b = GraphBuilder("net")
    w = np.ones((channels, 8, 3, 3), np.float32)
    x = b.node("Conv", b.input("x", (1, 8, 12, 12)), b.constant("w", w), pads=(1, 1, 1, 1))
    return b.graph(b.node("Relu", x, name="y"))


def forked() -> Graph:
    """Two branches that meet again."""
    b = GraphBuilder("net")
    w = np.ones((8, 8, 3, 3), np.float32)
    x = b.input("x", (1, 8, 12, 12))
    sides = [b.node("Conv", x, b.constant(f"w{n}", w), pads=(1, 1, 1, 1)) for n in range(2)]
    return b.graph(b.node("Add", *sides, name="y"))


class Fake:
    """Versions that are not compiled, and take what is said of their options."""

    def __init__(self, name: str, compiled: Compiler, seed: int, ns: Mapping[str, Mapping[str, float]] = NS):
        self.name, self.most, self.compiled, self.ns = name, 8, compiled, ns
        self.read_versions = list[Mapping[str, str]]()

    def read(
        self,
        versions: Sequence[Version],
        rounds: Rounds,
        out_of_time: Callable[[], bool],
        watch: Watch = UNWATCHED,
    ) -> list[Profile | None]:
        self.read_versions += [version.whole for version in versions]
        noise = np.linspace(0.99, 1.01, rounds.most)
        found = [[self.ns[kind][option] for kind, option in version.whole.items()] for version in versions]
        return [Profile.of_whole(noise * ns[0]) for ns in found]


def decide_by_fake(
    request: CompileRequest, database: Database, sites: Sequence[str], *, again: bool = True
) -> list[str]:
    """Decide, and return the options that were measured."""
    made = list[Fake]()

    def model_of(name: str, compiled: Compiler) -> Fake:
        made.append(Fake(name, compiled, 0))
        return made[-1]

    assert isinstance(request.model, Graph)
    decide(
        request,
        request.model,
        database,
        sites,
        late=lambda: False,
        say=lambda text: None,
        model_of=model_of,
        again=again,
    )
    return [
        f"{kind} {option}" for fake in made for whole in fake.read_versions for kind, option in whole.items()
    ]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as opened:
        yield opened


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.target.usable_cores", lambda: 2)


@pytest.mark.usefixtures("two_cores")
def test_what_wins_is_used_by_every_compilation(database: Database, tmp_path: Path) -> None:
    request = CompileRequest(graph(), database=database)
    before = compile_in_detail(request)
    assert before.image.target.threads == 2
    assert before.coverage.decisions == ()
    assert decide_by_fake(request, database, ["threads", "layout"]) == [
        "threads 2",
        "threads 1",
        "layout NHWC",
        "layout NCHW",
    ]
    after = compile_in_detail(request)
    assert (after.image.target.threads, after.image.metadata["layout"]) == (1, "NCHW")
    first, second = map(str, after.coverage.decisions)
    assert first == "threads: 1 (2: 0.1 µs; 1: 0.1 µs, 1.25× (1.19× to 1.31×))"
    assert second.startswith("layout: NCHW (NHWC: 0.1 µs; NCHW: 0.1 µs, 1.43×")
    assert str(after.coverage).splitlines()[:2] == [first, second]
    assert (
        predict_in_detail(request).to_json() != predict_in_detail(replace(request, database=None)).to_json()
    )
    chosen, decisions = decided_request(request)
    assert chosen.one_target().threads == 1
    assert [str(each) for each in decisions] == [first, second]
    assert [answer.names for answer in query(graph(), database=database)]

    # the same of a lock, without the database
    lock_of(after).write(tmp_path / "net.lock")
    locked = compile_in_detail(CompileRequest(graph(), lock=tmp_path / "net.lock"))
    assert locked.image.same_code(after.image)
    assert locked.image.target.threads == 1
    assert [str(each) for each in locked.coverage.decisions] == [
        "threads: 1, as requested",
        "layout: NCHW, as requested",
    ]
    assert replace(lock_of(locked), schedules=()) == replace(lock_of(after), schedules=())


@pytest.mark.usefixtures("two_cores")
def test_the_request_decides_before_the_database(database: Database) -> None:
    request = CompileRequest(graph(), database=database)
    decide_by_fake(request, database, ["threads", "layout"])
    assert compile_in_detail(replace(request, threads=2)).image.target.threads == 2
    assert compile_in_detail(replace(request, target=Target.detect())).image.target.threads == 2
    given = compile_in_detail(replace(request, decisions={"threads": "2"}))
    assert given.image.target.threads == 2
    assert str(given.coverage.decisions[0]) == "threads: 2, as requested"
    # the layout was compared with one thread, and says nothing of two
    assert given.image.metadata["layout"] == "NHWC"
    small = compile_in_detail(replace(request, objective="memory"))
    assert small.image.target.threads == 2
    assert small.coverage.decisions == ()
    untuned = compile_in_detail(replace(request, decisions={}))
    assert (untuned.image.target.threads, untuned.coverage.decisions) == (2, ())
    other = compile_in_detail(replace(request, model=graph(channels=16)))
    assert other.image.target.threads == 2
    with pytest.raises(
        UsageError, match="there is no site 'thread' of a model; sites: threads, layout, order; did"
    ):
        decided(replace(request, decisions={"thread": "2"}), graph(), database)
    with pytest.raises(UsageError, match="threads '3' was decided for 'net'; its options: 2, 1"):
        decided(replace(request, decisions={"threads": "3"}), graph(), database)


@pytest.mark.usefixtures("two_cores")
def test_a_site_is_compared_once_and_again_only_if_asked(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {"2": 1.0, "1": 1.4}

    def predicted(request: CompileRequest, graph: Graph) -> float:
        return expected[(request.decisions or {})["threads"]]

    monkeypatch.setattr("autotune.tuning.compare.decide.predict_ns", predicted)
    request = CompileRequest(graph(), database=database)
    assert decide_by_fake(request, database, ["threads"], again=False) == ["threads 2", "threads 1"]
    assert decide_by_fake(request, database, ["threads"], again=False) == []
    assert decide_by_fake(request, database, ["threads"]) == ["threads 2", "threads 1"]
    assert decide_by_fake(replace(request, threads=2), database, ["threads"]) == []
    assert len(database.compared_at("threads", workload=model_row(graph()).key)) == 4


@pytest.mark.usefixtures("two_cores")
def test_what_is_expected_to_be_far_slower_is_compared_only_if_asked(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def predicted(request: CompileRequest, graph: Graph) -> float:
        return {"2": 1.0, "1": 1.6}[(request.decisions or {})["threads"]]

    monkeypatch.setattr("autotune.tuning.compare.decide.predict_ns", predicted)
    request = CompileRequest(graph(), database=database)
    assert decide_by_fake(request, database, ["threads"], again=False) == []
    assert decide_by_fake(request, database, ["threads"]) == ["threads 2", "threads 1"]


@pytest.mark.usefixtures("two_cores")
def test_orders_of_the_same_dispatches_are_expected_to_take_as_long(database: Database) -> None:
    request = CompileRequest(forked(), database=database)
    assert decide_by_fake(request, database, ["order"], again=False) == ["order concurrency", "order memory"]
    done = compile_in_detail(request)
    assert str(done.coverage.decisions[0]).startswith(
        "order: concurrency (concurrency: 0.1 µs; memory: 0.1 µs, "
    )
    assert done.partition.order == "concurrency"
    assert compile_in_detail(replace(request, order="memory")).partition.order == "memory"


@pytest.mark.usefixtures("two_cores")
def test_a_chain_has_one_order(database: Database) -> None:
    assert decide_by_fake(CompileRequest(graph(), database=database), database, ["order"]) == []


def test_a_model_stands_beside_workloads_and_is_none(database: Database) -> None:
    request = CompileRequest(graph(), database=database)
    decide_by_fake(request, database, ["layout"])
    row = model_row(graph())
    assert row == model_row(graph().replace(name="other"))
    assert [each.won for each in database.comparison(row.key, Target.detect().key, "layout")] == [False, True]
    assert database.workload_rows() == []
    assert database.find_workload(row.key[:8]) == []


@pytest.mark.usefixtures("two_cores")
def test_a_kind_is_a_file(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything else follows: comparing, storing, compiling, printing and locking."""
    kind = SiteKind(
        "algorithm",
        lambda request, graph: ("direct", "implicit GEMM"),
        lambda request, option: replace(request, algorithm=option),
        lambda request: request.algorithm is not None,
        turn=4,
    )
    monkeypatch.setattr(decision_module, "KINDS", (*KINDS, kind))
    monkeypatch.setitem(NS, "algorithm", {"direct": 100.0, "implicit GEMM": 90.0})  # type: ignore[arg-type]
    request = CompileRequest(graph(), database=database)
    assert decide_by_fake(request, database, ["algorithm"]) == ["algorithm direct", "algorithm implicit GEMM"]
    done = compile_in_detail(request)
    assert "implicit GEMM" in [option.name for option in done.plan.options.values()]
    lock = lock_of(done)
    assert lock.decisions == {"algorithm": "implicit GEMM"}
    assert compile_in_detail(CompileRequest(graph(), lock=lock)).image.same_code(done.image)


def test_a_lock_whose_decision_is_none_of_the_model_is_refused() -> None:
    lock = lock_of(compile_in_detail(CompileRequest(graph(), target=Target.parse("x86-64-v3", 1))))
    values = json.loads(lock.to_json())
    values["decisions"] = {"layout": "NCWH"}
    with pytest.raises(LockError, match="the lock does not fit: layout 'NCWH' was decided for 'net'"):
        compile_in_detail(CompileRequest(graph(), lock=Lock.from_json(json.dumps(values))))


def test_a_lock_of_version_1_decides_nothing() -> None:
    lock = lock_of(compile_in_detail(CompileRequest(graph(), target=Target.parse("x86-64-v3", 1))))
    values = json.loads(lock.to_json())
    assert [values.pop(name) for name in ("decisions", "placement", "others")] == [{}, {}, []]
    assert Lock.from_json(json.dumps({**values, "version": 1})) == lock


def test_compiled_versions_are_measured_as_wholes_in_fresh_processes() -> None:
    images = {
        layout: compile_in_detail(CompileRequest(graph(), layout=layout, threads=1)).image
        for layout in ("NHWC", "NCHW")
    }
    model = CompiledVersions("net", lambda version: images[version.whole["layout"]], seed=0)
    versions = [Version({}, {}, {"layout": layout}) for layout in images]
    found = model.read(versions, Rounds(2, 2, processes=2, turn_ns=1e6), lambda: False)
    assert [None if each is None else each.whole.shape for each in found] == [(2,), (2,)]
    assert all(each is not None and (each.whole > 0).all() for each in found)
    assert model.read(versions, Rounds(2), lambda: True) == [None, None]


@pytest.mark.usefixtures("two_cores")
def test_a_job_decides_by_its_budget(database: Database) -> None:
    request, begun = CompileRequest(graph(), database=database), time.monotonic()
    decide_by_fake(request, database, ["threads"])
    asked = AskedModel(graph(), "net", request, graph(), divide(graph()))

    def decided_by(sites: Sequence[str] | None, budget: str) -> CompileRequest:
        said = list[str]()
        found, decisions, since = decide_for(
            asked, database, sites, Budget(budget), begun, said.append, partial(CompiledVersions, seed=0)
        )
        assert said == []
        assert since >= begun
        assert [each.kind for each in decisions] == [*(found.decisions or {})]
        return found

    assert decided_by(None, "2m").decisions == {"threads": "1"}  # too short to compare anything
    assert decided_by((), "1h") is request
    assert database.compared_at("layout") == []
    with pytest.raises(UsageError, match="there is no site 'tread' of a model"):
        decided_by(["tread"], "1h")


def test_sites_are_checked_before_anything_is_measured(tmp_path: Path) -> None:
    assert checked_sites(["order", "threads"]) == ("threads", "order")
    with pytest.raises(
        UsageError, match="there is no site 'tread' of a model; sites: threads, layout, order"
    ):
        tune(graph(), budget=Budget(trials=1), database=tmp_path / "new.db", sites=["tread"], quiet=True)


@pytest.mark.usefixtures("two_cores")
def test_options_of_threads_follow_from_the_target() -> None:
    assert THREADS.options(CompileRequest(graph()), graph()) == ("2", "1")
    assert THREADS.options(CompileRequest(graph(), threads=1), graph()) == ("1",)
    assert THREADS.options(CompileRequest(graph(), target="cuda:sm_90"), graph()) == ()
