"""Measuring this machine once: when it is done, what is kept, and what keeps it from being done."""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path

import pytest

from autotune.calibration import core, host, tiles, workers
from autotune.calibration.probe import Probe, Times
from autotune.errors import MeasureError
from autotune.target import Target
from cost_models import calibrated
from cost_models.calibrated import Calibration
from cost_models.machine import Machine

FOUND = Calibration({"hertz": 3e9, "core_stream": 6.0, "all_streams": 9.0}, (), 1.0, 2.5)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder of a machine that may be measured."""
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AUTOTUNE_MACHINE", raising=False)
    monkeypatch.delenv("AUTOTUNE_HOST", raising=False)
    return tmp_path / "home"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When the machine was measured, which takes a moment."""
    times: list[float] = []

    def calibrate() -> Calibration:
        times.append(time.monotonic())
        time.sleep(0.05)
        return FOUND

    monkeypatch.setattr(host, "calibrate", calibrate)
    return times


def test_the_first_job_measures_and_later_ones_use_it(home: Path, measured: list[float]) -> None:
    target, said = Target.detect(1), list[str]()
    before = Machine.of(target)
    for _ in range(3):
        host.ensure(target, said.append)
    assert said == ["measuring this machine, once: some seconds"]
    assert len(measured) == 1
    assert Machine.of(target).hertz == 3e9 != before.hertz
    (path,) = (home / "machines").glob("*.json")
    assert path == calibrated.path_of(target)


def test_jobs_of_all_thread_counts_share_it(home: Path, measured: list[float]) -> None:
    for threads in (1, 2, 3):
        host.ensure(Target.detect(threads), lambda _: None)
    assert len(measured) == 1
    assert [Machine.of(Target.detect(n)).all_streams for n in (1, 2, 3)] == [6.0, 9.0, 9.0]


def test_two_jobs_at_once_measure_once(home: Path, measured: list[float]) -> None:
    target = Target.detect(1)
    jobs = [threading.Thread(target=host.ensure, args=(target, lambda _: None)) for _ in range(4)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert len(measured) == 1


def test_other_targets_and_settings_measure_nothing(
    home: Path, measured: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    host.ensure(Target.parse("x86-64-v3"), pytest.fail)
    monkeypatch.setenv("AUTOTUNE_MACHINE", "table")
    host.ensure(Target.detect(1), pytest.fail)
    monkeypatch.delenv("AUTOTUNE_MACHINE")
    monkeypatch.setenv("AUTOTUNE_HOST", "x86-64-v2" if Target.detect().arch == "x86_64" else "aarch64")
    host.ensure(Target.detect(1), pytest.fail)
    assert not measured


def test_a_pretended_processor_is_not_measured(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_HOST", "x86-64-v2" if Target.detect().arch == "x86_64" else "aarch64")
    with pytest.raises(MeasureError, match=r"^AUTOTUNE_HOST says that it counts as "):
        host.calibrate()


def test_a_folder_that_cannot_be_written_is_one_line(
    home: Path, measured: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write_text("a file", encoding="utf-8")
    said: list[str] = []
    host.ensure(Target.detect(1), said.append)
    (line,) = said
    assert line.startswith(f"this machine is not measured, as {home / 'machines'} cannot be written: ")
    assert not measured


def test_a_busy_machine_is_one_line(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "clock", lambda _: (3e9, Times(1.0, 2.0)))
    monkeypatch.setattr(workers, "measure", lambda _: {})
    monkeypatch.setattr(core, "measure", lambda *_: {})
    monkeypatch.setattr(tiles, "measure", lambda *_: {})
    monkeypatch.setattr("autotune.calibration.memory.measure", lambda *_: {})
    said: list[str] = []
    host.ensure(Target.detect(1), said.append)
    assert said[1:] == ["this machine is not measured: others keep it too busy"]
    assert not list((home / "machines").glob("*.json"))


def measured_here(found: dict[str, float]) -> bool:
    """Return whether all are fields of a machine and finite, however busy this one is; bounds are not asserted."""
    return found.keys() <= calibrated.FIELDS.keys() and all(map(math.isfinite, found.values()))


def test_the_core_of_this_machine_is_measured() -> None:
    probe = Probe(Target.detect(1))
    hertz, _ = core.clock(probe)
    measured = core.measure(probe, hertz) | tiles.measure(probe, hertz)
    found = {"hertz": hertz, **{name: value for name, (value, _) in measured.items()}}
    assert ("tile_cycles" in found) is ("amx-tile" in probe.target.features)
    assert ("pair_ports" in found) is ("avx512bf16" in probe.target.features)
    assert measured_here(found)


def test_workers_of_this_machine_are_measured() -> None:
    found = {name: value for name, (value, _) in workers.measure(Probe(Target.detect(2))).items()}
    assert found
    assert measured_here(found)
