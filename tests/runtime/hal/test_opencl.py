"""OpenCL devices do what all devices do."""

from __future__ import annotations

import pytest

from autotune import te
from autotune.codegen.backend import compile_schedule
from autotune.errors import BuildError
from autotune.runtime.hal.device import Device
from autotune.runtime.hal.executable import Code, Entry
from autotune.runtime.hal.opencl.driver import OpenclDriver
from autotune.target import Target
from tests.codegen.opencl_device import needs_opencl
from tests.runtime.hal.conformance import COUNT, DeviceConformance

pytestmark = needs_opencl


def opened(name: str) -> Device:
    device = OpenclDriver().open(name)
    assert device is not None
    return device


def increment() -> Code:
    a = te.placeholder((COUNT,), "int64", name="a")
    b = te.compute((COUNT,), lambda i: a[i] + 1, name="b")
    s = te.create_schedule(b)
    s[b].parallel(s[b].op.axis[0])
    code = compile_schedule(s, [a, b], Target.parse("opencl-generic"), name="increment")
    return Code("opencl-c", (code.object_code,), (Entry(0, "increment_0", 2, label="increment"),))


class TestOpencl(DeviceConformance):
    def open(self) -> Device:
        return opened("opencl")

    def code(self) -> Code:
        return increment()


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
            ((source,), Entry(0, "other", 2), "no kernel 'other'; it has increment_0"),
            ((source,), Entry(0, "increment_0", 3), "takes 2 buffers, the model gives 3"),
            ((b"__kernel void k() {}",), Entry(0, "k", 0), "its first line does not say how"),
            ((source.replace(b"return;", b"retrun;"),), Entry(0, "increment_0", 2), "does not compile"),
        ):
            with pytest.raises(BuildError, match=message):
                device.load(Code("opencl-c", objects, (entry,)))
