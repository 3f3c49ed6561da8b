"""Code that was compiled for a device beside the CPU, and the devices here that can run it."""

from __future__ import annotations

from autotune.errors import UsageError
from autotune.runtime.hal.device import DeviceInfo
from autotune.runtime.hal.driver import devices
from autotune.runtime.image import ModuleImage
from autotune.runtime.programs.device_program import DeviceProgram, of_image
from autotune.target import Target

_DRIVERS = {"opencl": "opencl", "nvptx64": "cuda"}
"""By the architecture of code."""
_KINDS = {"accelerator", "cpu", "gpu", "local"}
"""Features that say what suits a device, not what it can run."""


def on_device(image: ModuleImage) -> DeviceProgram:
    """Return the program of an image on the device that it was compiled for, else on the first of that kind.

    Raises UsageError where there is none.
    """
    target = image.target
    found = device_for(target)
    if found is None:
        raise UsageError(
            f"{image.name!r} was compiled for {target.arch} ({target.name}), and there is no such device here\n"
            "  `autotune devices` lists those there are"
        )
    return of_image(image, found.name)


def device_for(target: Target) -> DeviceInfo | None:
    """Return the device that code for a target was compiled for, else the first that can run it; None
    where none can."""
    if target.arch not in _DRIVERS:
        return None
    every = devices(_DRIVERS[target.arch])  # what others need, such as LLVM, may not be here
    found = [info for info in every if info.target is not None and _runs(info.target, target)]
    return next((info for info in found if info.target == target), found[0] if found else None)


def _runs(device: Target, code: Target) -> bool:
    """Return whether a device has what code for another one may use. That it is no GPU only makes it slow."""
    if device.arch != code.arch or (code.is_nvidia and _capability(device) < _capability(code)):
        return False
    return (
        {*code.features} - _KINDS <= {*device.features}
        and device.group_items >= code.group_items
        and device.shared_bytes >= code.shared_bytes
    )


def _capability(target: Target) -> int:
    """Return the capability of a GPU of NVIDIA: 90 for sm_90."""
    return int(target.cpu.rpartition("_")[2])


__all__ = ["device_for", "on_device"]
