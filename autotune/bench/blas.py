"""NumPy's OpenBLAS called in a compiled loop: what a product costs without a call from Python."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import Any

from autotune.codegen.jit import LoadedCode
from autotune.codegen.llvm import compile_ir
from autotune.errors import MissingExtraError
from autotune.target import Target

_NAMES = ("scipy_cblas_sgemm64_", "cblas_sgemm64_", "cblas_sgemm")
_ROW_MAJOR, _NO_TRANSPOSE = 101, 111
_LOOP = """
define void @loop(i64 %count, ptr %gemm, {integer} %m, {integer} %n, {integer} %k, ptr %a, ptr %b, ptr %out) {{
entry:
  br label %head
head:
  %turn = phi i64 [0, %entry], [%next, %body]
  %more = icmp slt i64 %turn, %count
  br i1 %more, label %body, label %exit
body:
  call void %gemm(
      i32 {order}, i32 {transpose}, i32 {transpose}, {integer} %m, {integer} %n, {integer} %k, float 1.0,
      ptr %a, {integer} %k, ptr %b, {integer} %n, float 0.0, ptr %out, {integer} %n)
  %next = add i64 %turn, 1
  br label %head
exit:
  ret void
}}
"""


def sgemm() -> tuple[Any, type]:
    """The function ``cblas_sgemm`` of the library that NumPy loaded, and its integer type.

    Raises MissingExtraError where NumPy has no OpenBLAS of its own.
    """
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split()[-1]
        if "openblas" not in path:
            continue
        library = ctypes.CDLL(path)
        for name in _NAMES:
            if hasattr(library, name):
                return _typed(getattr(library, name), name)
    raise MissingExtraError(
        "this NumPy has no OpenBLAS of its own; install the NumPy of its authors: pip install numpy"
    )


def _typed(function: Any, name: str) -> tuple[Any, type]:
    integer = ctypes.c_int64 if "64_" in name else ctypes.c_int32
    pointer, flag, real = ctypes.c_void_p, ctypes.c_int32, ctypes.c_float
    function.argtypes = [flag, flag, flag, integer, integer, integer, real]
    function.argtypes += [pointer, integer, pointer, integer, real, pointer, integer]
    function.restype = None
    return function, integer


def native_matmul_ns(a: Any, b: Any, out: Any, seconds: float) -> float:
    """Nanoseconds of one float32 product in a loop of about ``seconds``; the fastest of ten stretches."""
    gemm, integer = sgemm()
    ir = _LOOP.format(integer=f"i{8 * ctypes.sizeof(integer)}", order=_ROW_MAJOR, transpose=_NO_TRANSPOSE)
    code = LoadedCode([compile_ir(ir, Target.detect())])
    pointer = ctypes.c_void_p
    kinds = (ctypes.c_int64, pointer, integer, integer, integer, pointer, pointer, pointer)
    loop = ctypes.CFUNCTYPE(None, *kinds)(code.address(0, "loop"))
    address = ctypes.cast(gemm, pointer).value
    m, k = a.shape
    operands = (array.ctypes.data for array in (a, b, out))
    arguments = (address, m, b.shape[1], k, *operands)

    def stretch(count: int) -> float:
        begin = time.perf_counter_ns()
        loop(count, *arguments)
        return (time.perf_counter_ns() - begin) / count

    stretch(1)
    once = stretch(10)
    count = max(1, int(seconds * 1e8 / max(once, 1.0)))
    return min(stretch(count) for _ in range(10))


__all__ = ["native_matmul_ns", "sgemm"]
