"""Workloads to record: operators of the suite beside models, and a diverse part of their workloads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from autotune.bench.replay import choice, record
from autotune.bench.replay.record import Effort
from autotune.bench.replay.recording import CandidateRecording
from autotune.cli.main import run
from autotune.compiler import divide
from autotune.compiler.dividing import Model
from autotune.errors import UsageError
from autotune.target import Target
from autotune.tuning.jobs.model import subject_of
from autotune.tuning.jobs.subject import Subject
from results.bench import regions

TARGET = Target.parse("x86-64-v3", threads=1)
FAMILIES = ("contraction", "elementwise", "softmax")


def subjects() -> list[Subject]:
    found = regions.workloads()
    return [
        subject_of(workload, TARGET, (f"{family} {name}",))
        for family in FAMILIES
        for name, workload in list(found[family].items())[:3]
    ]


def test_families_take_turns() -> None:
    known = subjects()
    chosen = choice.diverse(known, 5, seed=0)
    families = [subject.space.family for subject in chosen]
    assert len({subject.names for subject in chosen}) == 5
    assert sorted(families[:3]) == sorted({subject.space.family for subject in known})
    assert choice.diverse(known, 5, seed=0) == chosen
    assert choice.diverse(known, 5, seed=1) != chosen


def test_what_says_little_is_not_chosen() -> None:
    chosen = choice.diverse(subjects(), 100, seed=0)
    assert chosen
    assert all(subject.space.size() >= 12 for subject in chosen)


def test_operators_are_models() -> None:
    (one,) = choice.models("op:GMM:1,8,16,32")
    assert one.name == "GMM (1,8,16,32)"
    assert len(choice.models("op:SFM")) == 4
    assert choice.models("zoo:tiny_cnn") == ["zoo:tiny_cnn"]
    with pytest.raises(UsageError, match="unknown family 'C9D'; there are: C1D"):
        choice.models("op:C9D")


def test_the_command_records_each_operator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    def nothing(
        model: Model, names: Sequence[str], target: Target, effort: Effort, say: object
    ) -> list[CandidateRecording]:
        asked.append((divide(model).name, effort))
        return []

    monkeypatch.setattr(record, "record", nothing)
    more = ["--workloads", "2", "--candidates", "3", "--turns", "1", "--inside", "0", "--processes", "1"]
    assert run(["replay", "candidates", "op:SFM", *more, "-o", str(tmp_path)]) == 0
    effort = Effort(candidates=3, turns=1, share=0, processes=1, workloads=2)
    assert asked == [
        (f"SFM {shape}", effort) for shape in ("(256,256)", "(512,512)", "(1024,1024)", "(2048,2048)")
    ]
