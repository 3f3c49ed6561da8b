"""The devices that there are, by driver and name: ``cpu``, ``cpu:0``, ..."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Protocol

from autotune.errors import DeviceError, DeviceLostError, MissingExtraError, UsageError
from autotune.runtime.hal.device import Device, DeviceInfo


class Driver(Protocol):
    """Finds and opens the devices of a kind; importing its module loads nothing heavy."""

    name: str

    def devices(self) -> Sequence[DeviceInfo]:
        """Return the devices; raises MissingExtraError without the package that it needs, DeviceError
        where that fails."""

    def open(self, name: str) -> Device | None:
        """Return a device by its name or a description that this driver understands; None where it is
        none of its own."""


DRIVERS: Mapping[str, str] = {
    "cpu": "autotune.runtime.hal.cpu.driver:CpuDriver",
    "opencl": "autotune.runtime.hal.opencl.driver:OpenclDriver",
    "cuda": "autotune.runtime.hal.cuda.driver:CudaDriver",
}
"""Module and class of each driver; names of its devices begin with its own."""

_opened: dict[str, Device] = {}


@cache
def driver(name: str) -> Driver:
    """Return a driver by name."""
    module, kind = DRIVERS[name].split(":")
    made: Driver = getattr(import_module(module), kind)()
    return made


def devices(*drivers: str) -> list[DeviceInfo]:
    """Return all devices that can be used here, of the drivers of these names or of all."""
    return [info for name in drivers or DRIVERS for info in _found(name)[0]]


def absent() -> dict[str, str]:
    """Return drivers that cannot be used here, and why."""
    return {name: reason for name in DRIVERS if (reason := _found(name)[1])}


def open_device(name: str) -> Device:
    """Return a device by name; one that is open already is returned again. Raises UsageError, which
    lists those there are."""
    found = _opened.get(name)
    if found is not None and not found.closed:
        return found
    kind = next((each for each in DRIVERS if name.startswith(each)), None)
    opened = driver(kind).open(name) if kind else None
    if opened is None:
        known = [f"{info.name} ({info.description})" for info in devices()]
        missing = [f"{each}: {reason}" for each, reason in absent().items()]
        raise UsageError(f"no device {name!r}; there are\n  " + "\n  ".join([*known, *missing]))
    return _opened.setdefault(name, opened) if found is None else _reopened(name, opened)


def _reopened(name: str, opened: Device) -> Device:
    _opened[name] = opened
    return opened


def _found(name: str) -> tuple[Sequence[DeviceInfo], str]:
    try:
        return driver(name).devices(), ""
    except (MissingExtraError, DeviceError) as error:
        return (), str(error)


def _lose_all() -> None:
    """Lose all devices in the child of a fork, where their threads do not exist."""
    for device in _opened.values():
        device.lose(
            DeviceLostError(f"{device.name} was opened before this process was forked: open it again")
        )
    _opened.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lose_all)

__all__ = ["DRIVERS", "Driver", "absent", "devices", "driver", "open_device"]
