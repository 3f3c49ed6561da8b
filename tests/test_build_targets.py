"""``autotune.build`` for every kind of target: what it makes runs, or is saved and says why it does not run here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune import te
from autotune.codegen.interpreter.backend import InterpretedCode
from autotune.errors import InputError, InternalError, TargetError, UsageError
from autotune.functions.function import Function
from autotune.schedule import Schedule
from autotune.te.expr import const
from tests.codegen.opencl_device import needs_opencl

PTX = "cuda:sm_90"


def program(threads: bool = False) -> tuple[Schedule, list[te.Tensor]]:
    """Sums of two vectors, doubled; the second stage may be spread over threads of a GPU."""
    a, b = te.placeholder((64,), name="A"), te.placeholder((64,), name="B")
    total = te.compute((64,), lambda i: a[i] + b[i], name="total")
    double = te.compute((64,), lambda i: total[i] * 2.0, name="D")
    s = te.create_schedule(double.op)
    s[total].compute_inline()
    if threads:
        block, thread = s[double].split(double.op.axis[0], factor=16)
        s[double].bind(block, te.thread_axis("blockIdx.x"))
        s[double].bind(thread, te.thread_axis("threadIdx.x"))
    return s, [a, b, double]


def arrays() -> list[Any]:
    rng = np.random.default_rng(0)
    a, b = (rng.random(64).astype(np.float32) for _ in range(2))
    return [a, b, np.zeros(64, np.float32)]


def check_runs(function: Function) -> None:
    a, b, found = arrays()
    function(a, b, found)
    np.testing.assert_array_equal(found, (a + b) * 2)
    assert len(function.time(a, b, found, repeat=3)) == 3
    with pytest.raises(InputError, match="got 2 arrays for the 3 arguments A, B, D"):
        function(a, b)
    with pytest.raises(InputError, match=r"expected float32\[64\], got float32\[63\]"):
        function(a[1:], b, found)


@pytest.mark.parametrize("threads", [False, True])
def test_the_interpreter(threads: bool, tmp_path: Path) -> None:
    function = autotune.build(*program(threads), target="interpreter")
    check_runs(function)
    assert repr(function).endswith("writes D, target=interpreter>")
    assert "kernel D {" in function.source == function.ir
    with pytest.raises(
        UsageError, match="'main' was built for the interpreter: only code of a machine is saved"
    ):
        function.save(tmp_path / "main.atm")
    with pytest.raises(UsageError, match="which runs no module"):
        _ = function.module


def test_the_interpreter_shows_what_was_never_written() -> None:
    """Intermediate memory is full of a value that shows."""
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((8,), lambda i: b[i] * 2.0, name="C")
    s = te.create_schedule(c.op)
    function = autotune.build(s, [a, c], target="interpreter")
    loop = loop_of(function)
    assert loop.body.buffer.name == "B"
    loop.extent = 0
    found = np.zeros(8, np.float32)
    function(np.ones(8, np.float32), found)
    assert np.isnan(found).all()


def loop_of(function: Function) -> Any:
    """The loop of the first kernel that a function interprets."""
    code = function._code
    assert isinstance(code, InterpretedCode)
    return code.program.kernels[0].body


@needs_opencl
def test_an_opencl_device(tmp_path: Path) -> None:
    for name in ("opencl", "opencl:0"):
        check_runs(autotune.build(*program(threads=True), target=name))
    function = autotune.build(*program(), target="opencl")
    assert "__kernel" in function.source == function.ir
    function.save(tmp_path / "main.atm")
    function.save(tmp_path / "main.cl")
    assert (tmp_path / "main.cl").read_text() == function.source
    a, b, _ = arrays()
    with autotune.load(tmp_path / "main.atm") as module:
        np.testing.assert_array_equal(module(a, b)[0], (a + b) * 2)


@needs_opencl
def test_indices_are_checked_on_an_opencl_device() -> None:
    x, chosen = te.placeholder((9,), name="X"), te.placeholder((4,), "int32", name="I")
    c = te.compute((4,), lambda i: x[chosen[i]], name="C")
    function = autotune.build(te.create_schedule(c.op), [x, chosen, c], target="opencl")
    numbers, found = np.arange(9, dtype=np.float32), np.zeros(4, np.float32)
    function(numbers, np.array([0, -1, 8, -9], np.int32), found)
    assert found.tolist() == [0, 8, 8, 0]
    with pytest.raises(InputError, match="index 9 is out of range"):
        function(numbers, np.array([0, 9, 1, 1], np.int32), found)


def test_a_gpu_that_is_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.runtime.device_code.devices", lambda _: [])
    function = autotune.build(*program(threads=True), target=PTX, name="sums")
    assert ".visible .entry" in function.source
    assert ".target sm_90" in function.source
    function.save(tmp_path / "sums.ptx")
    assert (tmp_path / "sums.ptx").read_text() == function.source
    function.save(tmp_path / "sums.atm")
    assert (tmp_path / "sums.atm").stat().st_size > 0
    said = (
        r"^'sums' was built for sm_90, and there is no such device here\n  function.save\(path\) writes it for a "
        r"machine that has one; `autotune devices` lists those there are here$"
    )
    for use in (lambda: function(*arrays()), lambda: function.time(*arrays()), lambda: function.module):
        with pytest.raises(TargetError, match=said):
            use()


def test_a_saved_gpu_kernel_is_the_artifact_that_loading_refuses_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.runtime.device_code.devices", lambda _: [])
    autotune.build(*program(threads=True), target=PTX).save(tmp_path / "main.atm")
    with pytest.raises(
        UsageError, match=r"was compiled for nvptx64 \(sm_90, .*\), and there is no such device here"
    ):
        autotune.load(tmp_path / "main.atm")


def test_a_processor_s_function_is_saved(tmp_path: Path) -> None:
    function = autotune.build(*program(), threads=1)
    function.save(tmp_path / "main.atm")
    a, b, _ = arrays()
    np.testing.assert_array_equal(autotune.load(tmp_path / "main.atm")(a, b)[0], (a + b) * 2)
    with pytest.raises(UsageError, match=r"'main' has no \.ptx source, it was built for"):
        function.save(tmp_path / "main.ptx")


def test_a_module_is_not_compiled_for_the_interpreter() -> None:
    with pytest.raises(TargetError, match="unknown target 'interpreter'"):
        autotune.compile("zoo:mlp", target="interpreter")


def test_accesses_outside_of_a_buffer_are_found() -> None:
    """The interpreter counts and checks, beside the numbers."""
    function = autotune.build(*program(), target="interpreter")
    loop = loop_of(function)
    loop.body.indices = (loop.var + const(1),)
    with pytest.raises(InternalError, match=r"access to D\[64\] outside of its shape \(64,\)"):
        function(*arrays())
