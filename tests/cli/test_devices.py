"""`autotune devices`: what there is."""

from __future__ import annotations

import json

from click.testing import CliRunner

from autotune.cli.main import cli
from autotune.runtime.hal import devices


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["devices", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_all_devices_are_listed() -> None:
    lines = shown().splitlines()
    assert lines[0].split() == ["device", "kind", "cores", "caches", "memory", "bandwidth"]
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
