"""Errors of OpenCL drivers as those of devices: which of them end a device, and which only a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autotune.errors import DeviceError, DeviceLostError
from autotune.opencl import pyopencl

_LAST = frozenset({-2, -34, -36, -9999})
"""Numbers after which a device takes no more work: not available, its context or queues are invalid (as drivers of GPUs
make them when one hangs or goes away), and NVIDIA's for a kernel that accessed wrong addresses."""


@contextmanager
def driver_errors(what: str) -> Iterator[None]:
    """Raise an error of the driver as DeviceError, as DeviceLostError where it is the last; ``what`` comes first."""
    try:
        yield
    except pyopencl().Error as error:
        kind = DeviceLostError if error.code in _LAST else DeviceError
        raise kind(f"{what}: {error}") from error


__all__ = ["driver_errors"]
