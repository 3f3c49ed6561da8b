"""Whole models on an OpenCL device: answers of the CPU, artifacts, errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune.codegen.gpu.starts import language_of
from autotune.compiler import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.errors import ArtifactError, UsageError
from autotune.runtime.image import ModuleImage
from autotune.runtime.module import Module
from autotune.runtime.verify import verify
from autotune.target import Target
from tests.codegen.opencl_device import needs_opencl

pytestmark = needs_opencl
X = np.random.default_rng(0).standard_normal((32, 784), dtype=np.float32)


@pytest.fixture(scope="module")
def wanted() -> np.ndarray:
    with autotune.compile("zoo:mlp", threads=1) as module:
        return module(X)[0]


@pytest.fixture(scope="module")
def image() -> ModuleImage:
    return compile_in_detail(CompileRequest("zoo:mlp", target="opencl")).image


def test_a_model_has_the_answers_of_the_cpu(image: ModuleImage, wanted: np.ndarray, tmp_path: Path) -> None:
    with Module(image) as module:
        assert module.devices == ("opencl:0",)
        np.testing.assert_allclose(module(X)[0], wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(module.submit(X).result()[0], wanted, rtol=1e-4, atol=1e-5)
    from autotune.runtime.artifacts import artifact

    artifact.save(image, tmp_path / "mlp.atm")
    with autotune.load(tmp_path / "mlp.atm") as module:
        np.testing.assert_allclose(module(X)[0], wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(
        UsageError, match="which runs on the device that it was compiled for: devices say how many"
    ):
        autotune.load(tmp_path / "mlp.atm", threads=1)


def test_schedules_of_gpus_have_the_same_answers(wanted: np.ndarray) -> None:
    image = compile_in_detail(CompileRequest("zoo:mlp", target="opencl-generic")).image
    assert any(b"barrier(" in code for code in image.objects)
    with Module(image) as module:
        np.testing.assert_allclose(module(X)[0], wanted, rtol=1e-4, atol=1e-5)


def test_code_is_deterministic(image: ModuleImage) -> None:
    assert compile_in_detail(CompileRequest("zoo:mlp", target="opencl")).image.same_code(image)


def test_code_that_reads_files_is_refused(image: ModuleImage) -> None:
    head, source = image.objects[0].split(b"\n", 1)
    assert language_of(head) == "opencl"
    evil = replace(image, objects=(head + b'\n # include "/etc/passwd"\n' + source, *image.objects[1:]))
    with pytest.raises(ArtifactError, match="OpenCL code with #include"):
        verify(evil)


def test_targets() -> None:
    assert Target.parse("opencl:0") == Target.parse("opencl")
    assert Target.from_json(Target.parse("opencl").to_json()) == Target.parse("opencl")
    assert "group_items" not in Target.parse("x86-64-v3").to_json()
    with pytest.raises(UsageError, match="no OpenCL device 'opencl:99'; there are\n  opencl:0  "):
        Target.parse("opencl:99")
