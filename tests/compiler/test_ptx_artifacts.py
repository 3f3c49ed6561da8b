"""Artifacts for GPUs of NVIDIA: PTX, with launches, that loads where there is a device only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autotune import cuda
from autotune.codegen.gpu.starts import read_starts
from autotune.codegen.nvptx.assembler import assembled, find_assembler
from autotune.compiler.driver import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.errors import ArtifactError, AutotuneError, UsageError
from autotune.runtime.artifacts import artifact
from autotune.runtime.image import ModuleImage
from autotune.runtime.module import Module
from autotune.runtime.verify import verify


@pytest.fixture(scope="module")
def image() -> ModuleImage:
    return compile_in_detail(CompileRequest("zoo:mlp", target="cuda:sm_90")).image


def test_an_artifact_comes_back(image: ModuleImage, tmp_path: Path) -> None:
    path = tmp_path / "mlp.atm"
    artifact.save(image, path)
    again = artifact.load_image(path)
    assert again.same_code(image)
    assert again.target.cpu == "sm_90"
    for mine, its in zip(image.constants, again.constants, strict=True):
        np.testing.assert_array_equal(mine, its)


def test_every_command_has_a_launch_of_its_buffers(image: ModuleImage) -> None:
    assert image.commands
    for command in image.commands:
        start = read_starts(image.objects[command.object_index], "ptx")[command.symbol]
        assert start.buffers == len(command.bindings)
        assert min(*start.launch.blocks(), *start.launch.block) >= 1


def test_memory_is_where_kernels_take_it(image: ModuleImage) -> None:
    """Kernels read 16 bytes at a time."""
    assert all(binding.offset % 16 == 0 for command in image.commands for binding in command.bindings)


@pytest.mark.skipif(find_assembler() is None, reason="needs ptxas (pip install 'autotune-compiler[cuda]')")
def test_the_assembler_takes_a_model(image: ModuleImage) -> None:
    costs = [cost for each in image.objects for cost in assembled(each, "sm_90")]
    assert {cost.symbol for cost in costs} >= {command.symbol for command in image.commands}
    assert not any(cost.spilled_bytes for cost in costs)


def test_a_damaged_launch_is_refused(image: ModuleImage) -> None:

    damaged = tuple(each.replace(b'"grid":[', b'"grid":[0,', 1) for each in image.objects)
    with pytest.raises(ArtifactError, match="not PTX of this package"):
        verify(replace(image, objects=damaged))


def test_a_module_of_this_machine_says_that_it_is_for_a_device(image: ModuleImage) -> None:
    with pytest.raises(
        UsageError, match=r"compiled for nvptx64 .*, and there is no such device here\n.*`autotune devices`"
    ):
        Module(image)


def test_without_a_driver_the_device_says_so(image: ModuleImage) -> None:
    try:
        cuda.count()
    except AutotuneError as error:
        assert "NVIDIA" in str(error)  # noqa: PT017  # a machine with a device has no error
