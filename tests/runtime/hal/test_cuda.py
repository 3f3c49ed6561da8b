"""NVIDIA's devices do what all devices do, as far as a driver made of this process's memory and an emulator shows."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autotune import cuda, te
from autotune.codegen.backend import compile_schedule
from autotune.codegen.code import DispatchCode
from autotune.errors import BuildError, DeviceError, MissingExtraError, TargetError
from autotune.runtime.hal.buffer import Buffer
from autotune.runtime.hal.cuda.driver import CudaDriver
from autotune.runtime.hal.device import Device
from autotune.runtime.hal.executable import Code, EntryPoint, Executable
from autotune.target import Target
from tests.codegen.gpu_emulated import Emulator
from tests.runtime.hal.conformance import COUNT, DeviceConformance, X

_OUT_OF_MEMORY, _BAD_CODE = 2, 218
_CAPACITY = 1 << 30


class FakeDriver:
    """The part of ``cuda.bindings.driver`` that the engine calls: a device with this process's memory."""

    def __init__(self) -> None:
        self.known: dict[bytes, DispatchCode] = {}
        self.memory: dict[int, Any] = {}
        self.capability = (9, 0)
        self.CUdevice_attribute = SimpleNamespace(
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR="major",
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR="minor",
            CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT="units",
            CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE="l2",
        )

    def cuGetErrorName(self, code: int) -> tuple[int, bytes]:
        return 0, {_OUT_OF_MEMORY: b"CUDA_ERROR_OUT_OF_MEMORY", _BAD_CODE: b"CUDA_ERROR_INVALID_PTX"}[code]

    def cuDeviceGetCount(self) -> tuple[int, int]:
        return 0, 1

    def cuDeviceGet(self, number: int) -> tuple[int, int]:
        return 0, number

    def cuDeviceGetName(self, length: int, device: int) -> tuple[int, bytes]:
        return 0, b"Emulated".ljust(length, b"\0")

    def cuDeviceGetAttribute(self, name: str, device: int) -> tuple[int, int]:
        major, minor = self.capability
        return 0, {"major": major, "minor": minor, "units": 2, "l2": 1 << 20}[name]

    def cuDeviceTotalMem(self, device: int) -> tuple[int, int]:
        return 0, _CAPACITY

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[int, str]:
        return 0, "context"

    def cuCtxSetCurrent(self, context: str) -> tuple[int]:
        assert context == "context"
        return (0,)

    def cuStreamCreate(self, flags: int) -> tuple[int, str]:
        return 0, "stream"

    def cuStreamSynchronize(self, stream: str) -> tuple[int]:
        return (0,)

    def cuMemAlloc(self, nbytes: int) -> tuple[int, int]:
        if nbytes > _CAPACITY:
            return _OUT_OF_MEMORY, 0
        storage = np.zeros(nbytes + 64, np.uint8)
        address = storage.ctypes.data + -storage.ctypes.data % 64
        self.memory[address] = storage
        return 0, address

    def cuMemHostAlloc(self, nbytes: int, flags: int) -> tuple[int, int]:
        assert flags == 1
        return self.cuMemAlloc(nbytes)

    def cuMemFreeHost(self, address: int) -> tuple[int]:
        return self.cuMemFree(address)

    def cuMemFree(self, address: int) -> tuple[int]:
        del self.memory[address]
        return (0,)

    def _move(self, target: int, source: int, nbytes: int, stream: str) -> tuple[int]:
        assert stream == "stream"
        ctypes.memmove(target, source, nbytes)
        return (0,)

    cuMemcpyDtoDAsync = cuMemcpyDtoHAsync = cuMemcpyHtoDAsync = _move

    def cuMemsetD8Async(self, address: int, value: int, count: int, stream: str) -> tuple[int]:
        return self._fill(address, value, count, np.uint8)

    def cuMemsetD16Async(self, address: int, value: int, count: int, stream: str) -> tuple[int]:
        return self._fill(address, value, count, np.uint16)

    def cuMemsetD32Async(self, address: int, value: int, count: int, stream: str) -> tuple[int]:
        return self._fill(address, value, count, np.uint32)

    def _fill(self, address: int, value: int, count: int, kind: Any) -> tuple[int]:
        whole = np.full(count, value, kind)
        return self._move(address, whole.ctypes.data, whole.nbytes, "stream")

    def cuModuleLoadData(self, ptx: bytes) -> tuple[int, Any]:
        assert ptx.endswith(b"\0")
        code = self.known.get(ptx[:-1])
        return (_BAD_CODE, None) if code is None else (0, Emulator(code))

    def cuModuleUnload(self, module: Any) -> tuple[int]:
        return (0,)

    def cuModuleGetFunction(self, module: Emulator, name: bytes) -> tuple[int, Any]:
        kernel = next(k for k in module.code.kernels if k.symbol == name.decode())
        return 0, (module, kernel)

    def cuLaunchKernel(self, function: Any, *rest: Any) -> tuple[int]:
        module, kernel = function
        *sizes, shared, stream, (values, types), extra = rest
        assert tuple(sizes) == (*kernel.launch.grid, *kernel.launch.block)
        assert (shared, stream, extra) == (0, "stream", 0)
        assert all(kind is ctypes.c_void_p for kind in types)
        module.launch(kernel, list(values))
        return (0,)


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    made = FakeDriver()
    monkeypatch.setattr(cuda, "driver", lambda: made)
    made.known[increment().object_code] = increment()
    return made


def increment() -> DispatchCode:
    a = te.placeholder((COUNT,), "int64", name="a")
    b = te.compute((COUNT,), lambda i: a[i] + 1, name="b")
    s = te.create_schedule(b)
    s[b].parallel(s[b].op.axis[0])
    return compile_schedule(s, [a, b], Target.parse("cuda:sm_90"), name="increment")


def code() -> Code:
    return Code("ptx", (increment().object_code,), (EntryPoint(0, "increment_0", 2, label="increment"),))


def opened() -> Device:
    device = CudaDriver().open("cuda")
    assert device is not None
    return device


class TestCuda(DeviceConformance):
    def open(self) -> Device:
        return opened()

    def code(self) -> Code:
        return code()

    def test_a_dispatch_runs_every_tile(self, device: Device, executable: Executable) -> None:
        """A launch runs all tiles, and one without tiles none."""
        source, target = device.upload(X), device.upload(np.full(COUNT, -1))
        for tiles, wanted in ((0, [-1] * COUNT), (1, [*range(1, COUNT + 1)])):
            recorder = device.record()
            recorder.dispatch(executable, 0, [source, target], tiles)
            device.compute.submit(recorder.finish()).wait()
            assert device.download(target, np.int64, (COUNT,)).tolist() == wanted


def test_names_and_targets(fake: FakeDriver) -> None:
    (only,) = CudaDriver().devices()
    assert (only.name, only.description, only.cores) == ("cuda:0", "Emulated, code for sm_90", 2)
    assert only.target == Target.parse("cuda:sm_90")
    for name in ("cuda:1", "cuda:x", "cudas", "cuda:-1"):
        assert CudaDriver().open(name) is None
    fake.capability = (8, 7)
    assert CudaDriver().devices()[0].target == Target.parse("cuda:sm_86")
    fake.capability = (7, 5)
    with pytest.raises(
        TargetError, match=r"a device of compute capability 7\.5; code is made for cuda:sm_80"
    ):
        CudaDriver().devices()


def test_code_that_does_not_fit_is_refused() -> None:
    good = increment().object_code
    with opened() as device:
        for objects, entry, message in (
            ((good,), EntryPoint(0, "other", 2), "no kernel 'other'; it has increment_0"),
            ((good,), EntryPoint(0, "increment_0", 3), "takes 2 buffers, the model gives 3"),
            ((b".version 7.8",), EntryPoint(0, "k", 0), "its first line does not say how"),
            (
                (good + b"nonsense",),
                EntryPoint(0, "increment_0", 2),
                "does not compile the code: .*INVALID_PTX",
            ),
        ):
            with pytest.raises(BuildError, match=message):
                device.load(Code("ptx", objects, (entry,)))


def test_an_address_that_accesses_do_not_take_is_an_error() -> None:
    with opened() as device:
        executable = device.load(code())
        memory = device.upload(np.zeros(2 * COUNT, np.int64))
        parts: list[Buffer] = [memory.slice(8, 8 * COUNT), memory.slice(8 * COUNT, 8 * COUNT)]
        recorder = device.record()
        recorder.dispatch(executable, 0, parts, 1)
        with pytest.raises(
            DeviceError, match="buffer 0 of a kernel begins at a byte that is no multiple of 16"
        ):
            device.compute.submit(recorder.finish()).wait()


def test_without_the_package_or_a_driver_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    cuda.driver.cache_clear()
    try:
        cuda.driver()
    except (MissingExtraError, DeviceError) as error:
        assert any(  # noqa: PT017  # which of them depends on what is installed
            part in str(error)
            for part in ("pip install 'autotune-compiler[cuda]'", "no driver of NVIDIA", "does not start")
        )


def test_messages_have_the_drivers_name_for_an_error(fake: FakeDriver) -> None:
    with pytest.raises(cuda.CudaError, match="cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY") as raised:
        cuda.call("cuMemAlloc", _CAPACITY + 1)
    assert raised.value.code == cuda.OUT_OF_MEMORY


def test_the_launch_is_in_the_first_line() -> None:
    first = increment().object_code.split(b"\n")[0].decode()
    assert first == (
        '// autotune ptx {"increment_0":{"buffers":2,"launch":{"block":[64,1,1],"grid":[1,1,1]}}}'
    )
    assert replace(increment()).kernels[0].tiles == 1
