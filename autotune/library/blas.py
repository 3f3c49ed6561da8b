"""The BLAS that SciPy comes with, by the function pointers of ``scipy.linalg.cython_blas``."""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from autotune import settings
from autotune.errors import BuildError
from autotune.target import Target

_LOG = logging.getLogger("autotune.library")

NAME = "blas"
FUNCTIONS = {"float32": "sgemm", "float64": "dgemm"}
"""The product of two matrices for each element type."""

_CORES = {"avx512f": "SkylakeX", "avx2": "Haswell", "sse4.2": "Nehalem", "sse2": "Prescott"}
"""OpenBLAS's name for a processor of this feature and none of those before it."""
_CORE = "OPENBLAS_CORETYPE"
_SET_THREADS = ("scipy_openblas_set_num_threads", "openblas_set_num_threads")


@cache
def address(dtype: str) -> int:
    """Return the address of ``sgemm`` or ``dgemm`` with Fortran's calling convention and 32-bit integers.

    The library is told to use one thread: our workers call it for blocks of their own, and threads of its own, which
    spin for work, would take their cores. Where this machine counts as a lesser one, it does so for the library too.
    Raises BuildError where SciPy has no such pointer.
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
    for library in _copies():
        _use_one_thread(library)
        if settings.current().host:
            _choose_core(library, Target.detect())
    return int(found)


def _copies() -> Iterator[ctypes.CDLL]:
    """Yield SciPy's own copy of OpenBLAS; NumPy has another, which no kernel calls."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    for path in sorted({line.split()[-1] for line in lines if "openblas" in line}):
        if {"scipy", "scipy.libs"} & {*Path(path).parts}:
            yield ctypes.CDLL(path)


def _use_one_thread(library: ctypes.CDLL) -> None:
    for name in _SET_THREADS:
        if hasattr(library, name):
            getattr(library, name)(ctypes.c_int(1))


def _choose_core(library: ctypes.CDLL, target: Target) -> None:
    """Let OpenBLAS, which chose its code for this processor when it was loaded, choose again for ``target``."""
    core = next((name for feature, name in _CORES.items() if feature in target.features), None)
    if core is None or not hasattr(library, "gotoblas_dynamic_quit"):
        _LOG.warning("library kernel %s: its code cannot be limited to that of %s", NAME, target.cpu)
        return
    before = os.environ.get(_CORE)
    os.environ[_CORE] = core
    try:
        library.gotoblas_dynamic_quit()
        library.gotoblas_dynamic_init()
    finally:
        if before is None:
            del os.environ[_CORE]
        else:
            os.environ[_CORE] = before


__all__ = ["FUNCTIONS", "NAME", "address"]
