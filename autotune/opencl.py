"""OpenCL devices through pyopencl: which there are, and what each is as a target.

pyopencl (extra ``opencl``) is imported when a device is asked for.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from autotune.distribution import install
from autotune.errors import MissingExtraError, TargetError
from autotune.hardware import instruction_sets
from autotune.pocl import PROCESSORS, name_processor

if TYPE_CHECKING:
    from autotune.target import Target

_KINDS = {"gpu": 4, "accelerator": 8, "cpu": 2}
"""Kinds of devices, the preferred first, and OpenCL's bits for them."""


def pyopencl() -> Any:
    """Return the package; raises MissingExtraError where it is not installed."""
    try:
        import pyopencl
    except ImportError as error:
        raise MissingExtraError(
            f"OpenCL devices need pyopencl and a driver: {install('opencl')}, which brings PoCL, a driver "
            "that runs on the CPU"
        ) from error
    return pyopencl


@cache
def devices() -> tuple[Any, ...]:
    """Return all devices of all platforms: GPUs, accelerators, then CPUs; raises MissingExtraError."""
    cl = pyopencl()
    try:
        platforms = cl.get_platforms()
    except cl.LogicError:
        return ()  # no platform is an error there
    found = [device for platform in platforms for device in _devices_of(platform)]
    for each in found:
        name_processor(each, _level())
    bits = list(_KINDS.values())
    return tuple(
        sorted(found, key=lambda d: next((n for n, bit in enumerate(bits) if d.type & bit), len(bits)))
    )


def _level() -> str:
    """Return the instruction set of this machine's processor.

    Whatever the machine counts as by the settings: the driver's own functions are compiled for the processor.
    """
    from autotune.target import Target

    have = instruction_sets()
    return next((name for name in PROCESSORS if have >= {*Target.parse(name).features}), "x86-64")


def _devices_of(platform: Any) -> list[Any]:
    try:
        return list(platform.get_devices())
    except pyopencl().RuntimeError:
        return []  # a platform without devices is an error there


def device(name: str) -> Any:
    """Return the device that ``opencl`` (the first) or ``opencl:NUMBER`` means; raises TargetError,
    MissingExtraError."""
    every = devices()
    number = name.removeprefix("opencl").removeprefix(":") or "0"
    if not every:
        raise TargetError(
            "there is no OpenCL device: no platform was found; pip install pocl-binary-distribution"
        )
    if not number.isascii() or not number.isdigit() or int(number) >= len(every):
        listed = "".join(f"\n  opencl:{n}  {each.name.strip()}" for n, each in enumerate(every))
        raise TargetError(f"no OpenCL device {name!r}; there are{listed}")
    return every[int(number)]


def kind(of: Any) -> str:
    """Return whether a device is a "gpu", an "accelerator" or a "cpu"."""
    return next((name for name, bit in _KINDS.items() if of.type & bit), "accelerator")


def description(of: Any) -> str:
    """Return a device's processor, and which driver runs it: "AMD EPYC, by PoCL 3.0-rc2 (OpenCL 3.0)"."""
    name, platform = str(of.name).strip(), str(of.platform.version).strip()
    standard = " ".join(platform.split()[:2])  # "OpenCL 3.0", and then whatever the driver likes
    if "PoCL" in platform:
        processor = name.removeprefix("pthread-").removeprefix("cpu-").removeprefix("basic-")
        return f"{processor}, by PoCL {str(of.driver_version).strip()} ({standard})"
    return f"{name}, by {str(of.platform.name).strip()} {str(of.driver_version).strip()} ({standard})"


def target_of(of: Any) -> Target:
    """Return the target of code for a device."""
    from autotune.target import Target

    features = [kind(of)]
    features += ["fp64"] if of.double_fp_config else []
    features += ["local"] if of.local_mem_type == pyopencl().device_local_mem_type.LOCAL else []
    cache_bytes = int(of.global_mem_cache_size)
    return Target(
        "opencl",
        "opencl",
        tuple(sorted(features)),
        32 * max(1, int(of.native_vector_width_float)),
        cores=int(of.max_compute_units),
        threads=int(of.max_compute_units),
        l3_bytes=cache_bytes or 1 << 20,
        device=str(of.name).strip(),
        group_items=int(of.max_work_group_size),
        shared_bytes=int(of.local_mem_size),
        driver=f"{of.platform.name} {of.driver_version}".strip(),
    )


def target_named(name: str) -> Target:
    """Return the target of ``opencl`` or ``opencl:NUMBER``; raises TargetError, MissingExtraError."""
    return target_of(device(name))


__all__ = ["description", "device", "devices", "kind", "pyopencl", "target_named", "target_of"]
