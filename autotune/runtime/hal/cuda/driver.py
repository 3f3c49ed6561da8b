"""The driver of NVIDIA's GPUs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from autotune import cuda
from autotune.runtime.hal.device import Device, DeviceInfo

_NAME = re.compile(r"cuda(?::(\d+))?")
_LONGEST_NAME = 256


class CudaDriver:
    """``cuda:0`` and so on are the devices in the driver's order; ``cuda`` is the first."""

    name = "cuda"

    def devices(self) -> Sequence[DeviceInfo]:
        """Return all devices; raises MissingExtraError without cuda-bindings, DeviceError without a driver."""
        return [_info(f"cuda:{number}", number) for number in range(cuda.count())]

    def open(self, name: str) -> Device | None:
        """Return a device by name; None for none."""
        found = _NAME.fullmatch(name)
        number = int(found[1] or 0) if found else 0
        if found is None or number >= cuda.count():
            return None
        from autotune.runtime.hal.cuda.engine import CudaEngine

        return Device(_info(name, number), CudaEngine(name, _space(number), number))


def _info(name: str, number: int) -> DeviceInfo:
    device = cuda.call("cuDeviceGet", number)
    called = cuda.call("cuDeviceGetName", _LONGEST_NAME, device)
    target = cuda.target_of(device)
    return DeviceInfo(
        name=name,
        driver="cuda",
        kind="gpu",
        description=f"{called.rstrip(bytes(1)).decode()}, code for {target.cpu}",
        cores=cuda.attribute(device, "MULTIPROCESSOR_COUNT"),
        memory_bytes=int(cuda.call("cuDeviceTotalMem", device)),
        space=_space(number),
        caches={2: cuda.attribute(device, "L2_CACHE_SIZE")},
        find_target=lambda: target,
    )


def _space(number: int) -> str:
    """Return openings of a device share its memory."""
    return f"cuda {number}"


__all__ = ["CudaDriver"]
