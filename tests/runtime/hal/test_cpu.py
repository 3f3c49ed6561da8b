"""CPU devices: all cores, and one core with several workers."""

from __future__ import annotations

from autotune.runtime.hal.cpu.cores import core_ids
from autotune.runtime.hal.cpu.driver import CpuDriver, open_cores
from autotune.runtime.hal.device import Device
from autotune.runtime.hal.executable import Code, EntryPoint
from tests.runtime.hal.conformance import DeviceConformance
from tests.runtime.kernels import kernel


def increment() -> Code:
    return Code("elf", (kernel("increment"),), (EntryPoint(0, "k", 2, label="increment"),))


class TestAllCores(DeviceConformance):
    def open(self) -> Device:
        device = CpuDriver().open("cpu")
        assert device is not None
        return device

    def code(self) -> Code:
        return increment()


class TestOneCore(DeviceConformance):
    def open(self) -> Device:
        return open_cores("cpu:0", core_ids()[:1], workers=3)

    def code(self) -> Code:
        return increment()
