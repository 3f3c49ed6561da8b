"""Is a tuning database sound: the file, its workloads, and its schedules?"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotune.database import Database, Key, Outcome, Run
from autotune.errors import AutotuneError, PackError
from autotune.suggest import counted


def problems_of(database: Database) -> list[str]:
    """Return one line a problem, none for a sound database.

    Checks the file's own consistency, that the texts of workloads parse to the key they are stored
    under, and that the traces of successful runs parse and have the key they are stored under.
    """
    from autotune.graph.program import parse_workload
    from autotune.schedule.trace import Trace

    problems = list(database.damage())
    for row in database.workload_rows(skip_damaged=True):
        try:
            key = parse_workload(row.text).key
        except AutotuneError as error:
            problems.append(f"workload {row.key[:12]} cannot be read: {str(error).splitlines()[0]}")
            continue
        if key != row.key or hashlib.sha256(row.text.encode()).hexdigest() != row.key:
            problems.append(f"workload {row.key[:12]} reads as {key[:12]}")

    def check(run: Run) -> None:
        if run.outcome is not Outcome.OK:
            return
        try:
            trace_key = Trace.from_json(run.trace_json).key
        except AutotuneError as error:
            problems.append(f"schedule of run {run.id} cannot be read: {str(error).splitlines()[0]}")
            return
        if trace_key != run.trace_key:
            problems.append(f"schedule of run {run.id} is not the one that was measured")

    database.each_record(check)
    return problems


@contextmanager
def sound_pack(path: Path, key: Path | None = None) -> Iterator[Database]:
    """Yield the contents of a pack, as a temporary database; with a public key, only if its owner signed it.

    Raises PackError for a damaged file, and for one in which :func:`problems_of` finds anything.
    """
    from autotune.database.pack import opened_pack

    with opened_pack(path, key) as database:
        problems = problems_of(database)
        if problems:
            more = f", and {counted(len(problems) - 1, 'problem')} more" if len(problems) > 1 else ""
            raise PackError(f"cannot use the pack {path}: {problems[0]}{more}")
        yield database


def stale_keys(database: Database) -> list[Key]:
    """Return the keys that no lookup of this version reaches: their space or workload has changed since.

    Those of programs of a user's own are left out: their space is known to the user's function only.
    """
    from autotune.graph.program import ProgramWorkload, parse_workload
    from search_spaces.spaces import space_for

    texts = {row.key: row.text for row in database.workload_rows()}
    targets = database.targets()
    stale = []
    for key in database.tuned_keys():
        try:
            workload = parse_workload(texts[key.workload])
            if isinstance(workload, ProgramWorkload):
                continue
            current = (workload.key, space_for(workload, targets[key.target]).key)
        except (AutotuneError, KeyError):  # also one whose workload or target is missing
            current = ("", "")
        if current != (key.workload, key.space):
            stale.append(key)
    return stale


__all__ = ["problems_of", "sound_pack", "stale_keys"]
