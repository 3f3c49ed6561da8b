"""Python's and NumPy's objects for code compiled by numba: addresses (int64) of objects in and out.

What every object and every array starts with is part of the stable binary interfaces of CPython and
NumPy; :mod:`autotune.runtime.call_record` makes sure of it before anything here runs. All need the
GIL, but for what :func:`release_gil` and :func:`take_gil` enclose.
"""

from __future__ import annotations

from typing import Any, Final

import llvmlite.ir as ir
from numba import types

from autotune.runtime.atomics import Emit, external, operation

OBJECT_TYPE: Final = 1  # slots of any object
OBJECT_SLOTS: Final = 2
TUPLE_ITEMS: Final = OBJECT_SLOTS + 1  # behind the number of items
ARRAY_DATA: Final = OBJECT_SLOTS  # slots of an array
ARRAY_RANK: Final = OBJECT_SLOTS + 1  # in the low half
ARRAY_SHAPE: Final = OBJECT_SLOTS + 2
ARRAY_DTYPE: Final = OBJECT_SLOTS + 5
ARRAY_FLAGS: Final = OBJECT_SLOTS + 6  # in the low half
LOW_HALF: Final = 0xFFFFFFFF

DENSE: Final = 0x101  # flags of an array: C-contiguous, aligned
WRITABLE: Final = 0x400

_I64 = ir.IntType(64)
_I32 = ir.IntType(32)


def _interpreter_call(name: str, arguments: int, *, returns: bool) -> tuple[Any, Emit]:
    """An operation that calls a function of CPython on 64-bit words."""
    result = types.int64 if returns else types.void
    kind = _I64 if returns else ir.VoidType()

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        done = builder.call(external(builder, name, kind, [_I64] * arguments), args)
        return done if returns else context.get_dummy_value()

    return result(*[types.int64] * arguments), emit


@operation
def retain(typing: Any, item: Any) -> tuple[Any, Emit]:
    """Count one more reference."""
    return _interpreter_call("Py_IncRef", 1, returns=False)


@operation
def drop(typing: Any, item: Any) -> tuple[Any, Emit]:
    """Count one reference less."""
    return _interpreter_call("Py_DecRef", 1, returns=False)


@operation
def new_list(typing: Any, length: Any) -> tuple[Any, Emit]:
    """A list to fill by :func:`set_item`; 0 and an exception without memory."""
    return _interpreter_call("PyList_New", 1, returns=True)


@operation
def set_item(typing: Any, items: Any, index: Any, item: Any) -> tuple[Any, Emit]:
    """Put an item into a list, which takes over the reference."""
    return _interpreter_call("PyList_SetItem", 3, returns=True)


@operation
def get_item(typing: Any, items: Any, index: Any) -> tuple[Any, Emit]:
    """An item of a list, whose reference stays the list's."""
    return _interpreter_call("PyList_GetItem", 2, returns=True)


@operation
def length(typing: Any, items: Any) -> tuple[Any, Emit]:
    """How many items a list has."""
    return _interpreter_call("PyList_Size", 1, returns=True)


@operation
def release_gil(typing: Any) -> tuple[Any, Emit]:
    """Let other threads run Python; returns what :func:`take_gil` needs."""
    return _interpreter_call("PyEval_SaveThread", 0, returns=True)


@operation
def take_gil(typing: Any, thread: Any) -> tuple[Any, Emit]:
    """Wait for the GIL."""
    return _interpreter_call("PyEval_RestoreThread", 1, returns=False)


@operation
def new_array(
    typing: Any, function: Any, kind: Any, dtype: Any, rank: Any, shape: Any, data: Any, flags: Any
) -> tuple[Any, Emit]:
    """``PyArray_NewFromDescr`` at an address; 0 and an exception without memory.

    Takes over a reference to ``dtype``. With ``data`` 0 the array gets memory of its own.
    """

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address, kind, dtype, rank, shape, data, flags = args
        words = [_I64, _I64, _I32, _I64, _I64, _I64, _I32, _I64]
        called = builder.inttoptr(address, ir.FunctionType(_I64, words).as_pointer())
        few = [builder.trunc(value, _I32) for value in (rank, flags)]
        return builder.call(called, [kind, dtype, few[0], shape, _I64(0), data, few[1], _I64(0)])

    return types.int64(*[types.int64] * 7), emit


@operation
def set_base(typing: Any, function: Any, array: Any, base: Any) -> tuple[Any, Emit]:
    """``PyArray_SetBaseObject`` at an address: the array keeps ``base``, whose reference it takes."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        called = builder.inttoptr(args[0], ir.FunctionType(_I32, [_I64, _I64]).as_pointer())
        builder.call(called, args[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), emit


__all__ = [
    "drop",
    "get_item",
    "length",
    "new_array",
    "new_list",
    "release_gil",
    "retain",
    "set_base",
    "set_item",
    "take_gil",
]
