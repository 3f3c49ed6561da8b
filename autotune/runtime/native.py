"""The executor as machine code of this process: its source translated and compiled, in a tenth of a second."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from autotune.codegen.jit import LoadedCode
from autotune.runtime import calls, indices
from autotune.runtime import executor as source
from autotune.runtime.translate.functions import Native
from autotune.target import Target

_WORD = ctypes.c_void_p  # ctypes passes an int as this type in half the time of c_int64
_ENTRY_POINTS = (calls.call, calls.run, calls.close, indices.check, source.serve, source.stop)
_SHARED = (source.execute, source.run_share)
"""What several entry points run: each once in the code, because inlined twice it takes longer to compile."""


@dataclass(frozen=True)
class Executor:
    """Entry points of :mod:`autotune.runtime.calls` and :mod:`autotune.runtime.executor`, which release the GIL.

    ``call`` is an address, and needs the GIL; ``check`` is that of the kernel of :mod:`autotune.runtime.indices`.
    """

    call: int
    check: int
    run: Callable[[int, int, int, int, int], int]
    close: Callable[[int], None]
    serve: Callable[[int, int, int], None]
    stop: Callable[[int, int], None]
    code: LoadedCode


_GIVEN: list[bytes] = []
"""The executor's machine code, where another process of this job has compiled it."""


@cache
def machine_code() -> bytes:
    """The executor as an object file for this machine, compiled at the first call."""
    from autotune.codegen.llvm import compile_ir
    from autotune.runtime.translate.module import llvm_ir

    return compile_ir(llvm_ir([*_ENTRY_POINTS, *_SHARED]), Target.detect())


def give(code: bytes) -> None:
    """Let the executor of this process be machine code that :func:`machine_code` returned in another one on this
    machine; it has no effect once :func:`executor` was called."""
    _GIVEN[:] = [code]


@cache
def executor() -> Executor:
    """The executor of this process, compiled at the first call unless its machine code was given."""
    code = LoadedCode(_GIVEN or [machine_code()])

    def without_gil(function: Native[..., Any]) -> Any:
        result = None if function.result == "void" else ctypes.c_int64
        prototype = ctypes.CFUNCTYPE(result, *[_WORD] * len(function.parameters))
        return prototype(code.address(0, function.symbol))

    return Executor(
        call=code.address(0, calls.call.symbol),
        check=code.address(0, indices.check.symbol),
        run=without_gil(calls.run),
        close=without_gil(calls.close),
        serve=without_gil(source.serve),
        stop=without_gil(source.stop),
        code=code,
    )


__all__ = ["Executor", "executor", "give", "machine_code"]
