"""The recorded spaces in results/replay: what they hold, and that searches of them have not become worse."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from autotune.bench.replay.compare import Method, Searches, compare
from autotune.bench.replay.recording import CandidateRecording, read_all
from autotune.bench.replay.search import ALONE

FOLDER = Path(__file__).parent.parent.parent / "results" / "replay"
TRIALS, EARLY, SEEDS = 64, 16, 4


@cache
def recordings() -> tuple[CandidateRecording, ...]:
    return tuple(read_all(FOLDER))


def test_each_has_all_candidates_or_three_hundred() -> None:
    for recording in recordings():
        assert len(recording.table) >= min(300, recording.facts.size)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.parquet")), ids=lambda path: path.stem)
def test_a_recording_is_small_and_of_todays_space(path: Path) -> None:
    recording = CandidateRecording.read(path)
    assert path.stat().st_size < 1 << 20
    configs, rows = recording.today
    assert len(configs) == len(rows)
    assert recording.table.ratio[0] == pytest.approx(1, abs=0.15)  # the default, read as a candidate


def test_ours_finds_no_less_than_random() -> None:
    methods = [Method("guided"), Method("random")]
    found = compare(recordings(), methods, Searches(trials=TRIALS, seeds=SEEDS, by=ALONE))
    ours, random = (found.regret(number, TRIALS).mean for number in range(2))
    assert ours <= random
    assert ours < 0.08
    early = found.ratio(0, 1, EARLY)
    assert early.low <= 1  # with so few seeds, no worse beyond doubt
