"""Mutants of lowered programs: none that is wrong is proven, and a proof of one would be a finding."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from autotune.lower import lower_schedule
from autotune.lower.verify_isl import Verified
from tests.schedule import mutants
from tests.schedule.mutations import random_mutant
from tests.schedule.three_ways import random_case

pytest.importorskip("islpy")

PROGRAMS = 3


@pytest.mark.parametrize("first", [mutants.FIRST, mutants.FIRST + PROGRAMS])
def test_no_wrong_mutant_is_proven(first: int) -> None:
    tally = mutants.run_block(first, PROGRAMS)
    assert tally.findings == []
    assert tally.programs["proven"] > 0
    assert tally.wrong["refused"] > 0
    assert tally.wrong.total() == tally.kinds.total() == tally.mutants["wrong"]


def test_a_proof_of_a_wrong_mutant_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "prove", lambda *_, **__: Verified("proven"))
    tally = mutants.run_block(mutants.FIRST, 1)
    assert len(tally.findings) == tally.wrong["proven"] == tally.mutants["wrong"] > 0
    assert "proven, but " in tally.text()


def test_the_judge_accepts_what_was_not_mutated_and_sees_most_mutations() -> None:
    case = random_case(mutants.FIRST)
    program = lower_schedule(*case.schedule(), constants=case.constants, strides=dict(case.strides))
    judge = mutants.Judge(case)
    assert judge.fault(program) == ""
    drawn = [random_mutant(random.Random(seed), program) for seed in range(30)]
    faults = [judge.fault(mutant.program) for mutant in drawn if mutant is not None]
    assert sum(map(bool, faults)) > len(faults) // 2


@pytest.mark.slow
def test_no_wrong_mutant_of_many_is_proven(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tally = mutants.campaign(2_000, 2, tmp_path / "mutants.jsonl")
    with capsys.disabled():
        print(f"\n{tally.text()}")
    assert tally.findings == []
    assert tally.wrong.total() >= 2_000
