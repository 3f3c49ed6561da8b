"""Nodes of operators outside of ONNX, as the nodes of ONNX that they are defined by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from autotune.errors import ModelImportError
from autotune.frontends.onnx.functions import Definition
from autotune.frontends.onnx.nodes import unknown_parameter
from autotune.frontends.onnx.schema import Scope, node_name
from autotune.graph.ir import ABSENT, Array, TensorType
from autotune.suggest import did_you_mean

_OPSET = 23
"""Of the nodes of all definitions."""
GRAPH_DOMAIN = "autotune.graph"
"""Of nodes of a definition that are operators of the graph IR which ONNX has not."""


@dataclass
class ForeignNode:
    """A node being defined: its operands, and the nodes of ONNX so far.

    ``attrs`` has every attribute of the rule, ``given`` those that the node gives; texts are str, lists are tuples.
    """

    proto: Any
    prefix: str
    scope: Scope
    define: Callable[[str, Array], None]
    given: dict[str, Any] = field(init=False)
    attrs: dict[str, Any] = field(default_factory=dict)
    nodes: list[Any] = field(default_factory=list)
    constants: int = 0
    real: int = 0
    """The input whose type numbers have."""

    def __post_init__(self) -> None:
        from onnx import helper

        values = {a.name: helper.get_attribute_value(a) for a in self.proto.attribute}
        self.given = {name: _plain(value) for name, value in values.items()}

    def __call__(self, op: str, *operands: str, result: str = ABSENT, **attrs: Any) -> str:
        """Add a node, and return its result, which is ``result`` or gets a name."""
        return self.several(op, operands, [result], **attrs)[0]

    def several(self, op: str, operands: tuple[str, ...], results: list[str], **attrs: Any) -> list[str]:
        """Add a node of several results, and return them."""
        from onnx import helper

        named = [each or f"{self.prefix}{len(self.nodes)}.{n}" for n, each in enumerate(results)]
        self.nodes.append(helper.make_node(op, operands, named, name=named[0], **attrs))
        return named

    def of_graph(self, op: str, *operands: str, result: str = ABSENT, **attrs: Any) -> str:
        """Add a node of an operator that only the graph IR has."""
        return self(op, *operands, result=result, domain=GRAPH_DOMAIN, **attrs)

    def constant(self, value: Any, dtype: str = "int64") -> str:
        """Return the name of a new constant."""
        self.constants += 1
        name = f"{self.prefix}constant{self.constants}"
        self.define(name, np.asarray(value, dtype))
        return name

    def number(self, value: float) -> str:
        """Return the name of a number, of the type of input ``real``."""
        return self.constant(value, self.type(self.real).dtype)

    def like(self, value: str, number: float) -> str:
        """Return the name of a number of another value's type, which a node has made."""
        return self("CastLike", self.constant(number, "float32"), value)

    def cast(self, value: str, dtype: str, result: str = ABSENT) -> str:
        """Return the name of a value in another type."""
        from onnx import helper

        return self("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), result=result)

    def rows(self, value: str) -> str:
        """Return the first input, or what was made of it, as rows: a vector is one."""
        self.check(self.type(0).rank in (1, 2), 0, "[rows, features] or [features]")
        return value if self.type(0).rank == 2 else self.reshape(value, 1, -1)

    def extent(self, value: str, axis: int) -> str:
        """Return the name of a value's extent along an axis, a scalar."""
        return self("Squeeze", self("Shape", value, start=axis, end=axis + 1))

    def places(self, count: str) -> str:
        """Return the name of 0, 1, ... count - 1."""
        return self("Range", self.constant(0), count, self.constant(1))

    def reshape(self, value: str, *shape: int, result: str = ABSENT) -> str:
        """Return the name of a value in another shape, of which 0 is the value's own extent there."""
        return self("Reshape", value, self.constant(shape), result=result)

    def input(self, index: int) -> str:
        """Return the name of an input, "" if it is absent."""
        return str(self.proto.input[index]) if index < len(self.proto.input) else ABSENT

    def type(self, index: int) -> TensorType:
        """Return the type of an input."""
        return self.scope.type_of(self.input(index))

    def output(self, index: int) -> str:
        """Return the name of an output, "" if it is absent."""
        return str(self.proto.output[index]) if index < len(self.proto.output) else ABSENT

    def fail(self, reason: str) -> ModelImportError:
        """Return an error that names the node."""
        return ModelImportError(f"node {node_name(self.proto)!r} ({self.proto.op_type}): {reason}")

    def known(self, index: int) -> Array:
        """Return the array of an input; raises UnknownParameterError where it is no constant."""
        array = self.scope.constant_of(self.input(index))
        if array is None:
            raise unknown_parameter(self, f"input {self.input(index)!r}", self.input(index))
        return array

    def check(self, holds: bool, index: int, allowed: str) -> None:
        """Raise ModelImportError, with what is allowed, unless an input is as it must be."""
        if not holds:
            raise self.fail(f"input {self.input(index)!r} is {self.type(index)}; it is {allowed}")

    def absent(self, index: int, what: str) -> None:
        """Raise ModelImportError if there is an input that is not supported."""
        if self.input(index):
            raise self.fail(f"input {self.input(index)!r}, {what}, is not supported")


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return tuple(_plain(each) for each in value) if isinstance(value, list) else value


class AnyRule(Protocol):
    """The definition of an operator."""

    def define(self, node: ForeignNode) -> Definition:
        """Return the nodes of a definition; raises ModelImportError where the node is not as the operator has it."""


def defined(node: ForeignNode, add: Callable[[ForeignNode], None], attrs: Mapping[str, Any]) -> Definition:
    """Return the nodes that a function adds for a node with these defaults of attributes."""
    node.attrs = {**attrs, **node.given}
    add(node)
    return Definition(tuple(node.nodes), _OPSET)


@dataclass(frozen=True)
class Rule:
    """The definition of an operator of which ONNX knows nothing."""

    add: Callable[[ForeignNode], None]
    """Adds the nodes."""
    needed: tuple[int, ...]
    """Inputs that must be there."""
    most: int | None
    """So many inputs there are; None: any number."""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    """Attributes and their defaults; a type: the node must give it."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that have no other value here."""
    ignored: tuple[str, ...] = ()
    """Attributes that change no result."""
    outputs: tuple[int, ...] = (0,)
    """Outputs that can be asked for."""

    def define(self, node: ForeignNode) -> Definition:
        self._check_attributes(node)
        self._check_operands(node)
        return defined(node, self.add, self.attrs)

    def _check_attributes(self, node: ForeignNode) -> None:
        known = [*self.attrs, *self.fixed, *self.ignored]
        for name, value in node.given.items():
            if name not in known:
                raise node.fail(f"attribute {name!r} is not known{did_you_mean(name, known)}")
            if name in self.attrs and type(value) is not (wanted := _type(self.attrs[name])):
                raise node.fail(f"attribute {name!r} is {value!r}; it is of type {wanted.__name__}")
            if name in self.fixed and value != self.fixed[name]:
                raise node.fail(
                    f"attribute {name!r} is {value!r}; only {self.fixed[name]!r} is supported\n"
                    "  export the model again without it"
                )
        needed = [name for name, default in self.attrs.items() if isinstance(default, type)]
        if missing := [name for name in needed if name not in node.given]:
            raise node.fail(f"attribute {missing[0]!r} is missing")

    def _check_operands(self, node: ForeignNode) -> None:
        if missing := [index for index in self.needed if not node.input(index)]:
            raise node.fail(f"input {missing[0]} is missing")
        if self.most is not None and len(node.proto.input) > self.most:
            raise node.fail(f"it has {len(node.proto.input)} inputs of at most {self.most}")
        asked = [n for n, name in enumerate(node.proto.output) if name and n not in self.outputs]
        if asked:
            raise node.fail(f"output {asked[0]} is not supported")
        if not any(node.proto.output):
            raise node.fail("it has no output")


def _type(default: Any) -> type:
    return default if isinstance(default, type) else type(default)


__all__ = ["GRAPH_DOMAIN", "AnyRule", "ForeignNode", "Rule", "defined"]
