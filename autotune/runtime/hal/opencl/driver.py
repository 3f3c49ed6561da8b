"""The driver of OpenCL devices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from autotune.hardware import cache_sizes
from autotune.opencl import description, devices, kind, target_of
from autotune.runtime.hal.cpu.cores import core_ids
from autotune.runtime.hal.device import Device, DeviceInfo
from autotune.runtime.hal.opencl.shared import own_space, space_of
from autotune.runtime.hal.slowdown import described, slowdown_of

_NAME = re.compile(r"opencl(?::(\d+))?")


class OpenclDriver:
    """``opencl:0`` and so on are the devices of all platforms, GPUs first; ``opencl`` is the first."""

    name = "opencl"

    def devices(self) -> Sequence[DeviceInfo]:
        """Return all devices; raises MissingExtraError without pyopencl."""
        return [_info(f"opencl:{number}", number) for number in range(len(devices()))]

    def open(self, name: str) -> Device | None:
        """Return a device by name; None for none."""
        found = _NAME.fullmatch(name)
        number = int(found[1] or 0) if found else 0
        if found is None or number >= len(devices()):
            return None
        return open_number(name, number)


def open_number(name: str, number: int, *, own_memory: bool = False) -> Device:
    """Open device ``number`` of all under a name; with ``own_memory`` it uses none of this process's in place."""
    from autotune.runtime.hal.opencl.engine import OpenclEngine

    info = _info(name, number)
    if own_memory:
        info = replace(info, space=own_space(number))
    return Device(info, OpenclEngine(name, info.space, devices()[number], slowdown_of(name)))


def _info(name: str, number: int) -> DeviceInfo:
    device = devices()[number]
    target, on_cpu = target_of(device), kind(device) == "cpu"
    cached = int(device.global_mem_cache_size)
    return DeviceInfo(
        name=name,
        driver="opencl",
        kind=kind(device),
        description=described(description(device), name),
        cores=target.cores,
        memory_bytes=int(device.global_mem_size),
        space=space_of(number),
        # OpenCL says how large one cache is and not which: before the memory of a GPU that is its second.
        caches=cache_sizes() if on_cpu else {2: cached} if cached else {},
        core_ids=core_ids() if on_cpu else (),  # its threads are bound to none of them
        find_target=lambda: target,
    )


__all__ = ["OpenclDriver", "open_number"]
