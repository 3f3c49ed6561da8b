"""The BLAS that SciPy comes with, by the function pointers of ``scipy.linalg.cython_blas``."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

from autotune.errors import BuildError

NAME = "blas"
FUNCTIONS = {"float32": "sgemm", "float64": "dgemm"}
"""The product of two matrices for each element type."""

_SET_THREADS = ("scipy_openblas_set_num_threads", "openblas_set_num_threads")


@cache
def address(dtype: str) -> int:
    """Address of ``sgemm`` or ``dgemm`` with Fortran's calling convention and 32-bit integers.

    The library is told to use one thread: our workers call it for blocks of their own, and threads of its own, which
    spin for work, would take their cores. Raises BuildError where SciPy has no such pointer.
    """
    try:
        from scipy.linalg import cython_blas
    except ImportError as error:
        raise BuildError(f"library kernel {NAME}: SciPy cannot be imported: {error}") from error
    capsule = getattr(cython_blas, "__pyx_capi__", {}).get(FUNCTIONS[dtype])
    if capsule is None:
        raise BuildError(f"library kernel {NAME}: this SciPy gives no pointer to {FUNCTIONS[dtype]}")
    name_of, pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    found = pointer_of(capsule, name_of(capsule))
    _one_thread()
    return int(found)


def _one_thread() -> None:
    """Limit SciPy's own copy of OpenBLAS; NumPy has another, and other libraries have no such function."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    for path in sorted({line.split()[-1] for line in lines if "scipy" in line and "openblas" in line}):
        library = ctypes.CDLL(path)
        for name in _SET_THREADS:
            if hasattr(library, name):
                getattr(library, name)(ctypes.c_int(1))


__all__ = ["FUNCTIONS", "NAME", "address"]
