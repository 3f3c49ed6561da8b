"""The executor as machine code: compiled by numba once a machine, then loaded from a file.

The object file is kept in the user's cache folder under a name that hashes the sources, the versions of
numba and llvmlite and the CPU, so that a stale one is never found; loading it takes a few milliseconds
and needs no numba. Where nothing can be written, every process compiles for itself (seconds).
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import logging
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from autotune.codegen.jit import LoadedCode
from autotune.errors import BuildError

_LOG = logging.getLogger("autotune.runtime")
_SOURCES = ("native.py", "layout.py", "atomics.py", "objects.py", "executor.py", "calls.py")
_WORD = ctypes.c_void_p  # ctypes passes an int as this type in half the time of c_int64
_DIGEST_BYTES = 32


@dataclass(frozen=True)
class _EntryPoint:
    """A function of compiled code: all arguments are int64, and so is what it returns, if anything."""

    name: str
    module: str
    arguments: int
    returns: bool = False


_ENTRY_POINTS = (
    _EntryPoint("execute", "autotune.runtime.executor", 1),
    _EntryPoint("serve", "autotune.runtime.executor", 4),
    _EntryPoint("stop", "autotune.runtime.executor", 1),
    _EntryPoint("call", "autotune.runtime.calls", 3, returns=True),
)


@dataclass(frozen=True)
class Executor:
    """Entry points of :mod:`autotune.runtime.executor`, which release the GIL.

    ``call`` is the address of the one of :mod:`autotune.runtime.calls`, which needs the GIL.
    """

    execute: Callable[[int], None]
    serve: Callable[[int, int, int, int], None]
    stop: Callable[[int], None]
    call: int
    code: LoadedCode


@cache
def executor() -> Executor:
    """The executor of this process, compiled or loaded at the first call."""
    path = cache_path()
    data = _read(path)
    if data is None:
        data = _compile()
        _write(path, data)
    try:
        code = LoadedCode([data])
        functions: dict[str, Any] = {}
        for entry in _ENTRY_POINTS:
            address = code.address(0, f"autotune_{entry.name}")
            prototype = ctypes.CFUNCTYPE(None, *[_WORD] * entry.arguments)
            functions[entry.name] = address if entry.returns else prototype(address)
    except BuildError as error:
        raise BuildError(f"the executor cannot be loaded ({error}); delete {path}") from error
    return Executor(**functions, code=code)


def cache_path() -> Path:
    """File of the compiled executor for these sources, these versions and this CPU."""
    import llvmlite
    import llvmlite.binding as llvm
    import platformdirs

    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update(Path(__file__).with_name(name).read_bytes())
    features = llvm.get_host_cpu_features().flatten()
    for text in (version("numba"), llvmlite.__version__, llvm.get_host_cpu_name(), features):
        digest.update(text.encode() + b"\0")
    folder = platformdirs.user_cache_path("autotune", appauthor=False)
    return folder / f"executor-{digest.hexdigest()[:24]}.o"


def _read(path: Path) -> bytes | None:
    """Object code from the cache; None when there is none or it is damaged."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, code = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    return code if hashlib.sha256(code).digest() == digest else None


def _write(path: Path, code: bytes) -> None:
    """Put object code into the cache; without one the next process compiles again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(code).digest() + code)
            os.replace(name, path)
        except OSError:
            os.unlink(name)
            raise
    except OSError as error:
        _LOG.info("the compiled executor is not kept: %s", error)


def _compile() -> bytes:
    """Compile the entry points with numba and wrap each into a C function."""
    import llvmlite.binding as llvm
    from numba import njit, types

    linked: Any = None
    for entry in _ENTRY_POINTS:
        function = getattr(importlib.import_module(entry.module), entry.name)
        result = types.int64 if entry.returns else types.void
        dispatcher = njit(
            [result(*[types.int64] * entry.arguments)],
            nogil=True,
            error_model="numpy",
            no_cpython_wrapper=True,
            no_cfunc_wrapper=True,
        )(function.py_func)
        (compiled,) = dispatcher.overloads.values()
        (text,) = dispatcher.inspect_llvm().values()
        module = llvm.parse_assembly(text + _wrapper(entry, compiled.fndesc.llvm_func_name))
        if linked is None:
            linked = module
        else:
            linked.link_in(module)
    linked.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), opt=3, jit=True
    )
    return bytes(machine.emit_object(linked))


def _wrapper(entry: _EntryPoint, symbol: str) -> str:
    """``autotune_<name>(i64...)`` around numba's convention (result, exception, arguments)."""
    parameters = ", ".join(f"i64 %{index}" for index in range(entry.arguments))
    done = "  %value = load i64, ptr %result\n  ret i64 %value\n" if entry.returns else "  ret void\n"
    return (
        f"\ndefine {'i64' if entry.returns else 'void'} @autotune_{entry.name}({parameters}) {{\n"
        "  %result = alloca i64\n  %exception = alloca ptr\n"
        f"  %status = call i32 @{symbol}(ptr %result, ptr %exception, {parameters})\n"
        f"{done}}}\n"
    )


__all__ = ["Executor", "cache_path", "executor"]
