"""Operators that ONNX defines by others: the nodes of a definition, with the names and attributes of one node.

Definitions may have nodes that are defined by others again; the importer expands those when it comes to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from autotune.errors import ModelImportError
from autotune.frontends.onnx.schema import schema_of, type_proto
from autotune.graph.ir import ABSENT, TensorType


@dataclass(frozen=True)
class Definition:
    """Nodes that stand for one node, of an opset that may be another than the model's."""

    nodes: tuple[Any, ...]
    opset: int

    @property
    def read(self) -> set[str]:
        """Values that the nodes read."""
        return {value for node in self.nodes for value in node.input}


def is_defined(op: str, opset: int) -> bool:
    """Return whether ONNX defines an operator by others."""
    return _defining(op, opset) is not None


@cache
def parts_of(op: str, opset: int) -> tuple[tuple[str, int], ...]:
    """Return the operators that one is defined by and their opset; none where the definition depends on types."""
    schema = _defining(op, opset)
    if schema is None or not schema.has_function:
        return ()
    body = schema.function_body
    version = _opset_of(body)
    return tuple((node.op_type, version) for node in body.node)


def definition_of(
    proto: Any, opset: int, type_of: Callable[[str], TensorType], prefix: str
) -> Definition | None:
    """Return the nodes that define a node; names of values inside begin with ``prefix``. None where ONNX
    has no definition.

    Raises:
        ModelImportError: the node has an attribute that the definition, that of a later opset, does not know, or
            attributes for which ONNX has no definition.
    """
    schema = _defining(proto.op_type, opset)
    if schema is None:
        return None
    full, before = _with_axes(_with_defaults(proto, opset), schema, f"{prefix}axes")
    known = {*schema.attributes, "consumed_inputs"}  # which operands may be overwritten: a hint of old opsets
    unknown = sorted({attribute.name for attribute in full.attribute} - known)
    if unknown:
        raise ModelImportError(
            f"node {proto.name or proto.output[0]!r} ({proto.op_type}): attribute {unknown[0]!r} of opset {opset} "
            "is not supported\n  export the model again with a later opset"
        )
    body = _body(schema, full, type_of)
    if not body.node:
        raise ModelImportError(
            f"node {proto.name or proto.output[0]!r} ({proto.op_type}): ONNX defines no operator for these attributes "
            "and types"
        )
    given = {attribute.name: attribute for attribute in full.attribute}
    names = dict(_paired(body.input, full.input)) | dict(_paired(body.output, proto.output, prefix))
    nodes = (*before, *(_renamed(node, names, prefix, given) for node in body.node))
    return Definition(nodes, _opset_of(body))


@cache
def _defining(op: str, opset: int) -> Any:
    """Return the version of an operator that has a definition: that of the opset, or else the newest;
    None without one."""
    from onnx import defs

    if not defs.has(op):
        return None
    for schema in (schema_of(op, opset), defs.get_schema(op)):
        if schema.has_function or schema.has_context_dependent_function:
            return schema
    return None


def _body(schema: Any, node: Any, type_of: Callable[[str], TensorType]) -> Any:
    import onnx

    if schema.has_function:
        return schema.function_body
    types = [
        (type_proto(type_of(value)) if value != ABSENT else onnx.TypeProto()).SerializeToString()
        for value in node.input
    ]
    data = schema.get_context_dependent_function(node.SerializeToString(), types)
    return onnx.FunctionProto.FromString(data)


def _opset_of(body: Any) -> int:
    return max(int(o.version) for o in body.opset_import if o.domain in ("", "ai.onnx"))


def _with_defaults(proto: Any, opset: int) -> Any:
    """Return the node with the attributes that it does not give, as its own opset has them."""
    import onnx

    full = onnx.NodeProto()
    full.CopyFrom(proto)
    given = {attribute.name for attribute in proto.attribute}
    for name, attribute in schema_of(proto.op_type, opset).attributes.items():
        if name not in given and attribute.default_value.type != onnx.AttributeProto.UNDEFINED:
            full.attribute.append(attribute.default_value)
    for attribute in full.attribute:
        if attribute.name == "periodic":  # a flag that the definitions of windows calculate with
            attribute.i = int(attribute.i != 0)
    return full


def _with_axes(full: Any, schema: Any, name: str) -> tuple[Any, tuple[Any, ...]]:
    """Return the node with the axes of a reduction as an input, as since opset 18, and the constant that gives them."""
    from onnx import helper

    given = [attribute for attribute in full.attribute if attribute.name == "axes"]
    if not given or "axes" in schema.attributes or "axes" not in {value.name for value in schema.inputs}:
        return full, ()
    full.attribute.remove(given[0])
    full.input.append(name)
    return full, (helper.make_node("Constant", [], [name], value_ints=list(given[0].ints)),)


def _paired(inner: Iterable[str], outer: Iterable[str], prefix: str = "") -> Iterable[tuple[str, str]]:
    """Return names of a definition and what they are outside; results that nothing asks for get a name of their own."""
    given = list(outer)
    for index, name in enumerate(inner):
        value = given[index] if index < len(given) else ABSENT
        yield name, value or (f"{prefix}{name}" if prefix else ABSENT)


def _renamed(node: Any, names: Mapping[str, str], prefix: str, given: Mapping[str, Any]) -> Any:
    """Return a node of a definition, or of a subgraph in it, with the names and attributes of the node
    that it stands for."""
    import onnx

    def outside(name: str) -> str:
        return names.get(name, f"{prefix}{name}") if name != ABSENT else ABSENT

    made = onnx.NodeProto()
    made.CopyFrom(node)
    del made.input[:], made.output[:], made.attribute[:]
    made.input.extend(map(outside, node.input))
    made.output.extend(map(outside, node.output))
    made.name = f"{prefix}{node.name}" if node.name else ""
    for attribute in node.attribute:
        found = given.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        if found is None:
            continue
        own = made.attribute.add()
        own.CopyFrom(found)
        own.name = attribute.name
        graphs = [*([own.g] if own.HasField("g") else []), *own.graphs]
        for graph in graphs if not attribute.ref_attr_name else ():
            inner = [_renamed(each, names, prefix, given) for each in graph.node]
            del graph.node[:]
            graph.node.extend(inner)
            for value in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
                value.name = outside(value.name)
    return made


__all__ = ["Definition", "definition_of", "is_defined", "parts_of"]
