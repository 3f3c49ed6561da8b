"""Wrong programs that the isl proof must not call proven: random programs under random schedules, lowered and mutated.

::

    python -m tests.schedule.mutants 2000 --first 9000000 -n 1 --record mutants.jsonl

The interpreter is the judge: a mutant is wrong if an access is out of bounds, a value is read that nothing stored, or a
result differs, with the iterations of parallel and vectorized loops in either order, for several inputs, and with
outputs in the memory of the inputs that its code would allow. Every other program has short partial sums. A proof of a
wrong mutant is a finding, and so is an alarm about a program that was not mutated.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

import numpy as np

from autotune import te
from autotune.errors import AutotuneError, LoweringError
from autotune.lower import lower_schedule, partial_sums, program_text
from autotune.lower.ir import Buffer, For, LoopProgram, Stmt
from autotune.lower.overwriting import overwriting
from autotune.lower.rewrite import with_parts
from autotune.lower.verify_isl import load_isl, prove
from tests.schedule import blocks, loop_interpreter
from tests.schedule.mutations import Mutant, random_mutant
from tests.schedule.three_ways import Case, all_outputs, random_case

BLOCK = 20
FIRST = 9_000_000
MUTANTS = 24
"""Mutations that are tried on one program; about half of them have something to change."""
SHORT = 4
"""Steps of a partial sum in every other program: those of random programs seldom have more than in one."""


@dataclass
class Tally:
    """Programs and mutants, and what became of them."""

    programs: Counter[str] = field(default_factory=Counter)
    mutants: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    """Verdicts about wrong mutants."""
    kinds: Counter[str] = field(default_factory=Counter)
    """Mutations that made a program wrong."""
    findings: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add the counts of another run."""
        self.programs += other.programs
        self.mutants += other.mutants
        self.wrong += other.wrong
        self.kinds += other.kinds
        self.findings += other.findings

    def text(self) -> str:
        """The report."""
        lines = [
            f"{self.programs.total()} programs: {blocks.counts(self.programs)}",
            f"{self.mutants.total()} mutants: {blocks.counts(self.mutants)}",
            f"verdicts about the {self.wrong.total()} wrong ones: {blocks.counts(self.wrong)}",
            f"made wrong by: {blocks.counts(self.kinds)}",
            f"findings: {len(self.findings)}",
        ]
        return "\n".join([*lines, *self.findings])


class Judge:
    """Runs mutants of one program."""

    def __init__(self, case: Case) -> None:
        inputs, outputs = case.program.tensors()
        outputs = all_outputs(outputs)
        self.tolerance = case.program.tolerance
        self.draws: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for seed in range(3):
            arrays = case.program.arrays(seed)
            values = te.evaluate(outputs, dict(zip(inputs, arrays, strict=True)))
            named = {p.name: a for p, a in zip(inputs, arrays, strict=True)}
            self.draws.append((named, {t.name: v for t, v in zip(outputs, values, strict=True)}))

    def fault(self, program: LoopProgram) -> str:
        """Return what is wrong with a program; empty where nothing was found."""
        pairs = overwriting(program)
        for number, (inputs, wanted) in enumerate(self.draws):
            order = _in_order(program) if number == 1 else program
            fault = self._difference(order, inputs, wanted, ())
            if fault:
                return fault
        for pair in pairs:
            if pair[0].strides == pair[1].strides:
                fault = self._difference(program, *self.draws[0], (pair,))
                if fault:
                    return f"{pair[0].name} in the memory of {pair[1].name}: {fault}"
        return ""

    def _difference(
        self, program: LoopProgram, inputs: Any, wanted: Any, in_place: tuple[tuple[Buffer, Buffer], ...]
    ) -> str:
        try:
            found = loop_interpreter.run_program(program, inputs, in_place)
        except Exception as error:  # noqa: BLE001  # whatever a mutant ends in is wrong
            return f"{type(error).__name__}: {error}"
        for name, expected in wanted.items():
            same = found[name] == expected
            if self.tolerance:
                same = np.isclose(found[name], expected, rtol=1e-4, atol=self.tolerance)
            if not np.all(same):
                return f"{name} differs"
        return ""


def _in_order(program: LoopProgram) -> LoopProgram:
    """The program with all loops from their first to their last iteration."""

    def serial(stmt: Stmt) -> Stmt:
        stmt = with_parts(stmt, serial)
        return with_fields(stmt, kind="serial") if isinstance(stmt, For) else stmt

    return with_fields(program, kernels=tuple(with_fields(k, body=serial(k.body)) for k in program.kernels))


@contextmanager
def short_partial_sums(length: int) -> Iterator[None]:
    """Lower with partial sums of ``length`` steps."""
    usual, partial_sums.LONGEST = partial_sums.LONGEST, length
    try:
        yield
    finally:
        partial_sums.LONGEST = usual


def run_block(first: int, count: int) -> Tally:
    """Mutate the programs of some seeds."""
    tally = Tally()
    for seed in range(first, first + count):
        case = random_case(seed)
        with short_partial_sums(SHORT if seed % 2 else partial_sums.LONGEST):
            schedule, args = case.schedule()
            options = {"constants": case.constants, "strides": dict(case.strides)}
            try:
                program = lower_schedule(schedule, args, **options, with_origins=True)  # type: ignore[arg-type]
            except AutotuneError:
                continue  # longer with parts than it was when it was drawn
        _mutate(case, schedule, program, seed, tally)
    return tally


def _mutate(case: Case, schedule: Any, program: LoopProgram, seed: int, tally: Tally) -> None:
    verdict = _verdict(case, schedule, program)
    tally.programs[verdict.split(":")[0]] += 1
    if verdict.startswith("refused"):
        tally.findings.append(f"seed {seed}: {verdict}\n{case.text()}\n{program_text(program)}")
    if verdict != "proven":
        return  # nor would its mutants be
    judge, rng = Judge(case), random.Random(seed)
    for _ in range(MUTANTS):
        mutant = random_mutant(rng, program)
        if mutant is not None:
            _judge(judge, case, schedule, mutant, seed, tally)


def _judge(judge: Judge, case: Case, schedule: Any, mutant: Mutant, seed: int, tally: Tally) -> None:
    fault = judge.fault(mutant.program)
    tally.mutants["wrong" if fault else "equivalent"] += 1
    if not fault:
        return
    verdict = _verdict(case, schedule, mutant.program)
    tally.wrong[verdict.split(":")[0]] += 1
    tally.kinds[mutant.kind] += 1
    if verdict == "proven":
        text = program_text(mutant.program)
        tally.findings.append(f"seed {seed}: proven, but {fault}; {mutant.kind}: {mutant.text}\n{text}")


def _verdict(case: Case, schedule: Any, program: LoopProgram) -> str:
    try:
        return prove(load_isl(), schedule, program, constants=case.constants).status
    except LoweringError as error:
        return f"refused: {error}"


def work(record: str, first: int, count: int) -> None:
    """Run a block, and add it to a record: what a process of a campaign does."""
    blocks.append(Path(record), first, run_block(first, count))


def campaign(wrong: int, workers: int, record: Path, *, first: int = FIRST) -> Tally:
    """Run blocks until ``wrong`` mutants are wrong; those of the record count."""
    total, start = Tally(), first
    while total.wrong.total() < wrong:
        programs = max(BLOCK, (wrong - total.wrong.total()) // MUTANTS)
        for tally in blocks.run("mutants", Tally, start, programs, BLOCK, workers, record):
            total.add(tally)
        start += -(-programs // BLOCK) * BLOCK
    return total


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("wrong", type=int, help="wrong mutants to make")
    parser.add_argument("-n", "--workers", type=int, default=1, help="processes at a time")
    parser.add_argument("--record", type=Path, help="file to go on from")
    parser.add_argument("--first", type=int, default=FIRST, help="first seed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        record = options.record or Path(folder) / "mutants.jsonl"
        tally = campaign(options.wrong, options.workers, record, first=options.first)
    print(tally.text())
    raise SystemExit(1 if tally.findings else 0)


if __name__ == "__main__":
    main()
