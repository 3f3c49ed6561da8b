"""Python's and NumPy's objects for the executor: addresses (int64) of objects in and out.

What every object and every array starts with is part of the stable binary interfaces of CPython and
NumPy; :mod:`autotune.runtime.cpu.call_record` makes sure of it before anything here runs. All need the
GIL, but for what :func:`release_gil` and :func:`take_gil` enclose.
"""
# No body is Python.
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from typing import Final

from autotune.runtime.cpu.translate.functions import external, operation

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


@external("Py_IncRef")
def retain(item: int) -> None:
    """Count one more reference."""


@external("Py_DecRef")
def drop(item: int) -> None:
    """Count one reference less."""


@external("PyList_New")
def new_list(length: int) -> int:
    """Return a list to fill by :func:`set_item`; 0 and an exception without memory."""


@external("PyList_SetItem")
def set_item(items: int, index: int, item: int) -> None:
    """Put an item into a list, which takes over the reference."""


@external("PyList_GetItem")
def get_item(items: int, index: int) -> int:
    """Return an item of a list, whose reference stays the list's."""


@external("PyList_Size")
def length(items: int) -> int:
    """Return the number of items of a list."""


@external("PyEval_SaveThread")
def release_gil() -> int:
    """Let other threads run Python; returns what :func:`take_gil` needs."""


@external("PyEval_RestoreThread")
def take_gil(thread: int) -> None:
    """Wait for the GIL."""


@operation("""
  %called = inttoptr i64 %function to ptr
  %few = trunc i64 %rank to i32
  %bits = trunc i64 %flags to i32
  %array = call i64 %called(i64 %kind, i64 %dtype, i32 %few, i64 %shape, i64 0, i64 %data, i32 %bits, i64 0)
  ret i64 %array
""")
def new_array(function: int, kind: int, dtype: int, rank: int, shape: int, data: int, flags: int) -> int:
    """Return ``PyArray_NewFromDescr`` at an address; 0 and an exception without memory.

    Takes over a reference to ``dtype``. With ``data`` 0 the array gets memory of its own.
    """


@operation("""
  %called = inttoptr i64 %function to ptr
  %done = call i32 %called(i64 %array, i64 %base)
  ret void
""")
def set_base(function: int, array: int, base: int) -> None:
    """Call ``PyArray_SetBaseObject`` at an address: the array keeps ``base``, whose reference it takes."""


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
