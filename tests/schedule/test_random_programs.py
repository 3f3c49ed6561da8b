"""Random programs under random schedules: NumPy, two interpreters, machine code and the isl proof give one answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.schedule import fuzz
from tests.seeds import seeds


@pytest.mark.registers
@pytest.mark.parametrize("block", seeds(1, 2))
def test_executions_agree(block: int) -> None:
    tally = fuzz.run_block(block * fuzz.BLOCK, fuzz.BLOCK, prove_every=10)
    assert tally.findings == []


def test_counts_add_up_and_a_record_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "BLOCK", 8)
    record = tmp_path / "fuzz.jsonl"
    programs = fuzz.BLOCK + 4
    record.write_text('{"first": cut short\n', encoding="utf-8")
    once = fuzz.campaign(4, 1, record, prove_every=2, first=fuzz.FIRST + fuzz.BLOCK)
    done = record.read_text(encoding="utf-8")
    whole = fuzz.campaign(programs, 2, record, prove_every=1000)
    assert record.read_text(encoding="utf-8").startswith(done)
    assert (once.programs, sum(once.proofs.values())) == (4, 2)
    assert whole.programs == programs
    assert whole.findings == []
    assert f"{programs} programs, {sum(whole.primitives.values())} steps" in whole.text()


@pytest.mark.slow
def test_executions_agree_on_many_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tally = fuzz.campaign(20_000, 2, tmp_path / "fuzz.jsonl", prove_every=5)
    with capsys.disabled():
        print(f"\n{tally.text()}")
    assert tally.findings == []
