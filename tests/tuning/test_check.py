"""Checking a lock: when there is something to read, what is said of it, and how often wrongly."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from autotune.cli import main as cli
from autotune.compiler import compile_in_detail
from autotune.compiler.lock import Lock
from autotune.compiler.locked import lock_of
from autotune.compiler.request import CompileRequest
from autotune.database.records import Ratio
from autotune.errors import LockError
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.runtime.artifacts import artifact
from autotune.runtime.image import ModuleImage
from autotune.target import Target
from autotune.tuning.check import CheckReport, Finding, Read, check
from autotune.tuning.compare.paired import ERROR_RATE, least_processes, slower
from autotune.tuning.measure.turns import Rounds
from autotune.tuning.measure.whole_model import Profile

TARGET = Target.detect(threads=1)


def graph() -> Graph:
    b = GraphBuilder("two")
    w = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    return b.graph(b.node("Softmax", b.node("MatMul", b.input("x", (8, 16)), b.constant("w", w)), name="y"))


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lock, Path]:
    """A lock and the artifact that was made by it."""
    done, path = (
        compile_in_detail(CompileRequest(graph(), target=TARGET)),
        tmp_path_factory.mktemp("check") / "then.atm",
    )
    artifact.save(done.image, path)
    return lock_of(done), path


def other(lock: Lock) -> Lock:
    """The lock with a plain loop nest for the first workload: other machine code than its hash says."""
    values = json.loads(lock.to_json())
    values["schedules"][0]["trace"]["steps"] = []
    return Lock.from_json(json.dumps(values))


def reader(factor: float) -> Read:
    """Readings in which the first dispatch of the second version takes ``factor`` times as long."""

    def read(images: Sequence[ModuleImage], rounds: Rounds) -> list[Profile]:
        rng, profiles = np.random.default_rng(0), []
        for number, image in enumerate(images):
            names = [(d.name, d.workload_key) for d in image.dispatches]
            ns = 1000 * rng.lognormal(0, 0.02, (rounds.most, len(names)))
            ns[:, 0] *= factor**number
            profiles.append(Profile(names, ns))
        return profiles

    return read


def never(images: Sequence[ModuleImage], rounds: Rounds) -> list[Profile]:
    raise AssertionError("nothing is to be read")


def test_the_same_code_is_not_read(locked: tuple[Lock, Path]) -> None:
    report = check(graph(), locked[0], read=never)
    assert report == CheckReport(2, 0.05)
    assert str(report) == "the machine code is what was locked, of 2 workloads: nothing is slower"


def test_other_code_takes_a_reference(locked: tuple[Lock, Path], tmp_path: Path) -> None:
    lock, _ = locked
    with pytest.raises(LockError, match="make other machine code now for 1 of 2 workloads"):
        check(graph(), other(lock), read=never)
    wrong = tmp_path / "wrong.atm"
    artifact.save(compile_in_detail(CompileRequest(graph(), target=TARGET.with_threads(2))).image, wrong)
    values = json.loads(other(lock).to_json())
    values["schedules"][1]["code"] = "0" * 64
    with pytest.raises(LockError, match=r"the reference .*wrong.atm is not of this lock: the code of"):
        check(graph(), Lock.from_json(json.dumps(values)), wrong, read=never)


@pytest.mark.parametrize(("factor", "regressed"), [(0.9, 0), (1.0, 0), (1.03, 0), (1.2, 2)])
def test_what_is_slower_is_named(locked: tuple[Lock, Path], factor: float, regressed: int) -> None:
    lock, reference = locked
    report = check(graph(), other(lock), reference, read=reader(factor))
    assert [finding.names for finding in report.findings] == [
        lock.schedules[0].names,
        ("all dispatches together",),
    ]
    assert len(report.regressed) == regressed
    assert report.processes == least_processes(2, losses=1)
    assert report.to_json()["error_rate"] == ERROR_RATE
    assert report.findings[0].ratio.median == pytest.approx(factor, rel=0.02)


def test_a_report_as_text() -> None:
    found = Finding(("a", "b", "c", "d"), Ratio(1.2, (1.1, 1.3)), True), Finding(("e",), Ratio(0.9), False)
    assert str(CheckReport(7, 0.05, found, 12)).splitlines() == [
        "1 of 7 workloads with other machine code than when locked, compared with that in 12 fresh processes:",
        "  a, b, c and 1 more: 1.20 (1.10 to 1.30) of the latency, slower",
        "  e: 0.90 (0.90 to 0.90) of the latency",
        "slower by more than 5 %: 1 of 2 (where none is, a check says so in at most 5 % of all cases)",
    ]


@pytest.mark.parametrize("asked", [2, 20])
def test_the_error_rate_is_what_is_said(asked: int) -> None:
    """All dispatches are slower by exactly what is allowed: the worst case."""
    rng, processes, each = np.random.default_rng(asked), least_processes(asked, losses=1), 3
    wrong = found = 0
    for _ in range(300):
        noise = rng.lognormal(0, 0.05, (asked, processes)).repeat(each, axis=1)
        answers = [slower(1050 * row, np.full(len(row), 1000.0), each, 0.05, asked) for row in noise]
        wrong += any(answers)
        found += slower(1.2 * 1050 * noise[0], np.full(len(noise[0]), 1000.0), each, 0.05, asked)
    assert wrong / 300 <= ERROR_RATE + 0.02
    assert found / 300 > 0.9


def test_the_command_fails_for_what_is_no_percentage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["check", "zoo:mlp", "--lock", "no.lock", "--slower-than", "much"]) == 2
    assert capsys.readouterr().err == (
        "error: --slower-than 'much' is no percentage\n  such as 5%, which is the default\n"
    )
    assert cli.run(["check", "zoo:mlp", "--lock", "no.lock", "--slower-than", "3%"]) == 1
    assert "cannot read the lock no.lock" in capsys.readouterr().err
