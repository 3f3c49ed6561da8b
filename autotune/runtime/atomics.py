"""Machine-level operations for code compiled by numba: atomics, waiting, the clock, kernel calls.

All work on addresses (int64) of int64 slots, so that the native loops touch neither Python objects
nor reference counts, and raise nothing.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

Emit = Callable[[Any, Any, Any, Any], Any]

_I64 = ir.IntType(64)
_I32 = ir.IntType(32)
_POINTER = ir.IntType(64).as_pointer()
_BYTES = ir.IntType(8).as_pointer()

_LINUX = sys.platform == "linux"
_FUTEX = {"x86_64": 202}.get(platform.machine(), 98)
_FUTEX_WAIT_PRIVATE, _FUTEX_WAKE_PRIVATE = 128, 129
_PARK_MICROSECONDS = 200
_PAUSE = {"x86_64": ("llvm.x86.sse2.pause", None), "aarch64": ("llvm.aarch64.hint", 1)}


def operation(build: Callable[..., tuple[Any, Emit]]) -> Any:
    """An operation that numba code calls like a function (typed as Any: Python never runs it)."""
    return intrinsic(build)


def native(function: Callable[..., Any]) -> Any:
    """A function of native code; compiled into the entry points that call it."""
    return njit(nogil=True, error_model="numpy")(function)


def _slot(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _POINTER)


def external(builder: Any, name: str, result: Any, arguments: list[Any], **options: Any) -> Any:
    """A C library function or LLVM intrinsic; the JIT finds it in the process."""
    kind = ir.FunctionType(result, arguments, **options)
    return cgutils.get_or_insert_function(builder.module, kind, name)


@operation
def load(typing: Any, address: Any) -> tuple[Any, Emit]:
    """Plain load of a slot that no other worker writes now."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_slot(builder, args[0]), typ=_I64)

    return types.int64(types.int64), emit


@operation
def store(typing: Any, address: Any, value: Any) -> tuple[Any, Emit]:
    """Plain store to a slot that no other worker reads now."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], _slot(builder, args[0]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@operation
def load_relaxed(typing: Any, address: Any) -> tuple[Any, Emit]:
    """Atomic load that orders nothing."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_slot(builder, args[0]), "monotonic", 8, typ=_I64)

    return types.int64(types.int64), emit


@operation
def load_acquire(typing: Any, address: Any) -> tuple[Any, Emit]:
    """Atomic load; what the writer did before its release is visible afterwards."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_slot(builder, args[0]), "acquire", 8, typ=_I64)

    return types.int64(types.int64), emit


@operation
def store_release(typing: Any, address: Any, value: Any) -> tuple[Any, Emit]:
    """Atomic store; publishes everything written before."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], _slot(builder, args[0]), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@operation
def fetch_add(typing: Any, address: Any, value: Any) -> tuple[Any, Emit]:
    """Atomic addition, sequentially consistent; returns the value before."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _slot(builder, args[0]), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), emit


@operation
def pause(typing: Any) -> tuple[Any, Emit]:
    """Tell the core that this is a spin loop."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        name, hint = _PAUSE.get(platform.machine(), (None, None))
        if name is None:
            builder.fence("seq_cst")
        elif hint is None:
            builder.call(external(builder, name, ir.VoidType(), []), [])
        else:
            builder.call(external(builder, name, ir.VoidType(), [_I32]), [_I32(hint)])
        return context.get_dummy_value()

    return types.void(), emit


@operation
def yield_processor(typing: Any) -> tuple[Any, Emit]:
    """Let another thread of this core run (``sched_yield``)."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.call(external(builder, "sched_yield", _I32, []), [])
        return context.get_dummy_value()

    return types.void(), emit


@operation
def park(typing: Any, address: Any, value: Any) -> tuple[Any, Emit]:
    """Sleep while the slot holds ``value`` (its low 32 bits); may also return early.

    A futex on Linux; elsewhere a short sleep, so that the caller polls.
    """

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if _LINUX:
            expected = builder.trunc(args[1], _I32)
            _futex(builder, args[0], _FUTEX_WAIT_PRIVATE, expected)
        else:
            sleep = external(builder, "usleep", _I32, [_I32])
            builder.call(sleep, [_I32(_PARK_MICROSECONDS)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@operation
def unpark(typing: Any, address: Any) -> tuple[Any, Emit]:
    """Wake every thread parked on the slot."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if _LINUX:
            _futex(builder, args[0], _FUTEX_WAKE_PRIVATE, _I32(0x7FFFFFFF))
        return context.get_dummy_value()

    return types.void(types.int64), emit


def _futex(builder: Any, address: Any, operation_code: int, value: Any) -> None:
    """``syscall(SYS_futex, address, operation, value, timeout=NULL)``."""
    call = external(builder, "syscall", _I64, [_I64], var_arg=True)
    pointer = builder.inttoptr(address, _BYTES)
    builder.call(call, [_I64(_FUTEX), pointer, _I32(operation_code), value, _BYTES(None)])


@operation
def clock_ns(typing: Any) -> tuple[Any, Emit]:
    """The monotonic clock in nanoseconds (that of ``time.monotonic_ns``)."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        spec = cgutils.alloca_once(builder, ir.ArrayType(_I64, 2))
        first = builder.bitcast(spec, _POINTER)
        read = external(builder, "clock_gettime", _I32, [_I32, _POINTER])
        builder.call(read, [_I32(time.CLOCK_MONOTONIC), first])
        seconds = builder.load(first, typ=_I64)
        rest = builder.load(builder.gep(first, [_I64(1)], source_etype=_I64), typ=_I64)
        return builder.add(builder.mul(seconds, _I64(1_000_000_000)), rest)

    return types.int64(), emit


@operation
def call_kernel(
    typing: Any, address: Any, table: Any, begin: Any, end: Any, scratch: Any
) -> tuple[Any, Emit]:
    """Call ``void(i64 *table, i64 begin, i64 end, void *scratch)`` at an address."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_POINTER, _I64, _I64, _BYTES])
        function = builder.inttoptr(args[0], kind.as_pointer())
        table, scratch = _slot(builder, args[1]), builder.inttoptr(args[4], _BYTES)
        builder.call(function, [table, args[2], args[3], scratch])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), emit


__all__ = [
    "call_kernel",
    "clock_ns",
    "external",
    "fetch_add",
    "load",
    "load_acquire",
    "load_relaxed",
    "native",
    "park",
    "pause",
    "store",
    "store_release",
    "unpark",
    "yield_processor",
]
