"""Tensor intrinsics that call a function: what it makes of pointers stands for the loops."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import autotune
from autotune import te
from autotune.errors import BuildError

pytestmark = pytest.mark.registers

FLOATS = ctypes.POINTER(ctypes.c_float)


@ctypes.CFUNCTYPE(None, FLOATS, FLOATS, FLOATS, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
def add_rows(w: Any, x: Any, z: Any, rows: int, columns: int, stride: int) -> None:
    for i in range(rows):
        z[i] += sum(w[i * stride + k] * x[k] for k in range(columns))


@ctypes.CFUNCTYPE(None, FLOATS, ctypes.c_int64)
def clear(z: Any, rows: int) -> None:
    for i in range(rows):
        z[i] = 0


@ctypes.CFUNCTYPE(None, FLOATS, FLOATS, FLOATS, ctypes.c_int64)
def add(x: Any, y: Any, z: Any, count: int) -> None:
    for i in range(count):
        z[i] = x[i] + y[i]


def product_of_rows(rows: int, columns: int) -> te.TensorIntrin:
    """Rows of a matrix times a vector, added to what is there."""
    w, x = te.placeholder((rows, columns), name="w"), te.placeholder((columns,), name="x")
    k = te.reduce_axis((0, columns), name="k")
    z = te.compute((rows,), lambda i: te.sum(w[i, k] * x[k], axis=k), name="z")

    def calls(ins: Any, outs: Any) -> Any:
        update = te.call_extern(
            "void", add_rows, ins[0].access_ptr("r"), ins[1], outs[0].data, rows, columns, ins[0].stride(0)
        )
        return None, te.call_extern("void", clear, outs[0], rows), update

    strided = te.decl_buffer(w.shape, strides=[None, 1])
    return te.decl_tensor_intrin(z.op, calls, binds={w: strided}, name=f"rows_{rows}_{columns}")


@pytest.mark.parametrize("target", ["host", "interpreter"])
def test_a_reduction_goes_on_outside(target: str) -> None:
    a, b = te.placeholder((4, 12), name="A"), te.placeholder((6, 12), name="B")
    k = te.reduce_axis((0, 12), name="k")
    c = te.compute((4, 6), lambda i, j: te.sum(b[j, k] * a[i, k], axis=k), name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[1], factor=3)
    ko, ki = s[c].split(k, factor=4)
    s[c].reorder(outer, ko, inner, ki)
    s[c].tensorize(inner, product_of_rows(3, 4))
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-4, 5, shape).astype("float32") for shape in ((4, 12), (6, 12)))
    found = np.full((4, 6), 9, "float32")
    function = autotune.build(s, [a, b, c], target=target)
    function(x, y, found)
    np.testing.assert_array_equal(found, x @ y.T)
    assert target == "interpreter" or function.ir.count("call void @autotune_library") == 2


def sums() -> tuple[Any, list[te.Tensor]]:
    def parts(n: int) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
        x, y = te.placeholder((n,), name="x"), te.placeholder((n,), name="y")
        return x, y, te.compute((n,), lambda i: x[i] + y[i], name="z")

    pattern = parts(8)[2]
    intrin = te.decl_tensor_intrin(
        pattern.op, lambda ins, outs: te.call_extern("void", add, *ins, outs[0], 8), name="add_8"
    )
    x, y, z = parts(32)
    s = te.create_schedule(z.op)
    s[z].tensorize(s[z].split(z.op.axis[0], factor=8)[1], intrin)
    return s, [x, y, z]


def test_a_whole_pattern() -> None:
    s, args = sums()
    x, y = (np.random.default_rng(n).standard_normal(32, dtype=np.float32) for n in (0, 1))
    found = np.zeros(32, "float32")
    autotune.build(s, args)(x, y, found)
    np.testing.assert_array_equal(found, x + y)


def test_a_device_has_no_such_function() -> None:
    s, args = sums()
    s["z"].bind(s["z"].leaf_iter_vars[0], te.thread_axis("blockIdx.x"))
    with pytest.raises(BuildError, match="intrinsic add_8 calls a function of the processor"):
        autotune.build(s, args, target="cuda:sm_90")
