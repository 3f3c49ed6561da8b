"""Lanes of a job: one has the turn, the others go on while it waits, and errors arrive where the job waits."""

from __future__ import annotations

import threading

import pytest

from autotune.bench.jobs.virtual_time import VirtualTime
from autotune.tuning.fleet.lanes import JobLanes


@pytest.mark.parametrize("kind", [JobLanes, VirtualTime])
def test_one_lane_has_the_turn(kind: type[JobLanes]) -> None:
    lanes, inside, most = kind(), 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(20):
            inside += 1
            most = max(most, inside)
            inside -= 1
            with lanes.aside():
                pass

    for _ in range(8):
        lanes.start(work)
    assert lanes.running == 8
    lanes.until(lambda: not lanes.running)
    assert most == 1


def test_others_go_on_while_one_waits() -> None:
    lanes, said = JobLanes(), threading.Event()

    def waits() -> None:
        with lanes.aside():
            said.wait()

    lanes.start(waits)
    lanes.start(said.set)
    lanes.until(lambda: not lanes.running)
    assert said.is_set()


@pytest.mark.parametrize("kind", [JobLanes, VirtualTime])
def test_an_error_is_raised_where_the_job_waits(kind: type[JobLanes]) -> None:
    lanes = kind()

    def fails() -> None:
        raise ValueError("of a lane")

    lanes.start(fails)
    with pytest.raises(ValueError, match="of a lane"):
        lanes.until(lambda: False)
    lanes.close()


def test_virtual_time_is_what_is_simulated_and_what_is_computed() -> None:
    time, heard = VirtualTime(), list[float]()
    time.at(30.0, heard.append)
    time.at(20.0, heard.append)
    time.wait(lambda: len(heard) == 2)
    assert heard == [20.0, 30.0]
    assert 30.0 <= time.now() < 40.0
    before = time.computed_s
    time.work(5.0)
    with time.free():
        sum(range(10**6))
    assert 5.0 <= time.computed_s - before < 5.5
    with pytest.raises(RuntimeError, match="nothing is going to happen"):
        time.wait(lambda: False)
