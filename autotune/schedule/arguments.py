"""Arguments of primitives by their annotations: what a parameter cannot take is refused before anything is done."""

from __future__ import annotations

import operator
from typing import Any

from autotune.errors import ScheduleError
from autotune.schedule.index_map import IndexMap
from autotune.schedule.knob_value import KnobValue, concrete
from autotune.te.expr import Const, IterVar
from autotune.te.intrinsic import TensorIntrin
from autotune.te.tensor import Operation, Tensor

LARGEST = 2**31 - 1
"""Extents, factors and offsets are at most this."""


def accepted(name: str, annotation: str, value: Any) -> Any:
    """Return ``value`` as a parameter of that annotation takes it; raises ScheduleError saying what it must be.

    Integers of NumPy and constants of ``te`` become Python's, operations their first output, functions index maps.
    """
    kind = annotation.removesuffix(" | None")
    if value is None and kind != annotation:
        return value
    if kind == "int | KnobValue":
        number = _integer(name, concrete(value))
        return value if isinstance(value, KnobValue) else number
    value = concrete(value)
    if kind == "bool | KnobValue":
        if not isinstance(value, bool):
            raise ScheduleError(f"{name} must be True or False, got {value!r}")
        return value
    if kind == "Any":
        return value
    if kind == "int":
        return _integer(name, value)
    if kind == "IndexMapLike":
        return IndexMap.of(value)
    if kind == "Tensor" and isinstance(value, Operation):
        return value.output(0)
    types, wanted = _TYPES[kind]
    if not isinstance(value, types) or isinstance(value, bool):
        raise ScheduleError(f"{name} must be {wanted}, got {value!r}")
    return value


_TYPES: dict[str, tuple[Any, str]] = {
    "str": (str, "a text"),
    "IterVar": (IterVar, "a loop variable"),
    "Tensor": (Tensor, "a tensor"),
    "TensorIntrin": (TensorIntrin, "an intrinsic, from te.decl_tensor_intrin(...)"),
}


def _integer(name: str, value: Any) -> int:
    number: Any = value.value if isinstance(value, Const) else value
    if isinstance(number, bool):
        raise ScheduleError(f"{name} must be an integer, got {value!r}")
    if not isinstance(number, int):
        try:
            number = operator.index(number)
        except TypeError:
            raise ScheduleError(f"{name} must be an integer, got {value!r}") from None
    if abs(number) > LARGEST:
        raise ScheduleError(f"{name} must be an integer of at most {LARGEST}, got {value!r}")
    result: int = number
    return result


__all__ = ["LARGEST", "accepted"]
