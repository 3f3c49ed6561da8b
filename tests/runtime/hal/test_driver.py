"""Names of devices, and what they mean."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autotune.errors import DeviceLostError, UsageError
from autotune.runtime.hal import devices, driver, open_device
from autotune.runtime.hal.cpu import cores
from autotune.runtime.hal.driver import DRIVERS


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores 0 to 3, of which 0 and 2 are the two halves of a physical core."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(cores, "_place", lambda core: (0, core % 2))
    monkeypatch.setattr(cores, "numa_nodes", dict)


@pytest.mark.usefixtures("four_cores")
def test_parts_keep_threads_of_a_core_together() -> None:
    assert cores.core_ids() == (0, 2, 1, 3)
    assert cores.parts() == ((0, 2), (1, 3))
    assert cores.cores_of("cpu") == (0, 2, 1, 3)
    assert cores.cores_of("cpu:1") == (1, 3)
    assert cores.cores_of("cpu[0-1,3]") == (0, 1, 3)
    assert [cores.cores_of(name) for name in ("cpu:2", "cpu[", "cpus", "gpu")] == [None] * 4


@pytest.mark.usefixtures("four_cores")
def test_numa_nodes_are_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = {0: frozenset({0}), 1: frozenset({1, 2, 3, 9}), 2: frozenset({8})}
    monkeypatch.setattr(cores, "numa_nodes", lambda: nodes)
    assert cores.parts() == ((0,), (2, 1, 3))
    assert cores.cores_of("cpu[node0]") == (0,)
    with pytest.raises(
        UsageError, match=r"cpu\[node1\] is not among the cores of this process: it may use 0, 1, 2, 3"
    ):
        cores.cores_of("cpu[node1]")


@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize("text", ["7", "0-", "-", "3-1", "0-99999999"])
def test_cores_that_cannot_be_used_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not among the cores of this process"):
        cores.cores_of(f"cpu[{text}]")


@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize(("quota", "all_cores", "half"), [(4, 4, 2), (3, 3, 1), (1, 1, 1)])
def test_a_quota_leaves_fewer_workers(
    monkeypatch: pytest.MonkeyPatch, quota: int, all_cores: int, half: int
) -> None:
    monkeypatch.setattr(cores, "usable_cores", lambda: quota)
    assert cores.workers_of((0, 1, 2, 3)) == all_cores
    assert cores.workers_of((0, 2)) == half


def test_an_unknown_device_lists_those_there() -> None:
    with pytest.raises(UsageError, match=r"(?s)no device 'gpu:7'; there are\n  cpu \(.*\n  cpu:0 \("):
        open_device("gpu:7")


def test_every_driver_has_the_devices_that_it_names() -> None:
    for info in devices():
        assert info.driver in DRIVERS
        with driver.open_device(info.name) as device:
            assert device.info == info
            assert open_device(info.name) is device
        with open_device(info.name) as again:
            assert again is not device


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="threads cannot be bound to cores")
def test_threads_of_a_part_stay_on_its_cores() -> None:
    if len(cores.core_ids()) < 2:
        pytest.skip("a single core has no parts")
    with open_device("cpu:1") as device:
        found = device.compute._requests.submit(lambda: os.sched_getaffinity(0)).result()
        assert found == set(device.info.core_ids)
    assert os.sched_getaffinity(0) == set(cores.core_ids())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_devices_do_not_survive_a_fork(tmp_path: Path) -> None:
    with open_device("cpu") as device:
        child = os.fork()
        if child == 0:
            try:
                device.allocate(8)
            except DeviceLostError as error:
                (tmp_path / "error").write_text(str(error))
                with open_device("cpu") as other:
                    other.allocate(8)
                (tmp_path / "opened").touch()
            os._exit(0)
        os.waitpid(child, 0)
        assert "was opened before this process was forked" in (tmp_path / "error").read_text()
        assert (tmp_path / "opened").exists()
        device.allocate(8)
