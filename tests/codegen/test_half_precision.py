"""float16 without instructions for it: every value, and every rounding that is hard."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.codegen.elf import read_symbols
from autotune.codegen.jit import LoadedCode
from autotune.codegen.llvm import compile_ir
from autotune.target import Target

pytestmark = pytest.mark.registers

TARGETS = [Target.parse("x86-64-v2"), Target.detect()]
RUNNABLE = [target for target in TARGETS if not Target.detect().lacks(target)]
KINDS = {"float16": "half", "float32": "float", "float64": "double"}


def converted(values: NDArray[np.generic], to: str, target: Target) -> NDArray[np.generic]:
    """Each value by a loop that converts it, compiled for ``target``."""
    source, result = KINDS[str(values.dtype)], KINDS[to]
    step = "fpext" if np.dtype(to).itemsize > values.itemsize else "fptrunc"
    ir = f"""
define void @convert(ptr %x, ptr %out, i64 %n) {{
entry:
  br label %body
body:
  %i = phi i64 [0, %entry], [%next, %body]
  %p = getelementptr {source}, ptr %x, i64 %i
  %v = load {source}, ptr %p
  %c = {step} {source} %v to {result}
  %q = getelementptr {result}, ptr %out, i64 %i
  store {result} %c, ptr %q
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %body, label %done
done:
  ret void
}}"""
    code = compile_ir(ir, target)
    assert not read_symbols(code).undefined
    out = np.empty(values.shape, to)
    loaded = LoadedCode([code])
    convert = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    convert(loaded.address(0, "convert"))(values.ctypes.data, out.ctypes.data, values.size)
    loaded.close()
    return out


def hard_to_round() -> NDArray[np.float32]:
    """Every float16, the middle to the next, and what is beside each of these by a bit of float32."""
    every = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    middle = (every[:-1] + every[1:]) / 2
    exact = np.concatenate([every, middle, np.float32([65519.0, 65520.0, 65536.0, 1e6, 3e38, np.inf])])
    beside = [np.nextafter(exact, np.float32(bound)) for bound in (0, np.inf)]
    positive = np.concatenate([exact, *beside])
    return np.concatenate([positive, -positive, np.float32([np.nan])])


@pytest.mark.parametrize("target", RUNNABLE, ids=lambda target: str(target.cpu))
def test_every_value_is_widened(target: Target) -> None:
    every = np.arange(1 << 16).astype(np.uint16).view(np.float16)
    for to in ("float32", "float64"):
        np.testing.assert_array_equal(converted(every, to, target), every.astype(to))


@pytest.mark.parametrize("target", RUNNABLE, ids=lambda target: str(target.cpu))
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_values_are_rounded_once_to_the_nearest(target: Target) -> None:
    values = hard_to_round()
    computed, expected = converted(values, "float16", target), values.astype(np.float16)
    np.testing.assert_array_equal(computed, expected)
    np.testing.assert_array_equal(np.signbit(computed), np.signbit(expected))
