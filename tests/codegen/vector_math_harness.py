"""Compiles the vector functions for the host and measures their error in units in the last place."""

from __future__ import annotations

import ctypes
from functools import cache

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from autotune.codegen.vector_math import math_function

FloatArray = NDArray[np.floating]


def loop_module(name: str, lanes: int, dtype: str) -> str:
    """A module with `void run(ptr x, ptr y, ptr out, i64 n)`, n a multiple of `lanes`."""
    function = math_function(name, lanes, dtype)
    element = {"float32": "float", "float64": "double"}[dtype]
    vector = element if lanes == 1 else f"<{lanes} x {element}>"
    align = np.dtype(dtype).itemsize
    arguments = f"{vector} %a" + (f", {vector} %b" if name == "pow" else "")
    body = f"""
define void @run(ptr %x, ptr %y, ptr %out, i64 %n) {{
entry:
  br label %head
head:
  %i = phi i64 [0, %entry], [%next, %body]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %px = getelementptr {element}, ptr %x, i64 %i
  %py = getelementptr {element}, ptr %y, i64 %i
  %po = getelementptr {element}, ptr %out, i64 %i
  %a = load {vector}, ptr %px, align {align}
  %b = load {vector}, ptr %py, align {align}
  %r = call {vector} @{function.symbol}({arguments})
  store {vector} %r, ptr %po, align {align}
  %next = add i64 %i, {lanes}
  br label %head
done:
  ret void
}}"""
    return "\n".join([*function.needs, function.ir, body])


@cache
def _machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )


@cache
def _engine(name: str, lanes: int, dtype: str) -> llvm.ExecutionEngine:
    module = llvm.parse_assembly(loop_module(name, lanes, dtype))
    module.verify()
    builder = llvm.create_pass_builder(_machine(), llvm.create_pipeline_tuning_options(2))
    builder.getModulePassManager().run(module, builder)
    engine = llvm.create_mcjit_compiler(module, _machine())
    engine.finalize_object()
    return engine


def assembly(name: str, lanes: int, dtype: str) -> str:
    """The host's assembly of the looped function, optimised."""
    module = llvm.parse_assembly(loop_module(name, lanes, dtype))
    builder = llvm.create_pass_builder(_machine(), llvm.create_pipeline_tuning_options(2))
    builder.getModulePassManager().run(module, builder)
    text: str = _machine().emit_assembly(module)
    return text


def run(name: str, lanes: int, x: FloatArray, y: FloatArray | None = None) -> FloatArray:
    """The function over the flat array `x` (and `y` for pow), padded to whole vectors."""
    dtype = str(x.dtype)
    padded = -(-x.size // lanes) * lanes
    operands = [np.zeros(padded, dtype) for _ in range(2)]
    operands[0][: x.size] = x
    if y is not None:
        operands[1][: x.size] = y
    out = np.empty(padded, dtype)
    address = _engine(name, lanes, dtype).get_function_address("run")
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    prototype(address)(*(array.ctypes.data for array in (*operands, out)), padded)
    return out[: x.size]


def ulp_error(got: FloatArray, exact: FloatArray) -> float:
    """Largest |got - exact| in ulp of got's format at `exact`, a wider format's values.

    Infinities and NaN must agree, where an exact value that rounds to infinity counts as one.
    """
    with np.errstate(all="ignore"):
        rounded = exact.astype(got.dtype)
    special = ~np.isfinite(rounded)
    np.testing.assert_array_equal(got[special], rounded[special])
    got, exact, rounded = got[~special], exact[~special], rounded[~special]
    with np.errstate(all="ignore"):
        distance = np.abs(got.astype(exact.dtype) - exact) / np.spacing(np.abs(rounded))
    assert np.isfinite(got).all()
    return float(distance.max(initial=0.0))
