"""The file of a machine: read whole or ignored with one line, and what the cost model makes of it."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import UsageError
from autotune.target import Target
from cost_models import calibrated, microarchitectures
from cost_models.calibrated import Calibration
from cost_models.machine import Machine

TARGET = replace(Target.parse("x86-64-v3"), device="a processor", cores=4, threads=4)
FOUND = Calibration({"hertz": 4e9, "latency": 5.0, "core_stream": 4.0, "all_streams": 10.0}, ("latency",))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path))
    monkeypatch.delenv("AUTOTUNE_MACHINE", raising=False)


def test_what_is_kept_is_found_for_every_number_of_threads() -> None:
    path = calibrated.keep(TARGET, FOUND)
    assert calibrated.find(TARGET) == calibrated.find(TARGET.with_threads(1)) == FOUND
    assert calibrated.find(replace(TARGET, l2_bytes=1 << 20)) is None
    assert Calibration.from_json(json.loads(path.read_text(encoding="utf-8"))) == FOUND


def test_the_machine_takes_what_was_steady_and_plausible() -> None:
    table = Machine.of(TARGET)
    calibrated.keep(TARGET, replace(FOUND, values={**FOUND.values, "store_ports": 1e6}))
    machine = Machine.of(TARGET)
    assert machine.hertz == 4e9
    assert (machine.latency, machine.store_ports) == (table.latency, table.store_ports)


def test_few_threads_do_not_use_all_of_the_memory() -> None:
    calibrated.keep(TARGET, FOUND)
    rates = [Machine.of(TARGET.with_threads(n)).memory_bytes_per_cycle for n in (1, 2, 3, 4)]
    assert rates == [4.0, 8.0, 10.0, 10.0]


def test_the_table_has_the_rate_of_one_core_where_only_that_of_all_was_steady() -> None:
    calibrated.keep(TARGET, replace(FOUND, disturbed=("core_stream",)))
    one = microarchitectures.core_of(TARGET.cpu, TARGET.arch).core_stream
    assert Machine.of(TARGET.with_threads(1)).all_streams == one
    assert Machine.of(TARGET).all_streams == min(4 * one, 10.0)


def test_measuring_does_not_change_the_key_of_a_target() -> None:
    before = TARGET.key
    calibrated.keep(TARGET, FOUND)
    assert TARGET.key == before
    assert "hertz" not in TARGET.to_json()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1, 2]",
        '{"format": 1}',
        '{"format": 2, "values": {"hertz": 3e9}, "disturbed": [], "created": 1, "seconds": 1}',
        '{"format": 1, "values": {"herz": 3e9}, "disturbed": [], "created": 1, "seconds": 1}',
        '{"format": 1, "values": {"hertz": "3e9"}, "disturbed": [], "created": 1, "seconds": 1}',
        '{"format": 1, "values": {"hertz": -3}, "disturbed": [], "created": 1, "seconds": 1}',
        '{"format": 1, "values": {"hertz": NaN}, "disturbed": [], "created": 1, "seconds": 1}',
        '{"format": 1, "values": {"hertz": 3e9}, "disturbed": ["what"], "created": 1, "seconds": 1}',
        '{"format": 1, "values": {"hertz": 3e9}, "disturbed": [], "created": null, "seconds": 1}',
    ],
)
def test_a_damaged_file_is_ignored_with_one_line(text: str, caplog: pytest.LogCaptureFixture) -> None:
    path = calibrated.keep(TARGET, FOUND)
    path.write_text(text, encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        assert calibrated.find(TARGET) is None
        assert calibrated.find(TARGET) is None
    (line,) = caplog.messages
    assert f"{path} is damaged and ignored" in line
    assert "`autotune devices --calibrate` makes it anew" in line


def test_the_table_may_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    calibrated.keep(TARGET, FOUND)
    monkeypatch.setenv("AUTOTUNE_MACHINE", "table")
    assert calibrated.find(TARGET) is None
    monkeypatch.setenv("AUTOTUNE_MACHINE", "fast")
    with pytest.raises(
        UsageError, match=r"^AUTOTUNE_MACHINE=fast: allowed are 'table', and nothing for what"
    ):
        calibrated.find(TARGET)


@pytest.mark.parametrize("cpu", microarchitectures.CORES)
def test_the_table_holds_for_vectors_of_every_width(cpu: str) -> None:
    """A hypervisor may hide the wide ones: halves of them run twice as often, up to two a cycle."""
    ports = [
        Machine.of(replace(TARGET, cpu=cpu, vector_bits=bits)).arithmetic_ports for bits in (128, 256, 512)
    ]
    assert ports == sorted(ports, reverse=True)
    assert ports[0] == 2.0
    assert all(0.25 <= count <= 2.0 for count in ports)


def test_processors_that_the_table_does_not_know_are_generic() -> None:
    plain, arm = (Machine.of(Target.parse(name)) for name in ("x86-64-v4", "aarch64"))
    assert plain == replace(Machine.of(replace(Target.parse("x86-64-v4"), cpu="cascadelake")))
    assert arm.arithmetic_ports == 2.0
    assert arm.registers == 32
