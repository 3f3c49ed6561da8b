"""NVIDIA's GPUs through cuda-bindings: the driver's functions, with their errors as exceptions.

cuda-bindings (extra ``cuda``) is imported when a device is asked for.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from autotune.distribution import install
from autotune.errors import DeviceError, DeviceLostError, MissingExtraError, TargetError

if TYPE_CHECKING:
    from autotune.target import Target


@cache
def driver() -> Any:
    """Return the package, with the driver started; raises MissingExtraError without it, DeviceError
    without a driver."""
    try:
        from cuda.bindings import driver as found
    except ImportError as error:
        raise MissingExtraError(
            f"NVIDIA's devices need cuda-bindings: {install('cuda')}, and a driver of NVIDIA"
        ) from error
    try:
        (result,) = found.cuInit(0)
    except RuntimeError as error:  # cuda-bindings looks for the driver's library with the first call
        raise DeviceError(f"this machine has no driver of NVIDIA: {str(error).splitlines()[0]}") from error
    if int(result):
        raise DeviceError(f"the driver of NVIDIA does not start: {_name(found, result)}")
    return found


class CudaError(DeviceError):
    """A function of the driver failed; ``code`` is its number."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class CudaLostError(CudaError, DeviceLostError):
    """... and it will fail from now on: the driver gives every later call in this process the same error."""


OUT_OF_MEMORY = 2
"""Number of the error for a device without memory."""

_LAST = frozenset({46, 101, 201, 214, 220, 226, 700, 702, 709, 714, 715, 716, 717, 718, 719, 721})
"""Numbers of errors after which a device takes no more work: it is not there any more or its context is gone, memory
that broke, and what a kernel did that may have spoilt its memory (wrong addresses, instructions, time-outs)."""


def call(function: str, *arguments: Any) -> Any:
    """Return the result of a function of the driver; raises CudaError with its name."""
    found = driver()
    result, *values = getattr(found, function)(*arguments)
    if int(result):
        kind = CudaLostError if int(result) in _LAST else CudaError
        raise kind(f"{function}: {_name(found, result)}", int(result))
    return values[0] if len(values) == 1 else tuple(values)


def _name(found: Any, result: Any) -> str:
    _, name = found.cuGetErrorName(result)
    return name.decode() if isinstance(name, bytes) else str(result)


def count() -> int:
    """Return the number of devices; raises MissingExtraError, DeviceError."""
    driver()
    return int(call("cuDeviceGetCount"))


def attribute(device: Any, name: str) -> int:
    """Return a number that the driver knows of a device, by the name of its ``CUdevice_attribute``."""
    key = getattr(driver().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(call("cuDeviceGetAttribute", key, device))


def target_of(device: Any) -> Target:
    """Return the latest kind of code that a device runs; raises TargetError for older ones."""
    from autotune.target import NVIDIA, Target

    capability = 10 * attribute(device, "COMPUTE_CAPABILITY_MAJOR") + attribute(
        device, "COMPUTE_CAPABILITY_MINOR"
    )
    known = [name for name in NVIDIA if int(name.rpartition("_")[2]) <= capability]
    if not known:
        raise TargetError(
            f"a device of compute capability {capability / 10}; code is made for {', '.join(NVIDIA)}"
        )
    return Target.parse(known[-1])


__all__ = ["OUT_OF_MEMORY", "CudaError", "CudaLostError", "attribute", "call", "count", "driver", "target_of"]
