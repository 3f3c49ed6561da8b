"""Faults as users of a model meet them; `python -m tests.faults` makes all of them, and shows what happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import pytest
from click.testing import CliRunner

from autotune.bench.experiment import frame_of
from autotune.errors import UsageError
from autotune.runtime.hal.recording import LoadedImage
from tests.faults import places as fault_places
from tests.faults.__main__ import EXPERIMENT, command
from tests.faults.places import kinds
from tests.faults.run import WAYS, faults_of, of_devices, try_fault

SLOW = {"processes killed beside it"}
"""Processes that start: tried in this process alone."""
PLACES = pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.name)


def meet(name: str, kind: fault_places.Kind, ways: Sequence[str]) -> None:
    for way in ways:
        found = try_fault(name, kind, way)
        assert found.problems == (), found
        assert found.error, found
        assert (found.good, found.live_bytes) == (found.others, 0)


@PLACES
def test_each_fault_is_one_error_to_its_caller(kind: fault_places.Kind) -> None:
    """In every way where it is at home: those that any model may meet in this process, those of devices on two CPUs."""
    for name, (_, ways) in faults_of(kind).items():
        if name not in SLOW or not kind.devices:
            at_home = "opencl:0" not in kind.devices and bool(kind.devices) == of_devices(name)
            meet(name, kind, ways if at_home else ways[-1:])


@pytest.mark.slow
@PLACES
def test_each_fault_is_one_error_to_its_caller_in_every_way(kind: fault_places.Kind) -> None:
    for name, (_, ways) in faults_of(kind).items():
        meet(name, kind, ways)


def test_what_stays_in_use_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = next((each for each in kinds() if "opencl:0" in each.devices), None)
    if kind is None:
        pytest.skip("there is no OpenCL device")
    monkeypatch.setattr(LoadedImage, "free", lambda self: None)
    (problem,) = try_fault("no memory", kind, WAYS[0]).problems
    assert problem.endswith("bytes of devices are in use after the model was closed")


def test_wrong_answers_of_others_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.faults.case.right", lambda number, answer: number != 3)
    problems = try_fault("an error in the first stage", kinds()[0], WAYS[2]).problems
    assert "request 3, which had no fault, got a wrong answer" in problems


def test_an_error_that_does_not_come_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_places.Refusing, "allocate", fault_places.Memory.allocate)
    problems = try_fault("no memory", kinds()[0], WAYS[0]).problems
    assert "no error came to the one who made the fault" in problems


def test_the_command_shows_a_table() -> None:
    result = CliRunner().invoke(command, ["--only", "no room"])
    assert result.exit_code == 0, result.output
    assert "DeviceTimeoutError" in result.output
    assert "6 of 6" in result.output
    result = CliRunner().invoke(command, ["--only", "thunder"])
    assert isinstance(result.exception, UsageError)
    assert "--only 'thunder' is in the name of no fault; there are\n  no memory\n" in str(result.exception)


def test_the_page_has_a_table_a_place() -> None:
    found = [try_fault("no room for a request", kind, WAYS[2]) for kind in kinds()[:2]]
    made = EXPERIMENT.tables(frame_of([asdict(outcome) for outcome in found]))
    assert [table.title for table in made] == [each.where for each in found]
    assert made[0].rows[0][:3] == ("no room for a request", "in flight", "6 of 6")
