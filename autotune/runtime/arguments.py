"""Checks the arrays of a call against a module's inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from autotune.errors import InputError
from autotune.runtime.device import address_of, allocate_array
from autotune.runtime.image import TensorSpec

Buffers = tuple[list[NDArray[Any]], list[int]]
"""Arrays of a call and the addresses of their first elements."""

_SMALL = 4096
"""Bytes. Below, aligning an output to a cache line (0.7 µs) costs more than it saves."""

_Type = tuple[np.dtype[Any], tuple[int, ...]]


class Signature:
    """Names, shapes and dtypes that a call must have."""

    def __init__(self, module: str, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> None:
        self._module = module
        self._inputs = inputs
        self._outputs = outputs
        self._input_names = [s.name for s in inputs]
        self._input_set = frozenset(self._input_names)
        self._input_types: list[_Type] = [(np.dtype(s.dtype), s.shape) for s in inputs]
        self._output_types: list[_Type] = [(np.dtype(s.dtype), s.shape) for s in outputs]
        self._input_bytes = [s.nbytes for s in inputs]
        self._output_bytes = [s.nbytes for s in outputs]
        self._fresh = [(s.shape, np.dtype(s.dtype), s.nbytes) for s in outputs]

    def inputs(self, arrays: Sequence[Any]) -> Buffers:
        """Dense arrays of the right types, in order.

        An array is copied only if it is not dense, or not aligned to its elements.

        Objects with ``__dlpack__`` (tensors of other libraries in CPU memory) are taken without a
        copy. Raises InputError.
        """
        dense = [*arrays]
        addresses = _plain(dense, self._input_types)
        if addresses is None:
            dense = self._dense(dense)
            addresses = [address_of(array) for array in dense]
        return dense, addresses

    def _dense(self, arrays: Sequence[Any]) -> list[NDArray[Any]]:
        """Every array checked and, where it needs it, converted; raises InputError."""
        if len(arrays) != len(self._inputs):
            raise InputError(
                f"{self._module!r} takes {len(self._inputs)} inputs, got {len(arrays)}; "
                f"expected {_list(self._inputs)}"
            )
        return [
            array if _plain([array], [types]) else self._converted(index, array)
            for index, (array, types) in enumerate(zip(arrays, self._input_types, strict=True))
        ]

    def by_name(self, inputs: Mapping[str, Any]) -> list[Any]:
        """The values of a mapping in the order of the inputs; raises InputError."""
        if inputs.keys() != self._input_set:
            self._check_names(inputs)
        return [inputs[name] for name in self._input_names]

    def _check_names(self, inputs: Mapping[str, Any]) -> None:
        names = self._input_names
        missing = [name for name in names if name not in inputs]
        unknown = [str(name) for name in inputs if name not in names]
        if missing or unknown:
            parts = [f"missing {', '.join(missing)}"] if missing else []
            parts += [f"unknown {', '.join(unknown)}"] if unknown else []
            raise InputError(
                f"wrong input names for {self._module!r}: {'; '.join(parts)}; expected {_list(self._inputs)}"
            )

    def fresh_outputs(self) -> Buffers:
        """New arrays for the outputs, aligned unless so small that the call would take longer."""
        arrays, addresses = [], []
        for shape, dtype, nbytes in self._fresh:
            if nbytes < _SMALL:
                array = np.empty(shape, dtype)
                address = address_of(array)
            else:
                array, address = allocate_array(shape, dtype, nbytes)
            arrays.append(array)
            addresses.append(address)
        return arrays, addresses

    def given_outputs(self, outputs: list[NDArray[Any]], inputs: Buffers) -> Buffers:
        """The caller's arrays, checked: right type, dense, writable, no overlap; raises InputError."""
        addresses = _plain(outputs, self._output_types)
        if addresses is None or self._touching(inputs[1], addresses):
            self._check_outputs(outputs, inputs[0])
            addresses = [address_of(array) for array in outputs]
        return outputs, addresses

    def _touching(self, inputs: Sequence[int], outputs: Sequence[int]) -> bool:
        """Whether dense arrays at these addresses may share memory; the exact check decides."""
        taken = [*zip(inputs, self._input_bytes, strict=True)]
        for begin, nbytes in zip(outputs, self._output_bytes, strict=True):
            for other, other_bytes in taken:
                if begin < other + other_bytes and other < begin + nbytes:
                    return True
            taken.append((begin, nbytes))
        return False

    def _check_outputs(self, outputs: Sequence[NDArray[Any]], inputs: Sequence[NDArray[Any]]) -> None:
        """Raises InputError for outputs that a run may not write to."""
        if len(outputs) != len(self._outputs):
            raise InputError(
                f"{self._module!r} has {len(self._outputs)} outputs, got {len(outputs)} arrays "
                f"in out=; expected {_list(self._outputs)}"
            )
        taken = list(inputs)
        for spec, array in zip(self._outputs, outputs, strict=True):
            place = f"output {spec.name!r} of {self._module!r}"
            if not isinstance(array, np.ndarray):
                raise InputError(f"{place}: expected an array, got {type(array).__name__}")
            if array.dtype != np.dtype(spec.dtype) or array.shape != spec.shape:
                raise InputError(f"{place}: expected {_type(spec)}, got {_found(array)}")
            if not (array.flags.c_contiguous and array.flags.writeable):
                raise InputError(f"{place}: the array in out= must be C-contiguous and writable")
            if any(np.may_share_memory(array, other) for other in taken):
                raise InputError(f"{place}: the array in out= overlaps an input or an output")
            taken.append(array)

    def _converted(self, index: int, array: Any) -> NDArray[Any]:
        """A dense array from what is not plainly one; raises InputError when the type differs."""
        spec = self._inputs[index]
        place = f"input {index} ({spec.name!r}) of {self._module!r}"
        if not isinstance(array, np.ndarray):
            if not hasattr(array, "__dlpack__"):
                raise InputError(
                    f"{place}: expected a NumPy array {_type(spec)}, got {type(array).__name__}; "
                    "np.asarray makes one"
                )
            try:
                array = np.from_dlpack(array)
            except (BufferError, RuntimeError, TypeError, ValueError) as error:
                raise InputError(f"{place}: not readable through DLPack: {error}") from error
        if array.dtype != np.dtype(spec.dtype) or array.shape != spec.shape:
            raise InputError(f"{place}: expected {_type(spec)}, got {_found(array)}")
        dense: NDArray[Any] = np.require(array, requirements=["C_CONTIGUOUS", "ALIGNED"])
        return dense.reshape(spec.shape)


def _plain(arrays: Sequence[Any], types: Sequence[_Type]) -> list[int] | None:
    """Addresses of arrays that need no conversion: of these types, dense, aligned and writable.

    None when there is one that the slower checks must see. Every call comes here, so it is short.
    """
    if len(arrays) != len(types):
        return None
    addresses = []
    for array, (dtype, shape) in zip(arrays, types):  # noqa: B905 (strict= costs 0.1 µs)
        if (
            type(array) is not ndarray
            or array.dtype is not dtype
            or array.shape != shape
            or not array.flags.carray
        ):
            return None
        addresses.append(address_of(array))
    return addresses


def _list(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(map(str, specs)) or "none"


def _type(spec: TensorSpec) -> str:
    return f"{spec.dtype}[{', '.join(map(str, spec.shape))}]"


def _found(array: NDArray[Any]) -> str:
    order = "" if array.dtype.isnative else " (other byte order)"
    return f"{array.dtype.name}[{', '.join(map(str, array.shape))}]{order}"


__all__ = ["Buffers", "Signature"]
