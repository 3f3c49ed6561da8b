"""The driver of CPU devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from autotune.hardware import cache_sizes, device_name, usable_memory
from autotune.runtime.hal.buffer import HOST_SPACE
from autotune.runtime.hal.cpu.cores import core_ids, cores_of, parts, workers_of
from autotune.runtime.hal.device import Device, DeviceInfo
from autotune.runtime.hal.slowdown import described, slowdown_of
from autotune.target import Target


class CpuDriver:
    """``cpu`` is all cores of this process, ``cpu:0`` and so on are parts of them; see
    :func:`autotune.runtime.hal.cpu.cores.cores_of` for more names."""

    name = "cpu"

    def devices(self) -> Sequence[DeviceInfo]:
        """Return all cores, then their parts."""
        names = {"cpu": core_ids(), **{f"cpu:{number}": part for number, part in enumerate(parts())}}
        return [_info(name, cores) for name, cores in names.items()]

    def open(self, name: str) -> Device | None:
        """Return a device by name; None for none. Raises UsageError for cores that this process may not use."""
        cores = cores_of(name)
        return None if cores is None else open_cores(name, cores)


def open_cores(name: str, cores: tuple[int, ...], workers: int | None = None) -> Device:
    """Return a device of these cores; ``workers`` are by default one a core. Raises UsageError for a wrong setting."""
    from autotune.runtime.hal.cpu.engine import CpuEngine

    info = _info(name, cores)
    if workers is not None:
        info = replace(info, cores=workers)
    bound = cores if set(cores) != set(core_ids()) else ()
    return Device(info, CpuEngine(name, info.cores, bound, slowdown_of(name)))


def _info(name: str, cores: tuple[int, ...]) -> DeviceInfo:
    workers = workers_of(cores)
    return DeviceInfo(
        name=name,
        driver="cpu",
        kind="cpu",
        description=described(device_name(), name),
        cores=workers,
        memory_bytes=usable_memory(),
        space=HOST_SPACE,
        caches=cache_sizes(),
        core_ids=cores,
        find_target=partial(Target.detect, workers),
    )


__all__ = ["CpuDriver", "open_cores"]
