"""Who gets what in a fleet, who is left out, and what is done again: on nodes that say what a test has them say."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autotune.database.inside import Estimate
from autotune.database.records import Latency, Outcome
from autotune.errors import MeasureError
from autotune.target import Target
from autotune.tuning.fleet import seat as seat_module
from autotune.tuning.fleet.fleet import Fleet, SeatWork
from autotune.tuning.fleet.measurer import FleetMeasurer
from autotune.tuning.fleet.node import NodeState
from autotune.tuning.fleet.signature import Signed, Signer, digest
from autotune.tuning.fleet.trust import AUDIT, Trust
from autotune.tuning.fleet.turns import FleetTurns
from autotune.tuning.measure.interface import Built, Candidate
from autotune.tuning.measure.outcome import Measurement
from autotune.tuning.measure.turns import Rounds
from tests.patience import PATIENCE_S
from tests.tuning.fleet.nodes import TARGET, FakeCluster, FakeNode, turns, wrong
from tests.tuning.test_sites import task

BUILT = Built(Candidate("w", TARGET.to_json(), {"k": 1}), "t", "[]", payload={"key": "c"})
ROUNDS = Rounds(4, 2, processes=2)


def never() -> bool:
    return False


@contextmanager
def fleet(cluster: FakeCluster, ready: int, said: list[str] | None = None) -> Iterator[Fleet]:
    """A fleet once so many nodes are ready."""
    say = (lambda text: None) if said is None else said.append
    with Fleet(cluster, TARGET, "test", say, patience_s=1.0) as found:
        until(lambda: len(found.ready) >= ready)
        yield found


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextmanager
def versions(found: Fleet, count: int) -> Iterator[FleetTurns]:
    with FleetTurns(0, Trust(found)) as open_turns:
        for number in range(count):
            path = open_turns.folder / f"{number}.json"
            path.write_text(str(number))
            open_turns.add_file(path)
        yield open_turns


def state(found: Fleet, name: str) -> NodeState:
    states = (node.state for node in [*found.nodes.values()] if node.name == name)
    return next(states, NodeState.STARTING)  # not seen yet


def test_no_seat_is_an_error_with_the_next_step() -> None:
    with pytest.raises(MeasureError) as error, Fleet(FakeCluster(), TARGET, "test", patience_s=1.0):
        pass
    assert str(error.value) == (
        "the fleet has no seat for x86-64-v3, 1 thread: no node of the cluster has the resource autotune_seat\n"
        "  `ray start --address=HEAD:PORT --resources='{\"autotune_seat\": 1}'` adds a seat (docs/fleet.md)"
    )


def test_nodes_of_another_target_get_nothing() -> None:
    other = FakeNode(target=Target.parse("x86-64-v2", 1))
    cluster = FakeCluster(one=FakeNode(), other=other)
    with fleet(cluster, 1) as found:
        until(lambda: state(found, "other") is NodeState.OUT)
        for work in [found.submit(SeatWork({"do": "measure"})) for _ in range(9)]:
            assert found.result(work).node == "one"
    assert other.heard == []
    with pytest.raises(MeasureError, match=r"other: it is another target \(<Target x86_64 x86-64-v2"):
        Fleet(FakeCluster(other=other), TARGET, "test", patience_s=1.0).__enter__()


def test_a_node_that_counts_as_a_level_measures_for_it() -> None:
    level = FakeNode(target=replace(TARGET, device="some processor", cores=8, l2_bytes=1 << 20))
    with fleet(FakeCluster(level=level), 1) as found:
        assert found.result(found.submit(SeatWork({"do": "measure"}))).node == "level"


def test_another_version_is_an_error_that_names_the_node() -> None:
    old = FakeCluster(old=FakeNode(version="0.0.1"))
    with pytest.raises(
        MeasureError, match=r"old: it has version 0\.0\.1, and this process .*: install the same"
    ):
        Fleet(old, TARGET, "test", patience_s=1.0).__enter__()


def test_what_a_lost_node_had_goes_elsewhere_and_is_answered_once() -> None:
    cluster = FakeCluster(good=FakeNode(), bad=FakeNode(lost_after=2))
    with fleet(cluster, 2) as found:
        works = [found.submit(SeatWork({"do": "measure", "number": n})) for n in range(40)]
        assert all(found.result(work).answer["outcome"] == "ok" for work in works)
    heard = [message["number"] for node in cluster.nodes.values() for message in node.heard]
    assert sorted(heard) == [*range(40)]


def test_a_node_that_joins_works() -> None:
    cluster = FakeCluster(one=FakeNode())
    with fleet(cluster, 1) as found:
        cluster.nodes["two"] = FakeNode()
        until(lambda: len(found.ready) == 2)
        first = found.result(found.submit(SeatWork({"do": "measure"}))).node
        again = SeatWork({"do": "measure"}, used=[first], elsewhere=True)
        assert found.result(found.submit(again)).node != first


def test_a_job_without_seats_ends_with_an_error() -> None:
    with (
        fleet(FakeCluster(only=FakeNode(lost_after=0)), 1) as found,
        pytest.raises(MeasureError, match=r"4 seats were lost|no seat any more"),
    ):
        found.result(found.submit(SeatWork({"do": "measure"})))


def test_a_failure_counts_where_a_second_node_has_it() -> None:
    cluster = FakeCluster(one=FakeNode(), two=FakeNode(), wrong=FakeNode(wrong))
    with fleet(cluster, 3) as found:
        measurer = FleetMeasurer(Trust(found), 0)
        until(
            lambda: (
                measurer.measure(BUILT, 1.0).outcome is Outcome.OK and state(found, "wrong") is NodeState.OUT
            )
        )
        reason = next(node.reason for node in found.nodes.values() if node.name == "wrong")
        assert reason == "it says wrong_result where its peers say ok (relative error 1)"
        measurer.close()
    with fleet(FakeCluster(one=FakeNode(wrong), two=FakeNode(wrong)), 2) as found:
        measurer = FleetMeasurer(Trust(found), 0)
        assert measurer.measure(BUILT, 1.0).outcome is Outcome.WRONG_RESULT
        assert len(found.ready) == 2
        measurer.close()


def test_two_nodes_measure_and_a_liar_is_left_out() -> None:
    honest, liar = turns(0.9, 1.1), turns(0.9, 0.6)
    cluster = FakeCluster(one=FakeNode(honest), two=FakeNode(honest), liar=FakeNode(liar))
    with fleet(cluster, 3) as found, versions(found, 3) as interleaved:
        for _ in range(50):
            first, second, third = interleaved.readings("profile", ROUNDS, never)
            assert first is not None
            assert second is not None
            assert third is not None
            assert np.median(third / first) == pytest.approx(1.1)
            if state(found, "liar") is NodeState.OUT:
                break
        node = next(node for node in found.nodes.values() if node.name == "liar")
        assert node.set_aside == 2
        assert node.reason == "its ratios contradict those of its peers: 1.67× where others have 0.91×"


def test_what_takes_one_process_is_of_one_node_and_every_so_often_of_a_second() -> None:
    cluster, hosts = FakeCluster(one=FakeNode(turns(1.1)), two=FakeNode(turns(1.1))), list[str]()
    with fleet(cluster, 2) as found, versions(found, 2) as interleaved:
        for _ in range(3 * AUDIT):
            until(lambda: found.idle == 2)
            measured = interleaved.readings("profile", Rounds(3, processes=1), never)
            assert all(ns is not None for ns in measured)
            hosts.append(interleaved.host)
    assert {*hosts} <= {"", "one", "two"}
    assert 1 <= hosts.count("") <= 3
    assert sum(len(node.heard) for node in cluster.nodes.values()) == len(hosts) + hosts.count("")


def test_what_a_distrusted_node_has_measured_alone_is_no_longer_known() -> None:
    known = task("plain", 1, 5.0)
    hosts = {"default": "liar", "alone": "liar", "inside": "liar", "other": "honest"}
    known.known = {
        trace: Measurement(Outcome.OK, Latency(3, 100.0, 100.0, 0.0), host=host)
        for trace, host in hosts.items()
    }
    known.default_trace, known.inside["inside"] = "default", Estimate()
    known.distrust("liar", "it lies")
    assert {trace for trace, found in known.known.items() if found.latency} == {*hosts} - {"alone"}
    assert known.known["alone"].outcome is Outcome.DISTRUSTED


def test_of_two_that_contradict_each_other_nothing_is_used() -> None:
    said = list[str]()
    cluster = FakeCluster(one=FakeNode(turns(0.9)), two=FakeNode(turns(0.5)))
    with fleet(cluster, 2, said) as found, versions(found, 2) as interleaved:
        assert interleaved.readings("profile", ROUNDS, never) == [None, None]
        assert len(found.ready) == 2
    assert "contradict each other: set aside, as only a third seat can tell who is right" in said[-1]


def test_a_node_on_which_the_same_code_differs_is_left_out() -> None:
    def noisy(message: dict[str, object]) -> dict[str, object]:
        answer = turns(1.0)(message)
        answer["ns"][-1] = [[160.0]] * len(answer["ns"][0])
        return answer

    cluster = FakeCluster(one=FakeNode(turns(1.0)), two=FakeNode(turns(1.0)), noisy=FakeNode(noisy))
    with fleet(cluster, 3) as found, versions(found, 2) as interleaved:
        until(
            lambda: (
                interleaved.readings("profile", ROUNDS, never)[0] is not None
                and state(found, "noisy") is NodeState.OUT
            )
        )
        reason = next(node.reason for node in found.nodes.values() if node.name == "noisy")
        assert reason == "the same code differs from itself by 60% on it (A/A), and by 0% on its peers"


def test_a_seat_runs_only_what_its_job_has_signed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(seat_module, "ProcessPool", lambda builders, limits: FleetMeasurer)
    mine, sent = Signer(b"mine"), {"do": "turns", "files": {"0.json": digest(b"good")}}
    seat = seat_module.SeatServer(b"mine", "test")
    other = Signer(b"other").sign(sent)
    with pytest.raises(MeasureError, match="not signed by the job"):
        seat.answer(other, {}, lambda handle: b"")
    signed = mine.sign(sent)
    with pytest.raises(MeasureError, match="not signed by the job"):
        seat.answer(replace(signed, text=signed.text.replace("0.json", "1.json")), {}, lambda handle: b"")
    with pytest.raises(MeasureError, match=r"0\.json is not what the job has sent"):
        seat.answer(signed, {digest(b"good"): None}, lambda handle: b"bad")
    assert mine.opened(Signed(signed.text, signed.mac)) == sent
