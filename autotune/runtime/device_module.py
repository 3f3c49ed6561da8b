"""Models that were compiled for a device beside the CPU, as modules that run there."""

from __future__ import annotations

from autotune.errors import UsageError
from autotune.runtime.device_program import of_image
from autotune.runtime.hal.driver import devices
from autotune.runtime.image import ModuleImage
from autotune.runtime.placed_module import PlacedModule


def on_device(image: ModuleImage) -> PlacedModule:
    """The module of an image on the device that it was compiled for, else on the first of that kind.

    Raises UsageError where there is none, and what loading the code there raises.
    """
    target = image.target
    found = [info for info in devices() if info.target is not None and info.target.arch == target.arch]
    if not found:
        raise UsageError(
            f"{image.name!r} was compiled for {target.arch} ({target.name}), and there is no such device here\n"
            "  `autotune devices` lists those there are"
        )
    own = next((info for info in found if info.target == target), found[0])
    return PlacedModule(of_image(image, own.name))


__all__ = ["on_device"]
