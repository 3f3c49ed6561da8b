"""Checks of many seeds in processes that live on: what the fuzzers of the tests share.

A module that is run so has a ``WORK``. A process that dies or hangs is the answer to the seed that it had, and
another takes its place. Each answer appends a line to the record; a campaign that is called again with the same record
checks the seeds that it lacks.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from autotune.workers.pool import WorkerPool
from autotune.workers.process import Died, WorkerProcess, python_module
from autotune.workers.serve import Handler, serve

ROOT = Path(__file__).parent.parent
FIRST = 1_000_000
"""The first seed of a campaign; those below are the tests'."""
RENEWED = 250
"""A process checks so many seeds before another takes its place: whatever piles up in it ends there."""
ENVIRONMENT = {
    "AUTOTUNE_BUILDERS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
}
"""Of processes that share the cores already."""

Line = dict[str, Any]


@dataclass(frozen=True)
class Work:
    """Run the processes of a campaign.

    ``check`` answers a seed. An answer with "then" is the name of a further step of ``steps`` for the seed, and none of
    the record's. ``ended`` is the line of a seed whose process died at a step, ``seconds`` how long a step may take and
    ``memory`` the bytes of addresses that a process may have.
    """

    check: Callable[[int], Line]
    steps: Mapping[str, Callable[[int], Line]]
    ended: Callable[[str, Died], Line]
    seconds: float
    memory: int | None = None


def run(module: str, seeds: Iterable[int], workers: int, record: Path) -> dict[int, Line]:
    """Check the seeds that the record lacks; returns the lines of all."""
    wanted = list(seeds)
    known = read_record(record)
    missing = [seed for seed in wanted if seed not in known]
    work: Work = importlib.import_module(module).WORK
    served = Counter[WorkerProcess]()
    started = said = time.monotonic()
    with WorkerPool() as pool, record.open("a", encoding="utf-8") as file:
        for _ in range(min(workers, len(missing))):
            command = (*python_module("tests.campaign"), module)
            pool.add("seed", WorkerProcess(command, ENVIRONMENT, name="process of the campaign"))
        futures = [pool.submit("seed", partial(_line, work=work, seed=s, served=served)) for s in missing]
        file.write("\n")  # after a line that was cut short
        for count, future in enumerate(as_completed(futures), 1):
            file.write(json.dumps(future.result()) + "\n")
            file.flush()
            if time.monotonic() - said > 60:
                said = time.monotonic()
                print(f"{count} of {len(missing)} after {said - started:.0f} s", flush=True)
    found = read_record(record)
    return {seed: found[seed] for seed in wanted}


def _line(worker: WorkerProcess, work: Work, seed: int, served: Counter[WorkerProcess]) -> Line:
    """The line of a seed, by a process; one that has checked many is ended first."""
    if served[worker] == RENEWED:
        worker.kill()
        served[worker] = 0
    served[worker] += 1
    step = "check"
    try:
        while True:
            answer = worker.call({"do": step, "seed": seed}, work.seconds, step)
            if "then" not in answer:
                return {"seed": seed, **answer}
            step = answer["then"]
    except Died as death:
        return {"seed": seed, **work.ended(step, death)}


def read_record(record: Path) -> dict[int, Line]:
    """The lines by their seeds; one cut short by an interruption does not count."""
    found = {}
    for text in record.read_text(encoding="utf-8").splitlines() if record.exists() else ():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        found[int(line["seed"])] = line
    return found


def arguments(what: str, text: str | None) -> argparse.ArgumentParser:
    """The command line of a fuzzer of ``what``."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(what, type=int)
    parser.add_argument("-n", "--workers", type=int, default=1, help="processes at a time")
    parser.add_argument("--record", type=Path, help="file to go on from")
    parser.add_argument("--first", type=int, default=FIRST, help="first seed")
    return parser


@contextmanager
def record_of(options: argparse.Namespace) -> Iterator[Path]:
    """The record that is asked for, else one that is forgotten."""
    with tempfile.TemporaryDirectory() as folder:
        yield options.record or Path(folder) / "record.jsonl"


def main(module: str) -> None:
    """A process of a campaign: answer seeds until standard input ends."""
    work: Work = importlib.import_module(module).WORK
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")

    def handler(step: Callable[[int], Line]) -> Handler:
        return lambda request: step(request["seed"])

    serve({name: handler(step) for name, step in {"check": work.check, **work.steps}.items()}, work.memory)


if __name__ == "__main__":
    main(sys.argv[1])
