"""The engine of NVIDIA's GPUs: a stream a thread, memory of the device, kernels that the driver compiles from PTX."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune import cuda
from autotune.codegen.gpu.starts import Start, read_starts
from autotune.errors import BuildError, DeviceError
from autotune.runtime.hal.buffer import Buffer
from autotune.runtime.hal.command_buffer import Command, DispatchCommand
from autotune.runtime.hal.cuda.pinned import CudaPinnedMemory
from autotune.runtime.hal.engine import Stopped, run_each
from autotune.runtime.hal.executable import Code, EntryPoint

_ALIGNMENT = 16
"""Of the addresses that kernels take."""

_FILLS = {
    1: ("cuMemsetD8Async", np.uint8),
    2: ("cuMemsetD16Async", np.uint16),
    4: ("cuMemsetD32Async", np.uint32),
}


class CudaKernel:
    """An entry point: a function of the driver, and how it is started."""

    def __init__(self, function: Any, start: Start) -> None:
        self._function = function
        self._start = start

    def start(self, stream: Any, addresses: Sequence[int]) -> None:
        """Put it into a stream; raises DeviceError for an address that its accesses do not take."""
        crooked = next((n for n, address in enumerate(addresses) if address % _ALIGNMENT), None)
        if crooked is not None:
            raise DeviceError(
                f"buffer {crooked} of a kernel begins at a byte that is no multiple of {_ALIGNMENT}; compile the model "
                f"so that it is copied, or let it be a value of its own"
            )
        values = (tuple(addresses), (ctypes.c_void_p,) * len(addresses))
        launch = self._start.launch
        cuda.call("cuLaunchKernel", self._function, *launch.blocks(), *launch.block, 0, stream, values, 0)


class CudaEngine:
    """Device ``number`` of the driver's. Commands of a thread go to a stream, so that barriers cost nothing."""

    formats: tuple[str, ...] = ("ptx",)
    times_kernels = False

    def __init__(self, name: str, space: str, number: int) -> None:
        self._name = name
        self._space = space
        self._device = cuda.call("cuDeviceGet", number)
        self._context = cuda.call("cuDevicePrimaryCtxRetain", self._device)
        self._threads = threading.local()
        self._modules: list[Any] = []
        self.pinned = CudaPinnedMemory(self._enter)

    # -- memory ----------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> int:
        """Return an address; raises MemoryError."""
        self._enter()
        try:
            return int(cuda.call("cuMemAlloc", max(nbytes, 1)))
        except cuda.CudaError as error:
            if error.code == cuda.OUT_OF_MEMORY:
                raise MemoryError(str(error)) from error
            raise

    def release(self, storage: int) -> None:
        """Free it."""
        self._enter()
        cuda.call("cuMemFree", storage)

    def host_view(self, storage: int) -> None:
        """Return None: this process cannot reach it."""
        return

    # -- commands --------------------------------------------------------------------------------------------

    def load(self, code: Code) -> list[CudaKernel]:
        """Load kernels; raises BuildError."""
        self._enter()
        starts = [read_starts(each, "ptx") for each in code.objects]
        modules = [self._module(each) for each in code.objects]
        return [_kernel(modules[e.object_index], starts[e.object_index], e) for e in code.entries]

    def _module(self, ptx: bytes) -> Any:
        try:
            module = cuda.call("cuModuleLoadData", ptx + b"\0")
        except cuda.CudaError as error:
            raise BuildError(f"the driver of {self._name} does not compile the code: {error}") from error
        self._modules.append(module)
        return module

    def prepare(self, commands: Sequence[Command], slots: int) -> tuple[Command, ...]:
        """Return the commands as they are."""
        return tuple(commands)

    def run(self, name: str, prepared: Any, table: Sequence[Buffer], stopped: Stopped) -> bool:
        """Put all of them into the thread's stream, and wait for it."""
        self._enter()
        return run_each(self, self._space, self._name, name, prepared, table, stopped)

    def dispatch(self, command: DispatchCommand, bindings: Sequence[Buffer]) -> None:
        """Start a kernel; no tiles are nothing."""
        if command.tiles:
            kernel: CudaKernel = command.executable.handle[command.entry]
            kernel.start(self._stream, [_address(buffer) for buffer in bindings])

    def copy_within(self, source: Buffer, target: Buffer) -> None:
        """Copy between buffers."""
        if source.nbytes:
            cuda.call("cuMemcpyDtoDAsync", _address(target), _address(source), source.nbytes, self._stream)

    def read(self, source: Buffer, target: NDArray[np.uint8]) -> None:
        """Copy to this process, after what is before in the stream."""
        if source.nbytes:
            cuda.call("cuMemcpyDtoHAsync", target.ctypes.data, _address(source), source.nbytes, self._stream)
            cuda.call("cuStreamSynchronize", self._stream)

    def write(self, source: NDArray[np.uint8], target: Buffer) -> None:
        """Copy from this process; done at the return."""
        if target.nbytes:
            cuda.call("cuMemcpyHtoDAsync", _address(target), source.ctypes.data, target.nbytes, self._stream)
            cuda.call("cuStreamSynchronize", self._stream)

    def fill(self, target: Buffer, pattern: bytes) -> None:
        """Repeat a pattern."""
        if not target.nbytes:
            return
        if len(pattern) in _FILLS:
            function, kind = _FILLS[len(pattern)]
            value = int(np.frombuffer(pattern, kind)[0])
            cuda.call(function, _address(target), value, target.nbytes // len(pattern), self._stream)
        else:
            whole = np.frombuffer(pattern * (target.nbytes // len(pattern)), np.uint8)
            self.write(whole, target)

    def barrier(self) -> None:
        """Do nothing: commands of a stream run one after another."""

    def finish(self, name: str) -> None:
        """Wait for the stream; raises CudaError."""
        try:
            cuda.call("cuStreamSynchronize", self._stream)
        except cuda.CudaError as error:
            raise type(error)(f"{name} failed on {self._name}: {error}", error.code) from error

    def enter_thread(self) -> None:
        """Do nothing: a thread gets its stream with its first command."""

    def close(self) -> None:
        """Free the code; the context stays with the device, for others that opened it."""
        self._enter()
        for module in self._modules:
            cuda.call("cuModuleUnload", module)
        self._modules.clear()

    def _enter(self) -> None:
        """Make the device's context that of the calling thread."""
        cuda.call("cuCtxSetCurrent", self._context)

    @property
    def _stream(self) -> Any:
        """The calling thread's stream."""
        stream = getattr(self._threads, "stream", None)
        if stream is None:
            stream = self._threads.stream = cuda.call(
                "cuStreamCreate", 1
            )  # not after the default stream's work
        return stream


def _address(buffer: Buffer) -> int:
    return int(buffer.allocation.storage) + buffer.offset


def _kernel(module: Any, starts: dict[str, Start], entry: EntryPoint) -> CudaKernel:
    start = starts.get(entry.symbol)
    if start is None:
        raise BuildError(f"the object code has no kernel {entry.symbol!r}; it has {', '.join(starts)}")
    if start.buffers != entry.bindings:
        raise BuildError(f"{entry.symbol} takes {start.buffers} buffers, the model gives {entry.bindings}")
    return CudaKernel(cuda.call("cuModuleGetFunction", module, entry.symbol.encode()), start)


__all__ = ["CudaEngine", "CudaKernel"]
