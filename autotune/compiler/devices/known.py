"""Devices of this machine, and what to compile for each."""

from __future__ import annotations

from autotune.errors import PlacementError
from autotune.runtime.hal.device import DeviceInfo
from autotune.target import Target


def known_devices() -> dict[str, DeviceInfo]:
    """Return the devices that there are, by name."""
    from autotune.runtime.hal.driver import devices

    return {info.name: info for info in devices()}


def target_of(info: DeviceInfo) -> Target:
    """Return the target to compile for on a device; raises PlacementError where there is no compiler for it."""
    if info.target is None:
        raise PlacementError(f"there is no compiler for device {info.name} ({info.description}) yet")
    return info.target


__all__ = ["known_devices", "target_of"]
