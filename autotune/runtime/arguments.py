"""Checks the arrays of a call against a module's inputs and outputs, and converts them.

Calls whose arrays fit as they are do not come here: :mod:`autotune.runtime.cpu.calls` sees to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InputError
from autotune.runtime.cpu.device import address_of, allocate_array
from autotune.runtime.image import BoundInPlace, TensorSpec
from autotune.suggest import did_you_mean

if TYPE_CHECKING:
    from autotune.runtime.compiled import SizedTensor

Buffers = tuple[list[NDArray[Any]], list[int]]
"""Arrays of a call and the addresses of their first elements."""


class Signature:
    """Names, shapes and dtypes that a call must have."""

    def __init__(
        self,
        module: str,
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
        in_place: Sequence[BoundInPlace] = (),
    ) -> None:
        self._module = module
        self._places = {each.output: each.input for each in in_place}
        self._inputs = inputs
        self._outputs = outputs
        self._fresh = [(s.shape, np.dtype(s.dtype), s.nbytes) for s in outputs]

    def inputs(self, arrays: Sequence[Any]) -> Buffers:
        """Return the dense arrays of the right types, in order.

        An array is copied only if it is not dense, or not aligned to its elements. NumPy's scalars are
        arrays without dimensions.

        Objects with ``__dlpack__`` (tensors of other libraries in CPU memory) are taken without a
        copy. Raises InputError.
        """
        if len(arrays) != len(self._inputs):
            raise InputError(
                f"{self._module!r} takes {len(self._inputs)} inputs, got {len(arrays)}; "
                f"expected {_list(self._inputs)}"
            )
        dense = [self._converted(index, array) for index, array in enumerate(arrays)]
        return dense, [address_of(array) for array in dense]

    def fresh_outputs(self) -> Buffers:
        """Return the new aligned arrays for the outputs."""
        made = [allocate_array(*output) for output in self._fresh]
        return [array for array, _ in made], [address for _, address in made]

    def given_outputs(self, outputs: list[Any], inputs: Buffers) -> Buffers:
        """Return the caller's arrays, checked: right type, dense, writable, no overlap; raises InputError.

        Objects with ``__dlpack__`` are written to where they lie.
        """
        outputs = [shared(output) for output in outputs]
        self._check_outputs(outputs, inputs[0])
        return outputs, [address_of(array) for array in outputs]

    def _check_outputs(self, outputs: Sequence[NDArray[Any]], inputs: Sequence[NDArray[Any]]) -> None:
        """Raise InputError for outputs that a run may not write to."""
        if len(outputs) != len(self._outputs):
            raise InputError(
                f"{self._module!r} has {len(self._outputs)} outputs, got {len(outputs)} arrays "
                f"in out=; expected {_list(self._outputs)}"
            )
        taken = list(inputs)
        for number, (spec, array) in enumerate(zip(self._outputs, outputs, strict=True)):
            place = f"output {spec.name!r} of {self._module!r}"
            if not isinstance(array, np.ndarray):
                raise InputError(f"{place}: expected an array, got {type(array).__name__}")
            if array.dtype != np.dtype(spec.dtype) or array.shape != spec.shape:
                raise InputError(f"{place}: expected {_type(spec)}, got {_found(array)}")
            if not (array.flags.c_contiguous and array.flags.writeable):
                raise InputError(f"{place}: the array in out= must be C-contiguous and writable")
            own = self._places.get(number)
            others = taken if own is None or not _same(array, inputs[own]) else taken[:own] + taken[own + 1 :]
            if any(np.may_share_memory(array, other) for other in others):
                raise InputError(f"{place}: the array in out= overlaps an input or an output")
            taken.append(array)

    def _converted(self, index: int, array: Any) -> NDArray[Any]:
        """Return a dense array from what is not plainly one; raises InputError when the type differs."""
        spec = self._inputs[index]
        place = f"input {index} ({spec.name!r}) of {self._module!r}"
        if isinstance(array, np.generic):
            array = np.asarray(array)
        if not isinstance(array, np.ndarray):
            try:
                taken = np.from_dlpack(array) if hasattr(array, "__dlpack__") else None
            except Exception as error:  # the code of another library, which may raise anything
                reason = str(error) or type(error).__name__
                raise InputError(f"{place}: not readable through DLPack: {reason}") from error
            if taken is None:
                raise InputError(
                    f"{place}: expected a NumPy array {_type(spec)}, got {type(array).__name__}; "
                    "np.asarray makes one"
                )
            array = taken
        if array.dtype != np.dtype(spec.dtype) or array.shape != spec.shape:
            raise InputError(f"{place}: expected {_type(spec)}, got {_found(array)}")
        dense: NDArray[Any] = np.require(array, requirements=["C_CONTIGUOUS", "ALIGNED"])
        return dense.reshape(spec.shape)


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether two dense arrays of one size are the same memory."""
    return address_of(one) == address_of(other)


def wrong_names(
    module: str, given: Iterable[str], inputs: Sequence[TensorSpec] | Sequence[SizedTensor]
) -> InputError:
    """Return the error of a call by names that are not those of the inputs."""
    names, given = [spec.name for spec in inputs], [*given]
    missing = [name for name in names if name not in given]
    unknown = [str(name) for name in given if name not in names]
    parts = [f"missing {', '.join(missing)}"] if missing else []
    parts += [f"unknown {', '.join(unknown)}"] if unknown else []
    return InputError(
        f"wrong input names for {module!r}: {'; '.join(parts)}; expected {_list(inputs)}"
        + "".join(did_you_mean(name, missing) for name in unknown[:1])
    )


def shared(output: Any) -> Any:
    """Return the memory of a tensor of another library as an array; what cannot be one is left to the checks."""
    if isinstance(output, np.ndarray) or not hasattr(output, "__dlpack__"):
        return output
    try:
        return np.from_dlpack(output)
    except Exception as error:  # the code of another library, which may raise anything
        raise InputError(
            f"an output in out= is not writable through DLPack: {str(error) or type(error).__name__}"
        ) from error


def _list(specs: Sequence[TensorSpec] | Sequence[SizedTensor]) -> str:
    return ", ".join(map(str, specs)) or "none"


def _type(spec: TensorSpec) -> str:
    return f"{spec.dtype}[{', '.join(map(str, spec.shape))}]"


def _found(array: NDArray[Any]) -> str:
    order = "" if array.dtype.isnative else " (other byte order)"
    return f"{array.dtype.name}[{', '.join(map(str, array.shape))}]{order}"


_SHOWN = 4


def signature_text(
    inputs: Sequence[TensorSpec] | Sequence[SizedTensor],
    outputs: Sequence[TensorSpec] | Sequence[SizedTensor],
) -> str:
    """Return names, dtypes and shapes of what a call takes and gives; of many only the first few."""
    takes, gives = (
        ", ".join(
            [*map(str, specs[:_SHOWN]), *([f"{len(specs) - _SHOWN} more"] if len(specs) > _SHOWN else [])]
        )
        for specs in (inputs, outputs)
    )
    return f"({takes}) -> ({gives})"


__all__ = ["Buffers", "Signature", "shared", "signature_text", "wrong_names"]
