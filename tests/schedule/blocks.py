"""Campaigns of many seeds: blocks of them in processes of their own, each a line of a record that is gone on from."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).parent.parent.parent

T = TypeVar("T")


def counts(counter: Counter[str]) -> str:
    """The counts as text, the largest first."""
    return ", ".join(f"{name} {count}" for name, count in counter.most_common()) or "none"


def read(record: Path, kind: Callable[..., T]) -> dict[int, T]:
    """The blocks of a record by their first seed; a line cut short by an interruption does not count."""
    found = {}
    for line in record.read_text(encoding="utf-8").splitlines() if record.exists() else ():
        try:
            data = json.loads(line)
        except json.JSONDecodeError:
            continue
        fields = {k: Counter(v) if isinstance(v, dict) else v for k, v in data["tally"].items()}
        found[int(data["first"])] = kind(**fields)
    return found


def append(record: Path, first: int, tally: Any) -> None:
    """Add a finished block to a record."""
    with record.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"first": first, "tally": vars(tally)}) + "\n")


def run(
    module: str,
    kind: Callable[..., T],
    first: int,
    count: int,
    block: int,
    workers: int,
    record: Path,
    *options: Any,
) -> list[T]:
    """Run the blocks of seeds that the record lacks by ``work`` of a module here; returns the tallies of all, in order.

    ``kind`` makes a tally of its fields; a process that crashes is one of its ``findings``.
    """
    ahead = [(start, min(block, first + count - start)) for start in range(first, first + count, block)]
    done = read(record, kind)
    waiting = iter([each for each in ahead if each[0] not in done])
    running: dict[int, subprocess.Popen[bytes]] = {}
    started = time.monotonic()
    while _fill(running, waiting, workers, module, record, options):
        time.sleep(0.05)
        for start in [s for s, process in running.items() if process.poll() is not None]:
            code = running.pop(start).returncode
            if code:
                append(record, start, kind(findings=[f"seeds {start}..: the process ended with {code}"]))
            finished = sum(1 for s, _ in ahead if s in read(record, kind))
            if finished % 20 == 0:
                print(
                    f"{finished} of {len(ahead)} blocks after {time.monotonic() - started:.0f} s", flush=True
                )
    done = read(record, kind)
    return [done[start] for start, _ in ahead]


def _fill(
    running: dict[int, subprocess.Popen[bytes]],
    waiting: Iterator[tuple[int, int]],
    workers: int,
    module: str,
    record: Path,
    options: tuple[Any, ...],
) -> bool:
    """Start processes until ``workers`` run; False when none runs any more."""
    while len(running) < workers:
        block = next(waiting, None)
        if block is None:
            break
        # No forks of this process: threads of an OpenCL driver that it has used would be missing there.
        arguments = ", ".join(map(repr, (str(record), *block, *options)))
        what = f"from tests.schedule import {module}; {module}.work({arguments})"
        running[block[0]] = subprocess.Popen([sys.executable, "-c", what], cwd=ROOT)
    return bool(running)


__all__ = ["ROOT", "append", "counts", "read", "run"]
