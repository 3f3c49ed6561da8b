"""The executor as machine code of this process: what an artifact brought, or else its source translated and compiled,
in a tenth of a second."""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from autotune.codegen.jit import LoadedCode
from autotune.distribution import install, version
from autotune.errors import BuildError
from autotune.hardware import architecture
from autotune.runtime.cpu import calls, indices, tiles, walk
from autotune.runtime.cpu import executor as source
from autotune.runtime.cpu.device import ALIGNMENT
from autotune.runtime.cpu.translate.functions import Native
from autotune.target import Target

_WORD = ctypes.c_void_p  # ctypes passes an int as this type in half the time of c_int64
_ENTRY_POINTS = (calls.call, calls.run, calls.join, calls.close, indices.check, source.serve, source.stop)
_SHARED = (source.execute, walk.run_share, tiles.take_tiles)
"""Functions that several entry points run: each once in the code, because inlined twice it takes longer to compile."""


@dataclass(frozen=True)
class Executor:
    """Entry points of :mod:`autotune.runtime.cpu.calls` and :mod:`autotune.runtime.cpu.executor`; they release the GIL.

    ``call`` is an address, and needs the GIL; ``check`` is that of the kernel of :mod:`autotune.runtime.cpu.indices`.
    """

    call: int
    check: int
    run: Callable[[int, int, int, int, int, int], int]
    join: Callable[[int, int], int]
    close: Callable[[int], None]
    serve: Callable[[int, int, int], None]
    stop: Callable[[int, int], None]
    code: LoadedCode


ENTRY_SYMBOLS = frozenset(function.symbol for function in _ENTRY_POINTS)
"""The symbols that its machine code defines."""

SYMBOLS = frozenset(
    [
        *("Py_IncRef", "Py_DecRef", "PyEval_SaveThread", "PyEval_RestoreThread"),
        *("PyList_New", "PyList_SetItem", "PyList_GetItem", "PyList_Size"),
        *("clock_gettime", "sched_yield", "syscall", "usleep"),
    ]
)
"""Functions of the process that the executor calls."""

_SOURCES = (
    *(
        "addresses",
        "atomics",
        "balance",
        "calls",
        "executor",
        "indices",
        "layout",
        "mutex",
        "objects",
        "repeats",
        "tiles",
        "waiting",
        "walk",
    ),
    *(f"translate/{name}" for name in ("code", "expressions", "functions", "module", "statements")),
)
"""The sources of the executor's machine code."""

_BASELINES = {"x86_64": "x86-64"}
"""Lesser machines than the one that an artifact was compiled on run its executor too."""

_GIVEN: list[bytes] = []
"""The executor's machine code, where an artifact or another process of this job has it."""


@cache
def fingerprint() -> str:
    """Return SHA-256 of all that the executor's machine code depends on: its source, the system and the
    architecture."""
    digest = hashlib.sha256(f"{architecture()} {sys.platform} {ALIGNMENT}".encode())
    for name in _SOURCES:
        path = os.path.join(os.path.dirname(__file__), *f"{name}.py".split("/"))
        digest.update(__loader__.get_data(path))  # type: ignore[name-defined]
    return digest.hexdigest()


def machine_code() -> bytes:
    """Return the executor as an object file for this machine: what was given, or else compiled at the first call."""
    return _GIVEN[0] if _GIVEN else _compiled()


@cache
def _compiled() -> bytes:
    try:
        from autotune.codegen.llvm import compile_ir
    except ModuleNotFoundError as error:
        raise BuildError(
            f"the executor that this artifact brought is not that of autotune {version()}, and no compiler is here\n"
            f"  compile the model again with the release that runs it, or {install()}"
        ) from error
    from autotune.runtime.cpu.translate.module import llvm_ir

    target = Target.parse(_BASELINES.get(architecture(), "host"))
    return compile_ir(llvm_ir([*_ENTRY_POINTS, *_SHARED]), target)


def give(code: bytes) -> None:
    """Let the executor of this process be machine code that :func:`machine_code` returned in another one, on a
    machine of the same :func:`fingerprint`; it has no effect once :func:`executor` was called, or code was given."""
    if not _GIVEN:
        _GIVEN.append(code)


@cache
def executor() -> Executor:
    """Return the executor of this process, compiled at the first call unless its machine code was given."""
    code = LoadedCode([machine_code()])

    def without_gil(function: Native[..., Any]) -> Any:
        result = None if function.result == "void" else ctypes.c_int64
        prototype = ctypes.CFUNCTYPE(result, *[_WORD] * len(function.parameters))
        return prototype(code.address(0, function.symbol))

    return Executor(
        call=code.address(0, calls.call.symbol),
        check=code.address(0, indices.check.symbol),
        run=without_gil(calls.run),
        join=without_gil(calls.join),
        close=without_gil(calls.close),
        serve=without_gil(source.serve),
        stop=without_gil(source.stop),
        code=code,
    )


__all__ = ["ENTRY_SYMBOLS", "SYMBOLS", "Executor", "executor", "fingerprint", "give", "machine_code"]
