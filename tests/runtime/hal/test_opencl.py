"""OpenCL devices do what all devices do."""

from __future__ import annotations

import numpy as np
import pytest

from autotune import te
from autotune.codegen.backend import compile_schedule
from autotune.errors import BuildError, UsageError
from autotune.opencl import devices
from autotune.runtime.hal.buffer import HOST_SPACE, host_buffer
from autotune.runtime.hal.command_buffer import Slot
from autotune.runtime.hal.device import Device
from autotune.runtime.hal.executable import Code, EntryPoint
from autotune.runtime.hal.opencl.driver import OpenclDriver, open_number
from autotune.runtime.hal.opencl.shared import _in_place, context_of, shares_memory
from autotune.target import Target
from tests.codegen.opencl_device import needs_opencl
from tests.runtime.hal.conformance import COUNT, DeviceConformance

pytestmark = needs_opencl


def opened(name: str) -> Device:
    """With memory of its own, as GPUs have it."""
    return open_number(name, 0, own_memory=True)


def increment() -> Code:
    a = te.placeholder((COUNT,), "int64", name="a")
    b = te.compute((COUNT,), lambda i: a[i] + 1, name="b")
    s = te.create_schedule(b)
    s[b].parallel(s[b].op.axis[0])
    code = compile_schedule(s, [a, b], Target.parse("opencl-generic"), name="increment")
    return Code("opencl-c", (code.object_code,), (EntryPoint(0, "increment_0", 2, label="increment"),))


class TestSharedMemory(DeviceConformance):
    """The suite on the driver's device: on a processor, this process's memory is used in place."""

    def open(self) -> Device:
        device = OpenclDriver().open("opencl")
        assert device is not None
        return device

    def code(self) -> Code:
        return increment()


class TestOpencl(DeviceConformance):
    def open(self) -> Device:
        return opened("opencl")

    def code(self) -> Code:
        return increment()


def test_kernels_of_processors_use_arrays_where_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    if not shares_memory(0):
        pytest.skip("this device copies what buffers are made over")
    source, memory = np.arange(COUNT, dtype=np.int64), np.zeros(8 * COUNT + 8, np.uint8)
    source.flags.writeable = False
    target = memory[8:].view(np.int64)
    with TestSharedMemory().open() as device:
        assert device.space == HOST_SPACE
        recorder = device.record()
        recorder.dispatch(
            device.load(increment()), 0, [Slot(0, 0, source.nbytes), Slot(1, 0, source.nbytes)], COUNT
        )
        device.compute.submit(recorder.finish(), [host_buffer(source), host_buffer(target)]).wait()
        assert target.tolist() == (source + 1).tolist()
        monkeypatch.setenv("AUTOTUNE_OPENCL_MEMORY", "own")
        assert OpenclDriver().devices()[0].space == "opencl 0"
        with (
            opened("opencl") as other,
            pytest.raises(UsageError, match=r"cannot use .* on opencl: copy it there"),
        ):
            other.record().dispatch(
                other.load(increment()), 0, [host_buffer(source), host_buffer(target)], COUNT
            )


def test_a_driver_that_copies_shares_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    cl = pytest.importorskip("pyopencl")

    buffer = cl.Buffer

    def copying(context: object, flags: int, hostbuf: np.ndarray) -> object:
        return buffer(
            context, flags & ~cl.mem_flags.USE_HOST_PTR | cl.mem_flags.COPY_HOST_PTR, hostbuf=hostbuf
        )

    context = context_of(devices()[0])
    with monkeypatch.context() as patch:
        patch.setattr(cl, "Buffer", copying)
        assert not _in_place(devices()[0], 0)
    assert context is context_of(devices()[0])
    assert shares_memory(0) == _in_place(devices()[0], 0)


def test_names() -> None:
    (first, *_) = OpenclDriver().devices()
    assert first.name == "opencl:0"
    assert first.target == Target.parse("opencl:0") == Target.parse("opencl")
    for name in ("opencl:99", "opencl:x", "opencls", "opencl:-1"):
        assert OpenclDriver().open(name) is None


def test_code_that_does_not_fit_is_refused() -> None:
    good = increment()
    source = good.objects[0]
    with opened("opencl") as device:
        for objects, entry, message in (
            ((source,), EntryPoint(0, "other", 2), "no kernel 'other'; it has increment_0"),
            ((source,), EntryPoint(0, "increment_0", 3), "takes 2 buffers, the model gives 3"),
            ((b"__kernel void k() {}",), EntryPoint(0, "k", 0), "its first line does not say how"),
            ((source.replace(b"return;", b"retrun;"),), EntryPoint(0, "increment_0", 2), "does not compile"),
        ):
            with pytest.raises(BuildError, match=message):
                device.load(Code("opencl-c", objects, (entry,)))
