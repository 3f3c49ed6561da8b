"""Tests on a GPU of NVIDIA: the answers of its kernels beside the interpreter's, and the suite of devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune import cuda
from autotune.codegen import interpreter
from autotune.codegen.backend import backend_for
from autotune.errors import AutotuneError
from autotune.lower import LoopProgram, lower_schedule
from autotune.runtime.hal.cuda.driver import CudaDriver
from autotune.runtime.hal.device import Device
from autotune.runtime.hal.executable import Code, EntryPoint
from autotune.target import Target
from search_spaces.programs.warp_products import WarpTiles
from tests.codegen.test_nvptx import numbers, product
from tests.codegen.test_tensor_cores import DTYPES, scheduled
from tests.runtime.hal import test_cuda
from tests.runtime.hal.conformance import DeviceConformance
from tests.schedule.three_ways import random_case


def _missing() -> str:
    try:
        return "" if cuda.count() else "this machine has no GPU of NVIDIA"
    except AutotuneError as error:
        return str(error)


pytestmark = pytest.mark.skipif(bool(_missing()), reason=_missing() or "there is one")


def opened() -> Device:
    device = CudaDriver().open("cuda")
    assert device is not None
    return device


class TestDevice(DeviceConformance):
    test_a_dispatch_runs_every_tile = test_cuda.TestCuda.test_a_dispatch_runs_every_tile

    def open(self) -> Device:
        return opened()

    def code(self) -> Code:
        return test_cuda.code()


def on_device(program: LoopProgram, inputs: dict[str, Any]) -> dict[str, Any]:
    """Outputs by name."""
    with opened() as device:
        target = device.info.target
        assert target is not None
        code = backend_for(target.arch).compile(program, target)
        entries = tuple(EntryPoint(0, k.symbol, len(k.buffers)) for k in code.kernels)
        executable = device.load(Code("ptx", (code.object_code,), entries))
        buffers = []
        for spec in code.buffers:
            array = np.zeros(spec.nbytes, np.uint8)
            if spec.name in inputs:
                array[...] = np.ascontiguousarray(inputs[spec.name]).reshape(-1).view(np.uint8)
            buffers.append(device.upload(array))
        recorder = device.record()
        for number, kernel in enumerate(code.kernels):
            recorder.dispatch(executable, number, [buffers[b] for b in kernel.buffers], 1)
            recorder.barrier()
        device.compute.submit(recorder.finish()).wait()
        return {
            spec.name: device.download(buffer, spec.dtype, spec.shape)
            for spec, buffer in zip(code.buffers, buffers, strict=True)
            if spec.role == "output"
        }


def agree(program: LoopProgram, inputs: dict[str, Any], tolerance: float = 1e-5) -> None:
    """The device computes what the interpreter does."""
    wanted = {b.name: np.zeros(b.shape, b.dtype) for b in program.outputs}
    interpreter.run_program(program, {**inputs, **wanted})
    for name, found in on_device(program, inputs).items():
        np.testing.assert_allclose(
            found.astype(np.float64), wanted[name].astype(np.float64), rtol=1e-4, atol=tolerance
        )


def test_a_product_with_shared_tiles() -> None:
    program = lower_schedule(*product(64, 64, 64))
    agree(program, {"A": numbers((64, 64)), "B": numbers((64, 64), seed=1)})


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_tensor_cores(dtype: str, transposed: bool) -> None:
    tiles = WarpTiles(32, 32, 2, 1, 2)
    program = lower_schedule(*scheduled(64, 32, 64, dtype, tiles, transposed=transposed))
    shapes = [argument.shape for argument in program.arguments[:2]]
    agree(program, {name: numbers(shape, dtype) for name, shape in zip("AB", shapes, strict=True)})


@pytest.mark.parametrize("seed", range(1000, 1030))
def test_random_programs(seed: int) -> None:
    case = random_case(seed, threads=True)
    placeholders, _ = case.program.tensors()
    inputs = {p.name: a for p, a in zip(placeholders, case.program.arrays(seed), strict=True)}
    program = case.lowered()
    try:
        backend_for("nvptx64").compile(program, Target.parse("cuda:sm_80"))
    except AutotuneError as error:
        pytest.skip(str(error))
    agree(program, inputs, max(case.program.tolerance, 1e-6))
