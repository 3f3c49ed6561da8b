"""A sample of the mutants of our own source: the tests next to a file notice what is wrong in it."""

from __future__ import annotations

import pytest

from tests.equivalent_mutants import EQUIVALENT
from tests.source_mutants import ROOT, Mutant, draw, judge

WRONG = {
    "nothing is stolen": (
        "autotune/runtime/cpu/tiles.py",
        "for distance in range(workers):",
        "for distance in range(1):",
    ),
    "a part of an artifact may be any": (
        "autotune/runtime/artifacts/archive.py",
        "if sum(entry.file_size for entry in entries) > total:",
        "if False:",
    ),
    "a loop is cut one iteration too late": (
        "autotune/lower/partition.py",
        "found.add(root + 1 if",
        "found.add(root + 2 if",
    ),
    "luck wins": (
        "autotune/tuning/compare/paired.py",
        "len(ratios)) <= ERROR_RATE / asked",
        "len(ratios)) >= ERROR_RATE / asked",
    ),
}


QUICK = "luck wins"
"""The others' tests take longer, and run twice here."""


@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=() if name == QUICK else pytest.mark.slow) for name in sorted(WRONG)]
)
def test_faults_are_caught(fault: str) -> None:
    file, before, after = WRONG[fault]
    source = (ROOT / file).read_text(encoding="utf-8")
    assert source.count(before) == 1
    line = judge(Mutant(file, "", 0, before, after, source.replace(before, after)))
    assert line["verdict"] == "caught"


def test_mutants_mean_something_else_and_stay_the_same() -> None:
    for seed in range(3):
        mutant = draw(seed)
        assert mutant == draw(seed)
        assert mutant.code != (ROOT / mutant.file).read_text(encoding="utf-8")
        assert mutant.before != mutant.after


def test_reasons_stand_with_lines_that_are_there() -> None:
    for file, before, after in EQUIVALENT:
        lines = [line.strip() for line in (ROOT / file).read_text(encoding="utf-8").splitlines()]
        assert lines.count(before) == 1, before
        assert before != after
