"""Code of a device, compiled by the device's driver where it is built: what measures it finds it compiled."""

from __future__ import annotations

from autotune.codegen.code import DispatchCode
from autotune.runtime.hal.executable import Code, EntryPoint
from autotune.runtime.hal.opencl.engine import OpenclEngine
from autotune.runtime.hal.recording import FORMATS
from autotune.target import Target
from autotune.tuning.measure.device_run import device_of


def driver_build(code: DispatchCode, target: Target) -> None:
    """Load code on the device, and let an OpenCL driver make machine code of it, which it keeps in a cache of files.

    Nothing is run. Raises BuildError for what the driver does not compile, DeviceError and MeasureError.
    """
    device = device_of(target)
    kernels = [kernel for kernel in code.kernels if not kernel.hoisted]
    entries = tuple(EntryPoint(0, kernel.symbol, len(kernel.buffers)) for kernel in kernels)
    executable = device.load(Code(FORMATS[target.arch], (code.object_code,), entries))
    if isinstance(device.engine, OpenclEngine):
        binding = device.allocate(1, "compiling")
        try:
            device.engine.compile(executable.handle, [kernel.tiles for kernel in kernels], binding)
        finally:
            binding.free()


__all__ = ["driver_build"]
