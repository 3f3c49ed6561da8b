"""Writers and readers of one database, and kill -9 of writers: what they were told is stored is stored, once.

Two minutes of it, with a file or the URL of an empty database::

    python -c "from tests.database import crowd; crowd.main()" tuning.db 120
"""

from __future__ import annotations

import itertools
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.database.store import Database
from tests.database.examples import prepare, run
from tests.database.processes import FORKS

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess

WRITERS, READERS = 8, 4
_KILLS = 3
"""So many at least, however late this process is."""
SHARED = "shared"
"""The first part of the names of all writers' runs."""


@dataclass(frozen=True)
class Outcome:
    """``said``: runs that a writer was told are stored; ``stored``: those that are; ``kills`` of writers; ``reads``."""

    said: Counter[str]
    stored: Counter[str]
    kills: int
    reads: int
    damage: list[str]

    def check(self) -> None:
        """Raise AssertionError unless the counts are exact."""
        assert not self.damage, self.damage
        assert set(self.stored.values()) <= {1}, "a run is there twice"
        assert not self.said.keys() - self.stored.keys(), "a run is lost that was said to be stored"
        own = {name for name in self.stored if not name.startswith(SHARED)}
        unsaid = len(own - self.said.keys())
        assert unsaid <= self.kills, (
            f"{unsaid} runs are there that nobody was told of, after {self.kills} kills"
        )

    def __str__(self) -> str:
        return (
            f"{len(self.stored)} runs stored, {len(self.said)} said, {self.kills} kills, {self.reads} reads"
        )


def write(where: str, name: str, said: Path) -> None:
    """Store run after run, one in four of those that all store, and say so after each."""
    with Database(where) as database, open(said, "w", encoding="utf-8") as file:
        for number in range(10**9):
            trace = f"{SHARED}-{number}" if number % 4 == 0 else f"{name}-{number}"
            database.record(run(trace, 1.0 + number))
            print(trace, file=file, flush=True)


def read(where: str, end: Path, count: Path) -> None:
    """Count the runs again and again: there are never fewer than before."""
    reads = last = 0
    with Database(where, read_only=True) as database:
        while not end.exists():
            found = sum(database.outcomes().values())
            assert found >= last, f"there were {last} runs, and now there are {found}"
            last, reads = found, reads + 1
            count.write_text(str(reads), encoding="utf-8")
            time.sleep(0.01)


def crowd(where: str, seconds: float, seed: int = 0) -> Outcome:
    """Let them work on an empty database for so long, and kill a writer about twice a second."""
    with Database(where) as database:
        prepare(database)
    rng, kills = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as name:
        folder, numbers = Path(name), itertools.count()

        def start_writer() -> ForkServerProcess:
            number = next(numbers)
            arguments = where, f"writer{number}", folder / f"said{number}"
            process = FORKS.Process(target=write, args=arguments, daemon=True)
            process.start()
            return process

        end = folder / "end"
        readers = [
            FORKS.Process(target=read, args=(where, end, folder / f"reads{i}")) for i in range(READERS)
        ]
        for process in readers:
            process.start()
        writers = [start_writer() for _ in range(WRITERS)]
        while sum(path.stat().st_size > 40 for path in folder.glob("said*")) < WRITERS:  # of several runs
            time.sleep(0.05)
        while len([*folder.glob("reads*")]) < READERS:
            time.sleep(0.05)
        until = time.time() + seconds
        while kills < _KILLS or time.time() < until:
            time.sleep(rng.uniform(0.2, 0.6))
            victim = rng.randrange(WRITERS)
            writers[victim].kill()
            writers[victim].join()
            kills, writers[victim] = kills + 1, start_writer()
        for process in writers:
            process.kill()
            process.join()
            kills += 1
        end.touch()
        for process in readers:
            process.join()
        assert [process.exitcode for process in readers] == [0] * READERS
        lines = [
            line
            for path in folder.glob("said*")
            for line in path.read_text(encoding="utf-8").splitlines(True)
        ]
        said = Counter(line.strip() for line in lines if line.endswith("\n"))
        reads = sum(int(path.read_text(encoding="utf-8")) for path in folder.glob("reads*"))
    with Database(where) as database:
        stored = Counter(found.trace_key for found in database.records())
        return Outcome(said, stored, kills, reads, database.damage())


def main() -> None:
    """Run the command."""
    outcome = crowd(sys.argv[1], float(sys.argv[2]))
    print(outcome)
    outcome.check()
