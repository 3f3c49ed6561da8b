"""Random graphs of dispatches on several devices; `python -m tests.stress` runs more of them."""

from __future__ import annotations

import itertools
import threading

import pytest

from autotune.bench.experiment import frame_of
from autotune.errors import UsageError
from autotune.runtime.hal.cpu.segment import Segment
from autotune.runtime.hal.semaphore import Timeline
from tests.codegen.opencl_device import needs_opencl
from tests.stress.__main__ import EXPERIMENT
from tests.stress.graph import Graph
from tests.stress.page import record_of
from tests.stress.run import stress


@pytest.mark.parametrize(("devices", "clients"), [(1, 1), (3, 3)])
def test_every_tile_runs_once_and_in_order(devices: int, clients: int) -> None:
    totals = stress(50_000, seed=devices, devices=devices, clients=clients, kinds=["cpu"]).totals
    assert totals.problems == []
    assert totals.tiles >= 50_000


@needs_opencl
def test_so_it_is_between_kinds_of_devices() -> None:
    outcome = stress(50_000, seed=1, devices=3, clients=3, kinds=["cpu", "opencl"])
    assert outcome.totals.problems == []
    assert outcome.totals.copies
    ran, memory = EXPERIMENT.tables(frame_of([record_of(outcome)]))
    assert ran.rows[0][0] == memory.rows[0][0] == "3 devices (cpu, opencl), 3 clients"


def test_tiles_that_run_twice_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Segment.run

    def twice(self: Segment, *arguments: object) -> None:
        run(self, *arguments)  # type: ignore[arg-type]
        run(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Segment, "run", twice)
    problems = stress(1, devices=1, clients=1, kinds=["cpu"]).totals.problems
    assert any("has wrong values" in problem for problem in problems)


def test_a_deadlock_says_who_waits_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    signal, waits = Timeline.signal, threading.Event()

    def forgets(self: Timeline, value: int) -> None:
        if self.name != "dispatch 0":
            signal(self, value)

    monkeypatch.setattr(Timeline, "signal", forgets)
    monkeypatch.setattr("tests.stress.run._CHANCES", (0.0,))

    def wait_for_the_first(self: Graph) -> None:
        self.phase = "waits for what reads dispatch 0"
        waits.set()
        next(node for node in self._nodes if 0 in node.sources).submission.wait()

    monkeypatch.setattr(Graph, "_check", wait_for_the_first)
    seconds = itertools.count()  # pass once it waits, one at each look
    monkeypatch.setattr("tests.stress.watch.monotonic", lambda: next(seconds) if waits.is_set() else 0)
    (report, *_) = stress(1, devices=1, clients=1, kinds=["cpu"], patience=0.5).totals.problems
    for part in (
        "a deadlock: nothing was over for 0.5 s",
        ": waits for what reads dispatch 0",
        "dispatch 0 to reach 1 (at 0)",
        "submissions under way: ",
        "thread client 0:",
        "wait_for_the_first",
    ):
        assert part in report
    assert "did not end" not in report


def test_kinds_that_are_not_there_are_refused() -> None:
    with pytest.raises(UsageError, match="no kind of device 'gpu'; known: cpu, opencl"):
        stress(1, kinds=["gpu"])
