"""The backends that there are, and what all of them must do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from autotune import te
from autotune.codegen.backend import BACKENDS, backend_for, compile_schedule
from autotune.codegen.code import DispatchCode, Kernel
from autotune.codegen.interpreter.backend import InterpretedCode
from autotune.codegen.jit import LoadedCode
from autotune.codegen.numba.backend import NumbaCode
from autotune.errors import TargetError
from autotune.target import Target
from tests.codegen.conformance import Conformance, Entry
from tests.codegen.native import call_kernel
from tests.codegen.opencl_device import DeviceCode, bytes_of, needs_opencl, opencl_target
from tests.schedule.machine import host, runnable_target


@pytest.mark.registers
class TestLlvm(Conformance):
    @pytest.fixture(params=["host", "x86-64-v3", "x86-64-v2"])
    def target(self, request: pytest.FixtureRequest) -> Target:
        return host() if request.param == "host" else runnable_target(request.param)

    @pytest.fixture
    def load(self) -> Callable[[DispatchCode], Entry]:
        return _loaded


class TestInterpreter(Conformance):
    @pytest.fixture
    def target(self) -> Target:
        return replace(host(), arch="interpreter")

    @pytest.fixture
    def load(self) -> Callable[[DispatchCode], Entry]:
        return _in_process


class TestNumba(Conformance):
    @pytest.fixture
    def target(self) -> Target:
        return replace(host(), arch="numba")

    @pytest.fixture
    def load(self) -> Callable[[DispatchCode], Entry]:
        return _in_process


@needs_opencl
class TestOpencl(Conformance):
    @pytest.fixture
    def target(self) -> Target:
        return opencl_target()

    @pytest.fixture
    def load(self) -> Callable[[DispatchCode], Entry]:
        return _on_device


def _loaded(code: DispatchCode) -> Entry:
    loaded = LoadedCode([code.object_code])

    def entry(kernel: Kernel, arrays: Sequence[Any], begin: int, end: int) -> None:
        address = loaded.address(0, kernel.symbol)
        call_kernel(address, arrays, end, kernel.scratch_bytes, begin=begin)

    return entry


def _in_process(code: DispatchCode) -> Entry:
    assert isinstance(code, InterpretedCode | NumbaCode)
    return lambda kernel, arrays, begin, end: code.run(code.kernels.index(kernel), arrays, begin, end)


def _on_device(code: DispatchCode) -> Entry:
    loaded = DeviceCode(code)

    def entry(kernel: Kernel, arrays: Sequence[Any], begin: int, end: int) -> None:
        sizes = [code.buffers[b].nbytes for b in kernel.buffers]
        loaded.run(kernel, [bytes_of(a, n) for a, n in zip(arrays, sizes, strict=True)], begin, end)

    return entry


def test_every_backend_that_is_listed_exists() -> None:
    for arch in BACKENDS:
        assert callable(backend_for(arch).compile)


def test_a_target_without_a_backend_is_refused() -> None:
    a = te.placeholder((4,), name="A")
    c = te.compute((4,), lambda i: a[i], name="C")
    with pytest.raises(
        TargetError,
        match="no code generator for z80; known: x86_64, aarch64, opencl, nvptx64, numba, interpreter",
    ):
        compile_schedule(te.create_schedule(c), [a, c], replace(host(), arch="z80"))
