"""Inputs as a model declares them: types, shapes, sizes that are open; and the values that are given for them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from autotune.errors import ModelImportError, UsageError
from autotune.frontends.onnx.read import LoadedModel, element_dtype
from autotune.frontends.sizes import Given, given_numbers, open_names, shape_text
from autotune.graph.ir import Array, TensorType
from autotune.suggest import listing

_LOG = logging.getLogger("autotune.frontends")


def check_inputs(values: Sequence[Any], given: Iterable[str], origin: str) -> None:
    """Refuse inputs that are declared twice or are no tensors, and names in ``given`` that are no inputs."""
    twice = [name for name, count in Counter(value.name for value in values).items() if count > 1]
    if twice:
        raise ModelImportError(f"{origin}: input {twice[0]!r} is declared twice")
    unknown = sorted({*given} - {value.name for value in values})
    if unknown:
        names = [value.name for value in values]
        raise UsageError(f"{origin} has no input {unknown[0]!r}\n  inputs: {listing(unknown[0], names)}")
    for value in values:
        if not value.type.HasField("tensor_type"):
            raise ModelImportError(f"{origin}: input {value.name!r} is not a tensor")


def check_declared(value: Any, found: TensorType | None, where: str, is_input: bool = False) -> None:
    """Refuse an element type or a rank that is declared otherwise than it is found; extents may be stale.

    A result of another rank is that of the graph all the same, as other runtimes have it, and a warning.
    """
    if found is None or not value.type.HasField("tensor_type"):
        return
    tensor = value.type.tensor_type
    declared = element_dtype(tensor.elem_type, where) if tensor.elem_type else found.dtype
    shape = declared_shapes([value])[value.name]
    if declared == found.dtype and (shape is None or len(shape) == found.rank):
        return
    text = shape_text(["?"] if shape is None else shape)
    wrong = f"{where} is declared {declared}{text}, but it is {found}"
    if declared != found.dtype or is_input:
        advice = "correct the declaration, for example by onnx.shape_inference.infer_shapes"
        raise ModelImportError(f"{wrong}\n  {advice}")
    _LOG.warning("%s", wrong)


def given_value(value: Any, dtype: str, declared: list[int | str] | None, where: str) -> Array:
    """Return what is given for an input, in its type if that holds it. Raises UsageError if it does not fit."""
    array = np.asarray(value)
    if not isinstance(value, np.ndarray | np.generic) and array.dtype.kind in "bif":
        array = _as_input(array, np.dtype(dtype), declared)
    if str(array.dtype) != dtype or not _fits(array.shape, declared):
        raise UsageError(
            f"value {TensorType.of(array)} does not fit {where}, "
            f"which is {dtype}{shape_text(['?'] if declared is None else declared)}"
        )
    return array


def bounds_in(given: Given, graph: Any) -> tuple[dict[str, int], Given]:
    """Return the sizes that are bounds of values which nodes compute, and the others."""
    made = {value for node in graph.node for value in node.output} - {
        *open_names(declared_shapes(graph.input))
    }
    fixed = {name: given_numbers(name, size) for name, size in given.items() if not isinstance(size, str)}
    bounds = {name: size[0] for name, size in fixed.items() if name in made and len(size) == 1}
    return bounds, {name: size for name, size in given.items() if name not in bounds}


def _as_input(array: Array, dtype: np.dtype[Any], declared: list[int | str] | None) -> Array:
    """Return numbers of Python in the type and rank of an input, as far as it holds them."""
    with np.errstate(all="ignore"):
        converted = array.astype(dtype)
    if dtype.kind == "f" or (converted == array).all():
        array = converted
    return array.reshape((1,) * len(declared or ())) if array.ndim == 0 else array


def _fits(shape: Sequence[int], declared: list[int | str] | None) -> bool:
    """Return whether an input declared so can have a shape."""
    return declared is None or (
        len(shape) == len(declared)
        and all(isinstance(d, str) or d == g for d, g in zip(declared, shape, strict=True))
    )


def inputs_of(model: LoadedModel) -> list[Any]:
    """Return the inputs of a model, without those that have a value."""
    stored = {*(tensor.name for tensor in model.proto.graph.initializer), *model.values}
    return [value for value in model.proto.graph.input if value.name not in stored]


def declared_shapes(inputs: Iterable[Any]) -> dict[str, list[int | str] | None]:
    """Return shapes of inputs, with the names of open dimensions, ``INPUT.AXIS`` for one without; None
    for unknown rank."""
    return {v.name: _declared_shape(v) for v in inputs if v.type.HasField("tensor_type")}


def _declared_shape(value: Any) -> list[int | str] | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    fixed = [d.HasField("dim_value") and d.dim_value >= 0 for d in tensor.shape.dim]
    return [
        int(d.dim_value) if is_fixed else _name(d.dim_param) or f"{value.name}.{axis}"
        for axis, (d, is_fixed) in enumerate(zip(tensor.shape.dim, fixed, strict=True))
    ]


def _name(symbol: str) -> str:
    """Return the name of an open dimension; empty for what exporters write of any that they do not know.

    >>> _name("batch"), _name("?"), _name("-1"), _name("None")
    ('batch', '', '', '')
    """
    return symbol if any(each.isalpha() for each in symbol) and symbol != "None" else ""


__all__ = ["bounds_in", "check_declared", "check_inputs", "declared_shapes", "given_value", "inputs_of"]
