"""Many random programs in one command, with counts of what ran.

::

    python -m tests.schedule.fuzz 20000 -n 2 --record fuzz.jsonl

Blocks of programs run in processes of their own, so that a crash of machine code is a finding like any other. Each
finished block appends a line to the record; called again with the same record, the command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.errors import LoweringError
from autotune.lower import lower_schedule, program_text, verify
from autotune.lower.verify_isl import Verified
from autotune.schedule import PRIMITIVES
from tests.codegen.opencl_device import installed
from tests.schedule import blocks
from tests.schedule.blocks import counts
from tests.schedule.three_ways import Case, check, describe, minimised, random_case

BLOCK = 50
FIRST = 1_000_000
THREADS_EVERY = 8
"""One program in so many has its loops bound to the threads of a GPU."""
REFERENCE_EVERY = 5
"""One program in so many runs in the shipped interpreter too, which is slow."""

NUMBA_EVERY = 25
"""One program in so many is compiled by numba too, which takes most of a second."""
DEVICE_EVERY = 16
"""One program in so many runs on an OpenCL device too, where there is one."""


@dataclass
class Tally:
    """Counts of what ran, and the failures."""

    programs: int = 0
    refused: int = 0
    dropped: int = 0
    primitives: Counter[str] = field(default_factory=Counter)
    language: Counter[str] = field(default_factory=Counter)
    proofs: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add the counts of another run."""
        self.programs += other.programs
        self.refused += other.refused
        self.dropped += other.dropped
        self.primitives += other.primitives
        self.language += other.language
        self.proofs += other.proofs
        self.findings += other.findings

    def text(self) -> str:
        """The report."""
        missing = sorted(set(PRIMITIVES) - set(self.primitives))
        lines = [
            f"{self.programs} programs, {sum(self.primitives.values())} steps; "
            f"{self.refused} further steps were refused, {self.dropped} did not lower",
            f"{len(self.primitives)} primitives: {counts(self.primitives)}",
            f"never applied: {', '.join(missing) or 'none'}",
            f"language: {counts(self.language)}",
            f"proofs by isl: {sum(self.proofs.values())}: {counts(self.proofs)}",
            f"findings: {len(self.findings)}",
        ]
        return "\n".join([*lines, *self.findings])


def run_block(first: int, count: int, *, prove_every: int) -> Tally:
    """Check seeds first..first+count; a failure becomes a finding in its smallest form."""
    tally = Tally()
    for seed in range(first, first + count):
        case = random_case(seed, threads=seed % THREADS_EVERY == 0)
        tally.programs += 1
        tally.refused += case.refused
        tally.dropped += case.dropped
        tally.primitives.update(step.primitive for step in case.trace.steps)
        tally.language.update(set(re.findall(r"\bte\.(\w+)\(", case.program.source)))
        try:
            on_device = installed() and seed % DEVICE_EVERY in (0, 1)  # threads, and none
            options = {"with_device": on_device, "with_numba": seed % NUMBA_EVERY == 0}
            check(case, seed, with_reference=seed % REFERENCE_EVERY == 0, **options)
        except Exception as error:  # noqa: BLE001  # whatever went wrong is reported with its program
            small = minimised(case, error)
            tally.findings.append(f"seed {seed}: {type(error).__name__}: {error}\n\n{describe(small)}")
            continue
        if seed % prove_every == 0 and importlib.util.find_spec("islpy") is not None:
            _prove(case, seed, tally)
    return tally


def _prove(case: Case, seed: int, tally: Tally) -> None:
    schedule, args = case.schedule()
    options: dict[str, Any] = {"constants": case.constants, "strides": dict(case.strides)}
    try:
        verdict: Verified = verify(schedule, args, **options)
        marked = lower_schedule(schedule, args, **options, with_origins=True)
        if program_text(marked) != program_text(case.lowered()):
            raise LoweringError("other loops are proved than those that run")
    except LoweringError as error:
        tally.proofs["wrong"] += 1
        tally.findings.append(f"seed {seed}: {error}\n\n{describe(case)}")
        return
    tally.proofs[verdict.status] += 1


def work(record: str, first: int, count: int, prove_every: int) -> None:
    """Run a block, and add it to a record: what a process of a campaign does."""
    blocks.append(Path(record), first, run_block(first, count, prove_every=prove_every))


def campaign(programs: int, workers: int, record: Path, *, prove_every: int, first: int = FIRST) -> Tally:
    """Run the blocks that the record lacks; returns the counts of all."""
    result = Tally()
    for tally in blocks.run("fuzz", Tally, first, programs, BLOCK, workers, record, prove_every):
        result.add(tally)
    return result


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("programs", type=int)
    parser.add_argument("-n", "--workers", type=int, default=1, help="processes at a time")
    parser.add_argument("--record", type=Path, help="file to go on from")
    parser.add_argument("--first", type=int, default=FIRST, help="first seed")
    parser.add_argument("--prove-every", type=int, default=5, help="prove one program in so many by isl")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        record = options.record or Path(folder) / "fuzz.jsonl"
        tally = campaign(
            options.programs, options.workers, record, prove_every=options.prove_every, first=options.first
        )
    print(tally.text())
    raise SystemExit(1 if tally.findings else 0)


if __name__ == "__main__":
    main()
