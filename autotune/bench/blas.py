"""NumPy's OpenBLAS called in a compiled loop: what a product costs without a call from Python."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import Any

import numpy as np

from autotune.errors import MissingExtraError

_NAMES = ("scipy_cblas_sgemm64_", "cblas_sgemm64_", "cblas_sgemm")
_ROW_MAJOR, _NO_TRANSPOSE = 101, 111


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
    import numba

    gemm, _ = sgemm()
    m, k = a.shape
    n = b.shape[1]
    pa, pb, po = (array.ctypes.data for array in (a, b, out))
    one, zero = np.float32(1), np.float32(0)

    @numba.njit(nogil=True)  # type: ignore[untyped-decorator]
    def loop(count: int) -> None:
        for _ in range(count):
            gemm(_ROW_MAJOR, _NO_TRANSPOSE, _NO_TRANSPOSE, m, n, k, one, pa, k, pb, n, zero, po, n)

    def stretch(count: int) -> float:
        begin = time.perf_counter_ns()
        loop(count)
        return (time.perf_counter_ns() - begin) / count

    loop(1)
    once = stretch(10)
    count = max(1, int(seconds * 1e8 / max(once, 1.0)))
    return min(stretch(count) for _ in range(10))


__all__ = ["native_matmul_ns", "sgemm"]
