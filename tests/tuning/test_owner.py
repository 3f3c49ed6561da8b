"""States of jobs as they are now, whatever their rows were left at."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import psutil
import pytest

from autotune.database import JobRow
from autotune.tuning.jobs.owner import SILENT_S, Life, Owner, alive, owner, states_of
from tests.database.examples import job
from tests.patience import PATIENCE_S

NOW = 1e9


def row(who: str, name: str = "j1", *, silent_s: float = 0.0, **said: object) -> JobRow:
    return replace(job(owner=who, name=name), updated=NOW - silent_s, status=json.dumps(said))


def life(found: JobRow) -> Life:
    return states_of([found], NOW)[0].life


@pytest.fixture
def child() -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A process that waits, and its name as an owner."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = psutil.Process(process.pid).create_time()
        try:
            yield process, str(replace(Owner.here(), pid=str(process.pid), started=f"{started:.2f}"))
        finally:
            process.kill()


def test_an_owner_is_alive_until_it_is_not() -> None:
    here = Owner.here()
    assert alive(owner())
    assert not alive(str(replace(here, started="0.00")))  # another process got the id
    assert not alive(str(replace(here, pid="4194305", started="0.00")))
    assert alive("another-host:1:0.00")
    assert not alive(f"{here.host}:what:ever")


@pytest.mark.parametrize("end", [JobRow.DONE, JobRow.STOPPED])
def test_a_job_that_ended_is_over(end: str) -> None:
    state = states_of([replace(row("gone", ended="by SIGHUP"), state=end)], NOW)[0]
    assert (state.life, state.life.over) == (Life(end), True)
    assert state.explained == ("" if end == JobRow.DONE else "ended by SIGHUP; its command continues it")


def test_a_job_whose_process_is_gone_was_killed(child: tuple[subprocess.Popen[bytes], str]) -> None:
    process, who = child
    assert life(row(who)) is Life.RUNNING
    process.kill()
    psutil.wait_procs([psutil.Process(process.pid)], timeout=PATIENCE_S)
    state = states_of([row(who, silent_s=7500)], NOW)[0]
    assert state.life is Life.KILLED
    assert state.explained == (
        f"process {process.pid} is gone, heard of 2 h 05 min ago; its command continues it"
    )


def test_a_job_that_is_suspended_says_how_it_goes_on(child: tuple[subprocess.Popen[bytes], str]) -> None:
    process, who = child
    process.send_signal(signal.SIGSTOP)
    while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
        pass
    state = states_of([row(who, silent_s=2 * SILENT_S)], NOW)[0]
    assert state.life is Life.SUSPENDED
    assert f"kill -CONT {process.pid}" in state.explained


def test_a_silent_job_hangs_unless_it_waits_for_another() -> None:
    late = 2 * SILENT_S
    assert life(row(owner(), silent_s=SILENT_S - 1)) is Life.RUNNING
    assert life(row(owner(), silent_s=late)) is Life.HUNG
    assert life(row(owner(), silent_s=late, waiting=True)) is Life.WAITING


def test_a_job_of_another_host_counts_by_its_heartbeat() -> None:
    assert life(row("elsewhere:12:3.00")) is Life.RUNNING
    assert life(row("elsewhere:12:3.00", silent_s=-50.0)) is Life.RUNNING  # its clock is ahead
    state = states_of([row("elsewhere:12:3.00", silent_s=2 * SILENT_S, waiting=True)], NOW)[0]
    assert state.life is Life.LOST
    assert state.explained == "not heard of for 10 min; look for process 12 on elsewhere"


def test_a_process_is_heard_of_in_any_of_its_jobs() -> None:
    whole, part = row(owner(), silent_s=9999), row(owner(), "j2")
    assert [state.life for state in states_of([whole, part], NOW)] == [Life.RUNNING] * 2
    assert [state.life for state in states_of([whole], NOW)] == [Life.HUNG]
    assert [state.life for state in states_of([whole], NOW, {part.owner: part.updated})] == [Life.RUNNING]


@pytest.mark.parametrize("status", ["", "no JSON", "[]"])
def test_what_a_job_said_may_be_missing(status: str) -> None:
    state = states_of([replace(row(owner()), status=status)], NOW)[0]
    assert (state.life, dict(state.said)) == (Life.RUNNING, {})
