"""Faults of devices and drivers: each is one error to its caller, with its origin, and the others go on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import MethodType
from typing import Any

import numpy as np
import pytest

from autotune import cuda
from autotune.errors import DeviceError, DeviceLostError, DeviceMemoryError
from autotune.runtime.hal.buffer import host_buffer
from autotune.runtime.hal.command_buffer import CommandBuffer, Slot
from autotune.runtime.hal.cpu.driver import open_cores
from autotune.runtime.hal.device import Device
from autotune.runtime.hal.executable import Code
from autotune.runtime.hal.opencl.code import OpenclKernel
from autotune.runtime.hal.semaphore import Timeline
from tests.codegen.opencl_device import needs_opencl
from tests.patience import PATIENCE_S
from tests.runtime.hal import test_cpu, test_cuda, test_opencl
from tests.runtime.hal.conformance import COUNT, X
from tests.runtime.hal.test_cuda import FakeDriver

Break = Callable[[pytest.MonkeyPatch, str, int], None]

fake = test_cuda.fake  # the driver of all tests here, where they ask for a device of NVIDIA's


def _break_opencl(patch: pytest.MonkeyPatch, where: str, code: int) -> None:
    """Let a function of the driver fail from now on."""
    cl = pytest.importorskip("pyopencl")

    class Failed(cl.LogicError):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            Exception.__init__(self)

        def __str__(self) -> str:
            return f"{where} failed"

    def fails(*_: object, **__: object) -> Any:
        raise Failed

    Failed.code = code
    if where == "launch":
        patch.setattr(OpenclKernel, "start", fails)
    else:
        patch.setattr(cl, {"copy": "enqueue_copy", "memory": "Buffer"}[where], fails)


def _break_cuda(patch: pytest.MonkeyPatch, where: str, code: int) -> None:
    name = {"launch": "cuLaunchKernel", "copy": "cuMemcpyHtoDAsync", "memory": "cuMemAlloc"}[where]
    driver = cuda.driver()

    def fails(self: FakeDriver, *_: object) -> tuple[int, Any]:
        return code, None

    patch.setattr(driver, name, MethodType(fails, driver))
    patch.setattr(driver, "cuGetErrorName", lambda number: (0, f"{where} failed".encode()))


KINDS: dict[str, tuple[Callable[[], Device], Callable[[], Code], Break, int, int]] = {
    "opencl": (lambda: test_opencl.opened("opencl"), test_opencl.increment, _break_opencl, -5, -36),
    "cuda": (test_cuda.opened, test_cuda.code, _break_cuda, 701, 700),
}
"""Of each kind: a device, its code, how its driver is broken, an error of one command and one that is the last."""


@pytest.mark.parametrize("kind", [pytest.param("opencl", marks=needs_opencl), "cuda"])
@pytest.mark.parametrize("where", ["launch", "copy"])
@pytest.mark.parametrize("last", [False, True], ids=["a command", "the device"])
def test_what_a_driver_says(monkeypatch: pytest.MonkeyPatch, kind: str, where: str, *, last: bool) -> None:
    """An error of a command ends its submission; one of the device also what is under way, and all that comes."""
    open_, code, break_, one, gone = KINDS[kind]
    with open_() as device, open_cores("other", (0,), 1) as other:
        commands, line, gate = _commands(device, code()), Timeline("line"), Timeline("gate")
        pair = [device.upload(X), device.upload(X)]
        waiting = device.transfers.submit(commands[0], pair, wait=[(gate, 1)])
        with monkeypatch.context() as patch:
            break_(patch, where, gone if last else one)
            failed = device.compute.submit(commands[where == "copy"], pair, signal=[(line, 1)])
            dependent = other.compute.submit(_copies(other), wait=[(line, 1)])
            kind_of = DeviceLostError if last else DeviceError
            for each in (failed, dependent):
                with pytest.raises(kind_of, match=rf"{where} failed\n  at command \d of .* on {device.name}"):
                    each.wait(PATIENCE_S)
            assert failed.error is dependent.error
        if last:
            for use in (lambda: waiting.wait(PATIENCE_S), lambda: device.allocate(8)):
                with pytest.raises(DeviceLostError, match=f"{where} failed"):
                    use()
        else:
            assert type(failed.error) is not DeviceLostError
            gate.signal(1)
            waiting.wait(PATIENCE_S)
        other.compute.submit(_copies(other)).wait(PATIENCE_S)


@pytest.mark.parametrize("kind", [pytest.param("opencl", marks=needs_opencl), "cuda"])
@pytest.mark.parametrize("last", [False, True], ids=["no memory", "the device"])
def test_what_a_driver_says_of_memory(monkeypatch: pytest.MonkeyPatch, kind: str, *, last: bool) -> None:
    """No memory is an error of who asked for it; a device that is gone is lost."""
    open_, _, break_, _, gone = KINDS[kind]
    none = {"opencl": -4, "cuda": cuda.OUT_OF_MEMORY}[kind]
    with open_() as device:
        mine = device.upload(X)
        with monkeypatch.context() as patch:
            break_(patch, "memory", gone if last else none)
            with pytest.raises(DeviceLostError if last else DeviceMemoryError, match="memory failed"):
                device.allocate(1 << 20, "yours")
        if last:
            with pytest.raises(DeviceLostError, match="memory failed"):
                device.upload(X)
        else:
            np.testing.assert_array_equal(device.download(mine, np.int64, (COUNT,)), X)


def test_a_lost_device_that_refuses_everything_can_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    device = test_cuda.opened()
    device.load(test_cuda.code())
    device.upload(X)
    for name in ("cuMemFree", "cuModuleUnload"):
        monkeypatch.setattr(FakeDriver, name, lambda self, *_: (700,))
    monkeypatch.setattr(FakeDriver, "cuGetErrorName", lambda self, number: (0, b"gone"))
    device.lose(DeviceLostError("it was unplugged"))
    device.close()
    assert device.closed


def test_a_lost_device_that_still_runs_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.runtime.hal.device._LOST_S", 0.05)
    device, begins, hangs = open_cores("hangs", (0,), 1), threading.Event(), Timeline("hangs")
    run = device.engine.run

    def stuck(*arguments: Any) -> bool:
        begins.set()
        hangs.wait(1)
        return run(*arguments)

    monkeypatch.setattr(device.engine, "run", stuck)
    pair = [device.allocate(X.nbytes), device.allocate(X.nbytes)]
    submission = device.compute.submit(_commands(device, test_cpu.increment())[0], pair)
    assert begins.wait(PATIENCE_S)
    device.lose(DeviceLostError("hangs was unplugged"))
    with pytest.raises(DeviceLostError, match="was unplugged"):
        submission.wait(PATIENCE_S)
    device.close()
    assert device.allocator.statistics.live  # what runs may still write to it
    hangs.signal(1)


def _commands(device: Device, code: Code) -> tuple[CommandBuffer, CommandBuffer]:
    """Of two slots: a dispatch, and a copy that comes from this process."""
    executable = device.load(code)
    slots = [Slot(0, 0, X.nbytes), Slot(1, 0, X.nbytes)]
    dispatch, copy = device.record("dispatch"), device.record("copy")
    dispatch.dispatch(executable, 0, slots, 1 if device.info.driver == "cuda" else COUNT)
    copy.copy(host_buffer(X), slots[1])
    return dispatch.finish(), copy.finish()


def _copies(device: Device) -> CommandBuffer:
    recorder = device.record("others")
    recorder.fill(device.allocate(8), bytes(8))
    return recorder.finish()
