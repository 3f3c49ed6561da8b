"""Python that numba compiles: what is printed, that it stands by itself, and where it runs."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune import te
from autotune.errors import BuildError, InputError, LoweringError, TargetError, UsageError
from autotune.lower.ir import Barrier, For, If, Seq, kernel_of
from autotune.schedule import Schedule

ROOT = Path(__file__).parent.parent.parent


def product(n: int = 20) -> tuple[Schedule, list[te.Tensor]]:
    """``D = max(A B, 0) + F`` of matrices, with a stage at the root, one attached and one inlined."""
    a, b = (te.placeholder((n, n), name=name) for name in ("A", "B.in"))
    f = te.placeholder((n,), "float16", name="F")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="lambda")
    e = te.compute((n,), lambda i: te.cast(f[i] * f[i], "float32"), name="E")
    d = te.compute(
        (n, n), lambda i, j: te.maximum(c[i, j], 0.0) + te.if_then_else(j > 3, e[j - 4], 1.0), name="D"
    )
    s = te.create_schedule(d.op)
    outer, inner = s[d].split(d.op.axis[0], factor=6)
    s[c].compute_at(s[d], inner)
    s[d].parallel(outer)
    return s, [a, b, f, d]


def values(n: int = 20) -> list[Any]:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (n, n)).astype(np.float32) for _ in range(2))
    f = rng.integers(-4, 5, n).astype(np.float16)
    return [a, b, f]


def wanted(a: Any, b: Any, f: Any) -> Any:
    shifted = np.concatenate([np.ones(4), f.astype(np.float32)[:-4] ** 2])
    return np.maximum(a @ b, 0) + shifted


def test_a_printed_module(golden: Callable[[str], None]) -> None:
    s, args = product()
    text = s.to_numba(args, name="product")
    assert text == s.to_numba(name="product")
    golden(text.rstrip())


def test_a_printed_module_stands_by_itself(tmp_path: Path) -> None:
    s, args = product()
    (tmp_path / "printed.py").write_text(s.to_numba(args, name="product"))
    given = values()
    np.savez(tmp_path / "given.npz", *given)
    code = "import sys, numpy as np; sys.modules['autotune'] = None; import printed; "
    code += "given = np.load('given.npz'); d = np.zeros((20, 20), np.float32); "
    code += "printed.product(*(given[n] for n in given.files), d); np.save('d.npy', d)"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=300)
    np.testing.assert_array_equal(np.load(tmp_path / "d.npy"), wanted(*given))


def test_a_function_for_numba(tmp_path: Path) -> None:
    s, args = product()
    function = autotune.build(s, args, target="numba", threads=1, name="product")
    found = np.zeros((20, 20), np.float32)
    function(*values(), found)
    np.testing.assert_array_equal(found, wanted(*values()))
    assert len(function.time(*values(), found, repeat=3)) == 3
    assert function.source == function.ir == s.to_numba(args, name="product")
    assert repr(function).endswith("writes D, target=numba>")
    function.save(tmp_path / "product.py")
    assert (tmp_path / "product.py").read_text() == function.source
    with pytest.raises(UsageError, match="'product' was built for numba: only code of a machine is saved"):
        function.save(tmp_path / "product.atm")
    with pytest.raises(UsageError, match=r"has no \.cl source, it was built for numba, 1 thread"):
        function.save(tmp_path / "product.cl")
    with pytest.raises(UsageError, match="was built for numba, which runs no module"):
        _ = function.module
    with pytest.raises(InputError, match=r"expected float16\[20\], got float32\[20\]"):
        function(*values()[:2], np.ones(20, np.float32), found)


def test_nothing_of_the_runtime_is_needed() -> None:
    """On other systems there is neither our executor nor our object code."""
    missing = [
        "codegen.llvm",
        "codegen.jit",
        "codegen.elf",
        "runtime.native",
        "runtime.executor",
        "runtime.module",
        "runtime.hal",
    ]
    code = f"""
import platform, sys, numba
for name in {missing!r}:
    sys.modules["autotune." + name] = None
platform.machine, platform.system, sys.platform = (lambda: "arm64"), (lambda: "Darwin"), "darwin"
import numpy as np, autotune
from autotune import te
n = te.var("n")
a = te.placeholder((n,), name="A")
b = te.compute((n,), lambda i: a[i] * 2.0, name="B")
function = autotune.build(te.create_schedule(b.op), [a, b], target="numba")
found = np.zeros(5, np.float32)
function(np.arange(5, dtype=np.float32), found)
assert found.tolist() == [0, 2, 4, 6, 8], found
assert len(function.time(np.arange(5, dtype=np.float32), found, repeat=2)) == 2
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=300)


def test_calls_from_several_threads_run_one_after_another() -> None:
    s, args = product()
    function = autotune.build(s, args, target="numba")
    found = [np.zeros((20, 20), np.float32) for _ in range(4)]
    calls = [threading.Thread(target=function, args=(*values(), out)) for out in found]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    for out in found:
        np.testing.assert_array_equal(out, wanted(*values()))


def test_threads_are_those_of_numba() -> None:
    s, args = product()
    with pytest.raises(
        TargetError, match=r"numba has \d+ threads here \(NUMBA_NUM_THREADS\), got threads=10000"
    ):
        autotune.build(s, args, target="numba", threads=10_000)
    assert autotune.build(s, args, target="numba", threads=1).target.threads == 1


def test_names_of_python_are_left_alone() -> None:
    a = te.placeholder((3,), name="np")
    b = te.compute((3,), lambda i: te.maximum(a[i], 1.0), name="maximum")
    c = te.compute((3,), lambda i: b[i] + a[i], name="for")
    s = te.create_schedule(c.op)
    found = np.zeros(3, np.float32)
    autotune.build(s, [a, c], target="numba", name="range")(np.arange(3, dtype=np.float32), found)
    assert found.tolist() == [1, 2, 4]


def test_indices_that_are_data_are_checked() -> None:
    x, chosen = te.placeholder((9,), name="X"), te.placeholder((4,), "int32", name="I")
    c = te.compute((4,), lambda i: x[chosen[i]], name="C")
    function = autotune.build(te.create_schedule(c.op), [x, chosen, c], target="numba")
    numbers, found = np.arange(9, dtype=np.float32), np.zeros(4, np.float32)
    function(numbers, np.array([0, -1, 8, -9], np.int32), found)
    assert found.tolist() == [0, 8, 8, 0]
    with pytest.raises(InputError, match="index 9 is out of range"):
        function(numbers, np.array([0, 9, 1, 1], np.int32), found)


def test_threads_of_a_gpu_meet_at_barriers() -> None:
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((64,), lambda i: b[63 - i] * 2.0, name="C")
    s = te.create_schedule(c.op)
    block, thread = s[c].split(c.op.axis[0], factor=16)
    s[c].bind(block, te.thread_axis("blockIdx.x"))
    s[c].bind(thread, te.thread_axis("threadIdx.x"))
    s[b].compute_at(s[c], block)
    s[b].set_scope("shared")
    s[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
    found = np.zeros(64, np.float32)
    autotune.build(s, [a, c], target="numba")(np.arange(64, dtype=np.float32), found)
    np.testing.assert_array_equal(found, (np.arange(64)[::-1] + 1) * 2)


def test_a_function_of_the_processor_is_called() -> None:
    import ctypes

    copy = ctypes.CDLL(None).memcpy
    a = te.placeholder((8,), name="A")
    c = te.extern((8,), [a], lambda ins, outs: te.call_extern("int32", copy, outs[0], ins[0], 32), name="C")
    d = te.compute((8,), lambda i: c[i] * 2.0, name="D")
    s, found = te.create_schedule(d.op), np.zeros(8, np.float32)
    assert "from autotune import library" in s.to_numba()
    autotune.build(s, [a, d], target="numba")(np.arange(8, dtype=np.float32), found)
    np.testing.assert_array_equal(found, 2 * np.arange(8))


def test_sizes_of_a_call_are_not_printed() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    s = te.create_schedule(te.compute((n,), lambda i: a[i] * 2.0, name="B").op)
    with pytest.raises(LoweringError) as refused:
        s.to_numba()
    assert str(refused.value) == (
        "the program has sizes that a call brings (te.var), and printed loops have numbers\n  use numbers instead, "
        "or autotune.build(s, args, target='numba'), which compiles for the sizes of each call"
    )


def test_bits_of_halves_are_those_in_memory() -> None:
    """Every float16 and bfloat16 is moved and taken for an integer as it is, NaN among them."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    for dtype in ("float16", "bfloat16"):
        a = te.placeholder(bits.shape, dtype, name="A")
        b = te.compute(bits.shape, lambda i, a=a: a[i], name="B")
        c = te.compute(bits.shape, lambda i, a=a: te.bitcast(a[i], "int16"), name="C")
        s = te.create_schedule([b.op, c.op])
        moved, taken = np.zeros(bits.shape, dtype), np.zeros(bits.shape, np.int16)
        autotune.build(s, [a, b, c], target="numba")(bits.view(dtype), moved, taken)
        np.testing.assert_array_equal(moved.view(np.uint16), bits)
        np.testing.assert_array_equal(taken.view(np.uint16), bits)


def test_threads_that_meet_under_a_condition_of_memory_are_refused() -> None:
    a = te.placeholder((4,), name="A")
    c = te.compute((4,), lambda i: te.if_then_else(a[i] > 0.0, a[i], 1.0), name="C")
    s = te.create_schedule(c.op)
    s[c].bind(c.op.axis[0], te.thread_axis("threadIdx.x"))
    from autotune.codegen.numba.module import module_text
    from autotune.lower import lower_schedule

    program = lower_schedule(s, [a, c])
    loop = program.kernels[0].body
    assert isinstance(loop, For)
    assert not isinstance(loop.body, Seq)
    condition = loop.body.value.cond  # type: ignore[attr-defined]
    waits = For(loop.var, 4, loop.kind, If(condition, Seq((Barrier(), loop.body)), None))
    with pytest.raises(BuildError, match=r"a value that memory has for each thread of threadIdx\.x"):
        module_text(replace(program, kernels=(kernel_of("C", waits),)), "main")
