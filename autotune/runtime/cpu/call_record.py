"""A module as a builtin function of Python: what :mod:`autotune.runtime.cpu.calls` needs to know of it."""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from autotune.runtime.cpu import layout
from autotune.runtime.cpu.calls import WRONG
from autotune.runtime.cpu.device import ALIGNMENT, MEMORY, address_of
from autotune.runtime.cpu.native import executor
from autotune.runtime.cpu.objects import (
    ARRAY_DATA,
    ARRAY_DTYPE,
    ARRAY_FLAGS,
    ARRAY_RANK,
    ARRAY_SHAPE,
    LOW_HALF,
    OBJECT_SLOTS,
    OBJECT_TYPE,
    TUPLE_ITEMS,
)
from autotune.runtime.image import BoundInPlace, TensorSpec

NativeCall = Callable[..., list[NDArray[Any]] | None]
"""``call(arrays, out)`` or ``call(arrays, out, row)``, a request row: the outputs, or None when nothing ran and the
checks in Python are needed."""

_FASTCALL = 0x80
_NEW_ARRAY, _SET_BASE = 94, 282  # PyArray_NewFromDescr and PyArray_SetBaseObject in NumPy's table


class _MethodDefinition(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("text", ctypes.c_char_p),
    )


class CallRecord:
    """The arguments of an instance's calls and the program that they run, one at a time; ``call`` runs it.

    ``others`` more may join it: ``call`` then takes the one that is free.
    """

    def __init__(
        self,
        program: int,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        others: int = 0,
        in_place: Sequence[BoundInPlace] = (),
    ) -> None:
        places = {len(inputs) + each.output: each.input for each in in_place}
        specs = [*inputs, *outputs]
        self._dtypes = [np.dtype(spec.dtype) for spec in specs]
        ranks = sum(len(spec.shape) for spec in specs)
        tensors_at = layout.RECORD_SLOTS
        shapes_at = tensors_at + len(specs) * layout.TENSOR_SLOTS
        self._memory = np.zeros(shapes_at + ranks, np.int64)
        self._address = base = address_of(self._memory)
        self._write_header(program, len(inputs), len(outputs), base + 8 * tensors_at)
        for index, (spec, dtype) in enumerate(zip(specs, self._dtypes, strict=True)):
            row = self._memory[tensors_at + index * layout.TENSOR_SLOTS :]
            row[layout.DTYPE] = id(dtype)
            row[layout.RANK] = len(spec.shape)
            row[layout.SHAPE] = base + 8 * shapes_at
            row[layout.BYTES] = spec.nbytes
            row[layout.PADDED] = spec.nbytes + ALIGNMENT
            row[layout.PLACE] = places.get(index, -1)
            self._memory[shapes_at : shapes_at + len(spec.shape)] = spec.shape
            shapes_at += len(spec.shape)
        self._memory[layout.WANTED] = others
        self.call: NativeCall = _builtin(self._memory) if _layouts_agree() else _checked_in_python

    def _write_header(self, program: int, inputs: int, outputs: int, tensors: int) -> None:
        header = self._memory
        header[layout.CALLED], header[layout.FIRST] = program, address_of(header)
        header[layout.INPUTS], header[layout.OUTPUTS] = inputs, outputs
        header[layout.TENSORS] = tensors
        header[layout.NONE], header[layout.LIST] = id(None), id(list)
        header[layout.ARRAY], header[layout.BYTE] = id(np.ndarray), id(np.dtype(np.uint8))
        header[layout.NEW_ARRAY], header[layout.SET_BASE] = _numpy_functions()

    @property
    def short(self) -> bool:
        """Return whether a call since the last look ended because all instances were in use and there may be more."""
        found = bool(self._memory[layout.SHORT])
        self._memory[layout.SHORT] = 0
        return found

    def join(self, other: CallRecord) -> bool:
        """Let calls use one more instance, which must live as long; False where there are enough."""
        return bool(executor().join(self._address, other._address))

    def run(
        self, addresses: Sequence[int], repeats: int = 1, times: int = 0, events: int = 0, request: int = 0
    ) -> tuple[int, int]:
        """Run the program on checked arrays at these addresses, after the calls before.

        ``request`` is the address of a request row, or 0.
        Returns what :func:`autotune.runtime.cpu.calls.run` says, and the index if it found a wrong one.
        """
        words = np.array([*addresses, 0], np.int64)  # one more, for the index where there are no addresses
        outcome = executor().run(self._address, address_of(words), repeats, times, events, request)
        return outcome, int(words[0]) if outcome >= WRONG else 0

    def close(self) -> None:
        """Run nothing any more, after the calls before."""
        executor().close(self._address)

    def reset(self) -> None:
        """Forget who has the program: in the child of a fork that thread does not exist."""
        self._memory[[layout.MUTEX, layout.JOINING, layout.BESIDE, layout.TICKETS, layout.HEAD]] = 0


def _builtin(memory: NDArray[np.int64]) -> NativeCall:
    """Return the compiled entry point as a builtin function, which keeps the record alive."""
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    builtin: NativeCall = new(ctypes.addressof(_definition()), memory, None)
    return builtin


@cache
def _definition() -> _MethodDefinition:
    return _MethodDefinition(b"call", executor().call, _FASTCALL, None)


@cache
def _numpy_functions() -> tuple[int, int]:
    """Return addresses from the table that extension modules read."""
    module: Any = import_module("numpy._core._multiarray_umath")
    read = ctypes.pythonapi.PyCapsule_GetPointer
    read.restype = ctypes.c_void_p
    read.argtypes = [ctypes.py_object, ctypes.c_char_p]
    table = (ctypes.c_int64 * (_SET_BASE + 1)).from_address(read(module._ARRAY_API, None))
    return table[_NEW_ARRAY], table[_SET_BASE]


def _checked_in_python(arrays: tuple[Any, ...], out: list[Any] | None, row: object = None) -> None:
    """Call from a Python or a NumPy whose objects are laid out in another way."""


@cache
def _layouts_agree() -> bool:
    """Return whether objects and arrays have their words where :mod:`autotune.runtime.cpu.objects` says."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return False
    if object.__basicsize__ != 8 * OBJECT_SLOTS or MEMORY is None:
        return False
    plain, strided = np.zeros((2, 7), np.float32), np.zeros((3, 4), np.int8)[1:, ::2]
    arrays: tuple[NDArray[Any], ...] = (plain, strided, np.zeros(()), np.zeros((1, 0, 5)))
    return all(_agrees(array) for array in arrays) and _tuple_agrees(arrays)


def _agrees(array: NDArray[Any]) -> bool:
    words = _words(id(array), ARRAY_FLAGS + 1)
    return (
        words[OBJECT_TYPE] == id(np.ndarray)
        and words[ARRAY_DATA] == address_of(array)
        and words[ARRAY_RANK] & LOW_HALF == array.ndim
        and tuple(_words(words[ARRAY_SHAPE], array.ndim)) == array.shape
        and words[ARRAY_DTYPE] == id(array.dtype)
        and words[ARRAY_FLAGS] & LOW_HALF == array.flags.num
    )


def _tuple_agrees(items: tuple[Any, ...]) -> bool:
    words = _words(id(items), TUPLE_ITEMS + len(items))
    return words[OBJECT_SLOTS] == len(items) and words[TUPLE_ITEMS:] == [id(item) for item in items]


def _words(address: int, count: int) -> list[int]:
    memory = cast("ctypes.Array[ctypes.c_int64]", MEMORY)
    return [memory[(address >> 3) + index] for index in range(count)]


__all__ = ["CallRecord", "NativeCall"]
