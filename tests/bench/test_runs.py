"""The runs that come with the project, in results/runs and results/replay: how many, and that they can be read."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from autotune.bench.replay.recording import CORES, NOT_FREE, CandidateRecording, read_all
from autotune.target import Target

RESULTS = Path(__file__).parent.parent.parent / "results"
BITS = {"avx512": 512, "avx2": 256, "avx512-zen5": 512, "avx2-zen5": 256}
EVERY = 12
"""Of so many files one is looked at closer: working a space out takes a tenth of a second."""


@cache
def recordings(level: str) -> tuple[CandidateRecording, ...]:
    return tuple(read_all(RESULTS / "runs" / level))


def test_they_are_many_of_many_workloads() -> None:
    found = [recording for level in BITS for recording in recordings(level)]
    assert len({recording.facts.workload for recording in found}) >= 60
    assert sum(len(recording.table) for recording in found) >= 20_000
    assert len({recording.facts.family for recording in found}) >= 12
    assert len({recording.facts.model for recording in found}) >= 20


@pytest.mark.parametrize("level", BITS)
def test_each_file_is_small_and_of_its_folders_target(level: str) -> None:
    assert max(path.stat().st_size for path in (RESULTS / "runs" / level).iterdir()) < 1 << 18
    for recording in recordings(level):
        assert Target.from_json(recording.facts.target).vector_bits == BITS[level]
        assert {*recording.table.outcome} >= {"ok"}
        assert recording.table.ratio[0] == pytest.approx(1, abs=0.25), "the default, read as a candidate"
        assert recording.facts.machine.get(CORES) != NOT_FREE
        assert not any(
            text.startswith("/") for value in recording.facts.machine.values() for text in value.split()
        )


@pytest.mark.parametrize("level", BITS)
def test_a_part_of_them_is_legal_in_todays_spaces(level: str) -> None:
    for recording in recordings(level)[::EVERY]:
        assert len(recording.today[0]) >= 0.9 * len(recording.table)
