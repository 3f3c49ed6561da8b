"""Work of several processes on one database at the same time."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from multiprocessing.synchronize import Barrier
from typing import Any

from autotune.database.store import Database
from tests.database.examples import HOST, job, run
from tests.patience import PATIENCE_S

FORKS = multiprocessing.get_context("forkserver")
"""Processes that have imported what they need before they begin."""
FORKS.set_forkserver_preload([__name__, "sqlalchemy.dialects.postgresql"])


def open_and_write(where: str, name: str, together: Barrier) -> str:
    """Open it, and store a job."""
    together.wait(PATIENCE_S)
    with Database(where) as database:
        database.add_target(HOST)
        return database.claim_job(job(name=f"{name} of {os.getpid()}"), lambda owner: True).id


def only_read(where: str, name: str, together: Barrier) -> int:
    """Open it to read, as a compilation does."""
    together.wait(PATIENCE_S)
    with Database(where, read_only=True) as database:
        return len(database.records())


def write(where: str, name: str, together: Barrier) -> None:
    """Store 20 runs of its own, and 20 that all store."""
    together.wait(PATIENCE_S)
    with Database(where) as database:
        for i in range(20):
            database.record(run(f"{name}{i}", 1.0 + i))
            database.record(run(f"shared{i}", 1.0 + i))


def claim(where: str, name: str, together: Barrier) -> str:
    """Claim the job of an owner that is dead, or start one."""
    with Database(where) as database:
        together.wait(PATIENCE_S)
        return database.claim_job(job(name=name, owner=name), lambda owner: owner != "dead").id


def _work(action: str, where: str, name: str, together: Barrier, told: Any) -> None:
    told.send(globals()[action](where, name, together))


def start_together(where: str, actions: Sequence[str]) -> list[Any]:
    """Return what the functions of these names return, each in a process; all begin at once, and none may fail."""
    together, ends = FORKS.Barrier(len(actions)), [FORKS.Pipe(duplex=False) for _ in actions]
    started = [
        FORKS.Process(target=_work, args=(action, where, f"p{i}", together, told))
        for i, (action, (_, told)) in enumerate(zip(actions, ends, strict=True))
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(PATIENCE_S)
    assert [process.exitcode for process in started] == [0] * len(actions)
    return [heard.recv() for heard, _ in ends]
