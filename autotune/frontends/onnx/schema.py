"""Each node against ONNX's own definition of its operator, before any code of ours reads it.

The definition knows how many inputs there are, which attributes and of what type, which element types
go together and, by its shape inference, ranks and the lengths of attributes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol

import numpy as np

from autotune.errors import ModelImportError
from autotune.graph.ir import ABSENT, Array, TensorType

_MAX_PARAMETER_BYTES = 1 << 12
"""Constants up to this size may be shapes, axes or bounds: the inference reads their values."""
_MAX_SHOWN = 60
"""Characters of an attribute in a message."""
_NEWEST = 1 << 30
"""An opset that has every operator in its newest version."""
_FOREIGN_TYPE = "has unsupported type"
_PREFIX = re.compile(r".*\[(?:Shape|Type)InferenceError\]\s*", re.DOTALL)


class Scope(Protocol):
    """The requests that a rule may make to the importer."""

    opset: int

    def type_of(self, value: str) -> TensorType:
        """Return the type of a value that is already known."""

    def constant_of(self, value: str) -> Array | None:
        """Return the array of a value if it is constant."""

    def known(self, value: str) -> Array | None:
        """Return the same, or what a value is made of lengths that are computed, at what these are assumed to be."""

    def inputs_behind(self, value: str) -> tuple[str, ...]:
        """Return the inputs of the model that a value depends on."""


def check_node(proto: Any, scope: Scope) -> None:
    """Refuse a node that is not as the opset defines its operator.

    Raises:
        ModelImportError: inputs, outputs, attributes, element types or shapes do not fit; the message
            says which, and what the operator takes.
    """
    _check_parts(proto)
    check_against(schema_of(proto.op_type, scope.opset), schema_of(proto.op_type, _NEWEST), proto, scope)


def check_against(schema: Any, newest: Any, proto: Any, scope: Scope) -> None:
    """Refuse a node that is not as a version of its operator has it, of which a newer one may have more element types.

    Raises:
        ModelImportError: see :func:`check_node`.
    """
    from onnx import shape_inference

    names = [name for name in proto.input if name != ABSENT]
    types = {name: type_proto(scope.type_of(name)) for name in names}
    values = {name: _tensor_proto(array) for name in names if (array := _parameter(scope, name)) is not None}
    try:
        try:
            shape_inference.infer_node_outputs(schema, proto, types, values)
        except _refusals() as error:
            # Exporters write element types that only later versions of an operator have.
            if newest is schema or _FOREIGN_TYPE not in str(error):
                raise
            shape_inference.infer_node_outputs(newest, proto, types, values)
    except _refusals() as error:
        reason = _PREFIX.sub("", str(error)).strip().rstrip(".")
        raise ModelImportError(
            f"{_place(proto)}: not as ONNX defines it: {reason}\n"
            f"  given: {_given(proto, scope)}\n  {_signature(schema)}"
        ) from error


def check_form(proto: Any, opset: int) -> None:
    """Refuse a node that lacks an operand, a result or an attribute, or has an attribute of another type.

    That is what can be said of operators with subgraphs or sequences, for which there is no inference of single nodes.

    Raises:
        ModelImportError: the message says what is missing, and what the operator takes.
    """
    schema = schema_of(proto.op_type, opset)
    given = {attribute.name: attribute for attribute in proto.attribute}
    for what, found, least in (
        ("inputs", proto.input, schema.min_input),
        ("outputs", proto.output, schema.min_output),
    ):
        if len(found) < least:
            raise ModelImportError(
                f"{_place(proto)}: it has {len(found)} {what} of at least {least}\n  {_signature(schema)}"
            )
    for name, attribute in schema.attributes.items():
        if attribute.required and name not in given:
            raise ModelImportError(f"{_place(proto)}: attribute {name!r} is missing\n  {_signature(schema)}")
        if name in given and given[name].type not in (0, attribute.type.value):
            raise ModelImportError(
                f"{_place(proto)}: attribute {name!r} is of another type\n  {_signature(schema)}"
            )


@cache
def _refusals() -> tuple[type[Exception], ...]:
    """Return the exceptions that onnx's C++ parts raise; the last two for absurd values."""
    from onnx import checker, shape_inference

    return checker.ValidationError, shape_inference.InferenceError, ValueError, MemoryError


def _check_parts(proto: Any) -> None:
    """Refuse what onnx's inference does not come back from: a Split that claims more outputs than it has, of which it
    writes those, and an Einsum with several ellipses in an operand, over which it goes without end."""
    equations = [a.s.decode("utf-8", "replace") for a in proto.attribute if a.name == "equation"]
    for term in re.split(r",|->", equations[0]) if proto.op_type == "Einsum" and equations else ():
        if term.count(".") != 3 * term.count("...") or term.count("...") > 1:
            raise ModelImportError(
                f"{_place(proto)}: equation {equations[0][:_MAX_SHOWN]!r}: an operand, and the result, have at most "
                "one ellipsis of three dots"
            )
    claimed = [a.i for a in proto.attribute if a.name == "num_outputs"] if proto.op_type == "Split" else []
    if claimed not in ([], [len(proto.output)]):
        raise ModelImportError(
            f"{_place(proto)}: num_outputs is {claimed[0]}, it has {len(proto.output)} outputs"
        )


def node_name(proto: Any) -> str:
    """Return a node's name, or what stands for it where it has none: its first output."""
    return str(proto.name or next((o for o in proto.output if o != ABSENT), proto.op_type))


def _place(proto: Any) -> str:
    return f"node {node_name(proto)!r} ({proto.op_type})"


@cache
def schema_of(op: str, opset: int) -> Any:
    """Return an operator of ONNX as the opset has it, or its newest version where the opset has none."""
    from onnx import defs

    try:
        return defs.get_schema(op, max_inclusive_version=opset)
    except defs.SchemaError:
        return defs.get_schema(op)


@cache
def type_proto(tensor_type: TensorType) -> Any:
    from onnx import helper

    element = helper.np_dtype_to_tensor_dtype(np.dtype(tensor_type.dtype))
    return helper.make_tensor_type_proto(element, tensor_type.shape)


def _parameter(scope: Scope, name: str) -> Array | None:
    array = scope.constant_of(name)
    if array is None or array.dtype.kind != "i" or array.nbytes > _MAX_PARAMETER_BYTES:
        return None
    return array


def _tensor_proto(array: Array) -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(array)


def _given(proto: Any, scope: Scope) -> str:
    """Return the operands as text, e.g. ``(x: float32[1, 3], none, 2 outputs) axis=1``."""
    shown = [f"{name}: {scope.type_of(name)}" if name != ABSENT else "none" for name in proto.input]
    shown += [f"{len(proto.output)} outputs"] if len(proto.output) != 1 else []
    attributes = [_attribute(attribute) for attribute in proto.attribute]
    return " ".join([f"({', '.join(shown)})", *attributes])


def _attribute(proto: Any) -> str:
    from onnx import AttributeProto, helper

    values = {AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOAT, AttributeProto.FLOATS}
    if proto.type not in (*values, AttributeProto.STRING):
        return f"{proto.name} = ..."
    text = helper.printable_attribute(proto)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _signature(schema: Any) -> str:
    """Return the signature as text, e.g. ``Clip-13 takes (input: T, min?: T, max?: T); T: float32 or int8``."""
    from onnx import defs

    marks: Mapping[Any, str] = {
        defs.OpSchema.FormalParameterOption.Optional: "?",
        defs.OpSchema.FormalParameterOption.Variadic: "...",
    }
    inputs = ", ".join(f"{i.name}{marks.get(i.option, '')}: {i.type_str}" for i in schema.inputs)
    text = f"{schema.name}-{schema.since_version} takes ({inputs})"
    for constraint in schema.type_constraints:
        allowed = (t.removeprefix("tensor(").removesuffix(")") for t in constraint.allowed_type_strs)
        text += f"; {constraint.type_param_str}: {', '.join(allowed)}"
    attributes = [
        f"{name}: {str(a.type).rpartition('.')[2].lower()}{' (required)' if a.required else ''}"
        for name, a in sorted(schema.attributes.items())
    ]
    return f"{text}\n  attributes: {', '.join(attributes) or 'none'}"


__all__ = ["check_against", "check_form", "check_node", "node_name", "schema_of", "type_proto"]
