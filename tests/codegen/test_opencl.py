"""OpenCL C: accuracy of the device's functions, threads that no device can run, and what a device has not got."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import special

from autotune import te
from autotune.codegen.backend import compile_schedule
from autotune.codegen.code import Launch
from autotune.errors import BuildError, MissingExtraError
from autotune.pocl import name_processor
from autotune.target import Target
from tests.codegen.opencl_device import needs_opencl, run_on_device

GENERIC = Target.parse("opencl-generic")
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], float]] = {
    "exp": (np.exp, 3),
    "log": (np.log, 3),
    "log2": (np.log2, 3),
    "log10": (np.log10, 3),
    "log1p": (np.log1p, 2),
    "sin": (np.sin, 4),
    "cos": (np.cos, 4),
    "tan": (np.tan, 5),
    "sinh": (np.sinh, 4),
    "cosh": (np.cosh, 4),
    "tanh": (np.tanh, 5),
    "sqrt": (np.sqrt, 3),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 2),
    "erf": (special.erf, 16),
    "sigmoid": (special.expit, 6),
}
"""The error that OpenCL allows a device, in units in the last place."""


def numbers() -> Any:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 4096, dtype=np.uint32).view(np.float32)
    edges = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1e38, -1e38, 88.9, -88.9], np.float32)
    return np.concatenate([bits, rng.uniform(-20, 20, 4096).astype(np.float32), edges])


@needs_opencl
@pytest.mark.parametrize("lanes", [1, 8])
def test_functions_are_as_exact_as_opencl_promises(lanes: int) -> None:
    x = numbers()
    a = te.placeholder(x.shape, name="A")
    outputs = [
        te.compute(x.shape, lambda i, name=name: getattr(te, name)(a[i]), name=f"C_{name}")
        for name in FUNCTIONS
    ]
    s = te.create_schedule([c.op for c in outputs])
    for c in outputs:
        _, inner = s[c].split(s[c].op.axis[0], lanes)
        if lanes > 1:
            s[c].vectorize(inner)
    found = run_on_device(s, [a, *outputs], {"A": x})
    for name, (reference, most) in FUNCTIONS.items():
        with np.errstate(all="ignore"):
            exact = reference(x.astype(np.float64))
            single = exact.astype(np.float32)
            step = np.spacing(np.maximum(np.abs(single), np.float32(2**-126))).astype(np.float64)
            error = np.abs(found[f"C_{name}"] - exact) / step
        finite = np.isfinite(single)
        np.testing.assert_array_equal(found[f"C_{name}"][~finite], single[~finite], name)
        assert error[finite].max() <= most, f"{name} of {x[finite][error[finite].argmax()]}"


@needs_opencl
@pytest.mark.parametrize("scope", ["local", "shared"])
def test_a_stage_of_one_axis_is_shared_along_the_other(scope: str) -> None:
    """A stage in a loop over threadIdx.x, outside of its loop over threadIdx.y."""
    a = te.placeholder((8, 6), name="A")
    b = te.compute(a.shape, lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute(a.shape, lambda i, j: b[i, 5 - j] * 2.0, name="C")
    s = te.create_schedule(c)
    i, j = s[c].op.axis
    s[c].bind(i, te.thread_axis("threadIdx.x"))
    s[c].bind(j, te.thread_axis("threadIdx.y"))
    s[b].compute_at(s[c], i)
    if scope == "shared":
        s[b].set_scope("shared")
    code = compile_schedule(s, [a, c], GENERIC)
    assert code.kernels[0].launch == Launch((1, 1, 1), (8, 6, 1))
    assert "__local float" in code.ir
    x = np.arange(48, dtype=np.float32).reshape(8, 6)
    np.testing.assert_array_equal(run_on_device(s, [a, c], {"A": x})["C"], (x[:, ::-1] + 1) * 2)


def test_groups_that_are_too_large_are_refused() -> None:
    a = te.placeholder((1024,), name="A")
    c = te.compute(a.shape, lambda i: a[i] + 1.0, name="C")
    s = te.create_schedule(c)
    s[c].bind(s[c].op.axis[0], te.thread_axis("threadIdx.x"))
    with pytest.raises(BuildError, match="have 1024 x 1 x 1 = 1024 threads, the device runs at most 256"):
        compile_schedule(s, [a, c], GENERIC)


def test_vectors_in_memory_are_pointers_on_cpus_and_functions_on_gpus() -> None:
    a = te.placeholder((24,), name="A")
    c = te.compute(a.shape, lambda i: a[i] + 1.0, name="C")
    s = te.create_schedule(c)
    s[c].vectorize(s[c].op.axis[0])
    cpu = replace(GENERIC, features=("cpu", "fp64"), vector_bits=512)
    sources = [compile_schedule(s, [a, c], target).object_code.decode() for target in (GENERIC, cpu)]
    assert ["vload4(0, b0" in source for source in sources] == [True, False]
    assert "typedef float16 at_float16 __attribute__((aligned(4)));" in sources[1]
    assert "*(__global at_float8 *)(b1 + 16) = " in sources[1]


@pytest.mark.parametrize(
    ("said", "level", "named"),
    [
        (b"generic", "x86-64-v4", b"skylake-avx512"),
        (b"generic", "x86-64-v3", b"haswell"),
        (b"znver3", "x86-64-v4", b"skylake-avx512"),
        (b"znver3", "x86-64-v3", b"znver3"),
        (b"icelake-server", "x86-64-v4", b"icelake-server"),
    ],
)
def test_a_processor_that_pocl_mistakes_is_called_as_its_library_was_compiled_for(
    said: bytes, level: str, named: bytes
) -> None:
    """A Zen 4 was taken for a Zen 3 with AVX-512: half of the numbers of a vector were wrong."""
    words = (ctypes.c_uint64 * 256)()
    texts = [ctypes.create_string_buffer(text) for text in (b"x86_64-unknown-linux-gnu", said)]
    words[79], words[80] = (ctypes.addressof(text) for text in texts)
    device = SimpleNamespace(
        platform=SimpleNamespace(version="OpenCL 3.0 PoCL 3.0"), int_ptr=ctypes.addressof(words)
    )
    assert name_processor(device, level) == (said != named)
    assert ctypes.string_at(words[80]) == named
    assert not name_processor(device, level)  # it has a name now


def test_a_device_without_float64_says_so() -> None:
    a = te.placeholder((4,), "float64", name="A")
    c = te.compute(a.shape, lambda i: a[i] + 1.0, name="C")
    with pytest.raises(BuildError, match=r"computes in float64, which .* has not; use float32"):
        compile_schedule(te.create_schedule(c), [a, c], replace(GENERIC, features=("gpu",)))


def test_the_package_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from autotune import opencl

    monkeypatch.setitem(sys.modules, "pyopencl", None)
    opencl.devices.cache_clear()
    with pytest.raises(MissingExtraError, match=r"pip install 'autotune-compiler\[opencl\]'"):
        opencl.devices()
    opencl.devices.cache_clear()
