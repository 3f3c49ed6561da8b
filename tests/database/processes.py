"""Work of several processes on one database at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from autotune.database import Database
from tests.database.examples import HOST, job, run

ROOT = Path(__file__).parent.parent.parent


def open_and_write(where: str, name: str) -> None:
    """Open it, and store a job."""
    with Database(where) as database:
        database.add_target(HOST)
        print(database.claim_job(job(name=f"{name} of {os.getpid()}"), lambda owner: True).id)


def only_read(where: str, name: str) -> None:
    """Open it to read, as a compilation does."""
    with Database(where, read_only=True) as database:
        print(len(database.records()))


def write(where: str, name: str) -> None:
    """Store 20 runs of its own, and 20 that all store."""
    with Database(where) as database:
        for i in range(20):
            database.record(run(f"{name}{i}", 1.0 + i))
            database.record(run(f"shared{i}", 1.0 + i))


def claim(where: str, name: str) -> None:
    """Claim the job of an owner that is dead, or start one."""
    with Database(where) as database:
        _wait()
        print(database.claim_job(job(name=name, owner=name), lambda owner: owner != "dead").id)


def _wait() -> None:
    """Until the moment that was agreed on."""
    time.sleep(max(0.0, float(os.environ["START_AT"]) - time.time()))


def start(action: str, where: str, name: str, begin: float = 0.0) -> subprocess.Popen[str]:
    """A process that begins its action, a function of this module, at the given time."""
    code = "import sys; from tests.database import processes; processes.main(*sys.argv[1:])"
    return subprocess.Popen(
        [sys.executable, "-c", code, action, where, name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "START_AT": str(begin)},
    )


def main(action: str, where: str, name: str) -> None:
    """Run the work of one process."""
    import sqlalchemy.dialects.postgresql  # noqa: F401  # imported before all begin together

    _wait()
    globals()[action](where, name)


def start_together(where: str, actions: Sequence[str]) -> list[str]:
    """Return the output of each process; all begin at once, and none may fail."""
    from tests.patience import PATIENCE_S  # the processes need no pytest

    begin = time.time() + 1.5
    started = [start(action, where, f"p{i}", begin) for i, action in enumerate(actions)]
    ended = [(process.communicate(timeout=PATIENCE_S), process.returncode) for process in started]
    assert [(error, code) for (_, error), code in ended] == [("", 0)] * len(actions)
    return [out.strip() for (out, _), _ in ended]
