"""`autotune devices`: what there is."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from autotune.cli.calibration_lines import calibration_lines
from autotune.cli.device_lines import device_table, device_values
from autotune.cli.main import cli
from autotune.opencl import description
from autotune.runtime.hal import devices
from autotune.runtime.hal.device import DeviceInfo
from autotune.target import Target
from cost_models.calibrated import Calibration


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["devices", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_all_devices_are_listed() -> None:
    lines = shown().splitlines()
    columns = ["device", "kind", "cores", "L1", "L2", "L3", "memory", "bandwidth", "processor"]
    assert lines[0].split() == columns
    names = [line.split()[0] for line in lines[1 : 1 + len(devices())]]
    assert names == [info.name for info in devices()]
    assert names[0] == "cpu"


def test_json_has_what_placement_needs() -> None:
    found = json.loads(shown("--json"))
    cpu = found["devices"][0]
    assert (cpu["name"], cpu["driver"], cpu["memory_space"]) == ("cpu", "cpu", "host")
    assert cpu["cores"] >= 1
    assert cpu["memory_bytes"] > 1 << 28
    assert cpu["bandwidth_bytes_per_second"] > 1e8
    assert found["machine"]["key"] == cpu["target_key"]


def info(name: str, cores: tuple[int, ...], units: int = 0, **more: object) -> DeviceInfo:
    given: dict[str, object] = {
        "driver": "cpu", "kind": "cpu", "description": "A processor", "memory_bytes": 3 << 29,
        "space": "host", "caches": {1: 48 << 10, 2: 1 << 20, 3: 32 << 20}, "core_ids": cores,
    } | more  # fmt: skip
    return DeviceInfo(name, cores=units or len(cores), **given)  # type: ignore[arg-type]


def test_the_table_has_a_column_a_cache_and_says_who_shares_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cost_models.calibrated.find", lambda _: None)
    monkeypatch.setattr(
        "cost_models.machine.Machine.of", lambda _: SimpleNamespace(all_streams=10.0, hertz=4.25e9)
    )
    gpu = {"driver": "opencl", "kind": "gpu", "caches": {2: 6 << 20}, "units": 80, "space": "opencl 0"}
    pocl = info("opencl:1", (0, 1, 2, 3), description="A processor, by PoCL 3.0 (OpenCL 3.0)")
    table = device_table([info("cpu", (0, 1, 2, 3)), info("opencl:0", (), **gpu), pocl])
    assert "\n".join(table) == (
        "device    kind  cores    L1      L2     L3      memory   bandwidth    processor\n"
        "cpu       cpu   4 (0-3)  48 KiB  1 MiB  32 MiB  1.5 GiB  (42.5 GB/s)  A processor\n"
        "opencl:0  gpu   80       -       6 MiB  -       1.5 GiB  -            A processor\n"
        "opencl:1  cpu   4 (0-3)  48 KiB  1 MiB  32 MiB  1.5 GiB  (42.5 GB/s)  A processor, by PoCL 3.0 (OpenCL 3.0)\n"
        "cpu, opencl:1 share cores: only one of them computes on a core at a time\n"
        "bandwidth in brackets is the table's: autotune devices --calibrate measures it"
    )
    assert device_values(pocl)["bandwidth_measured"] is False


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        (
            "pthread-AMD EPYC",
            "OpenCL 3.0 PoCL 3.0-rc2  Linux, LLVM 14.0.6",
            "AMD EPYC, by PoCL 535 (OpenCL 3.0)",
        ),
        ("GeForce", "OpenCL 3.0 CUDA 12.2.148", "GeForce, by Platform 535 (OpenCL 3.0)"),
    ],
)
def test_a_driver_of_opencl_is_named_in_short(name: str, version: str, expected: str) -> None:
    platform = SimpleNamespace(version=version, name="Platform")
    assert description(SimpleNamespace(name=name, platform=platform, driver_version="535")) == expected


def test_what_is_not_steady_says_what_is_used_instead() -> None:
    target = Target.parse("x86-64-v3")
    found = Calibration({"l2_latency": 16.84, "l3_latency": 43.7}, ("l3_latency",), 0.0, 6.8)
    lines = [" ".join(line.split()) for line in calibration_lines(target, found)]
    assert lines[1] == "measured 1970-01-01 00:00 UTC in 6.8 s"
    assert "latency of L2 16.8 cycles" in lines
    (unsteady,) = (line for line in lines if "not steady" in line)
    assert unsteady.startswith("latency of L3 43.7 cycles (not steady: ")
    assert unsteady.endswith(" of the table is used)")
    assert "waking all of them 1.5 µs" in [" ".join(line.split()) for line in calibration_lines(target, None)]
