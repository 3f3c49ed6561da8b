"""Models that were compiled for a device beside the CPU, as modules that run there."""

from __future__ import annotations

from autotune.errors import UsageError
from autotune.runtime.device_program import of_image
from autotune.runtime.hal.device import DeviceInfo
from autotune.runtime.hal.driver import devices
from autotune.runtime.image import ModuleImage
from autotune.runtime.placed_module import PlacedModule
from autotune.target import Target


def on_device(image: ModuleImage) -> PlacedModule:
    """The module of an image on the device that it was compiled for, else on the first of that kind.

    Raises UsageError where there is none, and what loading the code there raises.
    """
    target = image.target
    own = device_for(target)
    if own is None:
        raise UsageError(
            f"{image.name!r} was compiled for {target.arch} ({target.name}), and there is no such device here\n"
            "  `autotune devices` lists those there are"
        )
    return PlacedModule(of_image(image, own.name))


def device_for(target: Target) -> DeviceInfo | None:
    """The device that code for ``target`` is made for, else the first of that kind; None where there is none."""
    found = [info for info in devices() if info.target is not None and info.target.arch == target.arch]
    return next((info for info in found if info.target == target), found[0] if found else None)


__all__ = ["device_for", "on_device"]
