"""A database of jobs that ended in every way, or go on."""

from __future__ import annotations

import json
import time
from dataclasses import replace

from autotune.database import Database, JobRow
from autotune.tuning.jobs.owner import SILENT_S, Owner, owner
from tests.database.examples import job, prepare, run

GAIN = {"ratio": 0.8, "interval": [0.78, 0.82], "text": "", "speedup": 1.25}
SAID = {"phase": "search", "note": "next: a", "models": [{"model": "m", "confirmed": None}]}


def add(database: Database, name: str, who: str, *, silent_s: float = 0.0, **changes: object) -> None:
    """Add a job that is new, or was not heard of for some seconds."""
    now = time.time()
    fresh = replace(job(name=name, fingerprint=name, owner=who), created=now, updated=now - silent_s)
    changed = {"status": json.dumps(SAID), **changes}
    database.claim_job(replace(fresh, **changed), lambda _: True)  # type: ignore[arg-type]


def fill(where: str) -> None:
    """Make a database of jobs in every state."""
    gone = str(replace(Owner.here(), started="0.00"))
    with Database(where) as database:
        prepare(database)
        done = json.dumps(SAID | {"gains": {"m": GAIN}})
        add(database, "finished1234", gone, state=JobRow.DONE, elapsed_s=75.0, status=done)
        add(database, "stopped", gone, state=JobRow.STOPPED, status=json.dumps({"ended": "by SIGHUP"}))
        add(database, "killed", gone)
        add(database, "foreign", "elsewhere:7:1.00")
        add(database, "lost", "elsewhere:8:1.00", silent_s=2 * SILENT_S)
        add(database, "hung", owner(), silent_s=2 * SILENT_S, model="a model with quite a long name.onnx")
        database.record(run("a", 1.0, job="finished1234"))
        database.record(run("b", None, job="finished1234"))


STATES = {
    "finished1234": "done",
    "stopped": "stopped",
    "killed": "killed",
    "foreign": "running",
    "lost": "lost",
    "hung": "hung",
}

__all__ = ["GAIN", "SAID", "STATES", "add", "fill"]
