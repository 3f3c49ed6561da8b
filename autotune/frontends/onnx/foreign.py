"""Nodes of operators outside of ONNX, as the nodes of ONNX that they are defined by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autotune.errors import ModelImportError
from autotune.frontends.onnx.functions import Definition
from autotune.frontends.onnx.nodes import unknown_parameter
from autotune.frontends.onnx.schema import Scope, node_name
from autotune.graph.ir import ABSENT, Array, TensorType
from autotune.suggest import did_you_mean

_OPSET = 23
"""Of the nodes of all definitions."""


@dataclass
class ForeignNode:
    """A node being defined: its operands, and the nodes of ONNX so far. ``attrs`` has every attribute of the rule."""

    proto: Any
    prefix: str
    scope: Scope
    define: Callable[[str, Array], None]
    attrs: dict[str, Any] = field(default_factory=dict)
    nodes: list[Any] = field(default_factory=list)
    constants: int = 0

    def __call__(self, op: str, *operands: str, result: str = ABSENT, **attrs: Any) -> str:
        """Add a node, and return its result, which is ``result`` or gets a name."""
        return self.several(op, operands, [result], **attrs)[0]

    def several(self, op: str, operands: tuple[str, ...], results: list[str], **attrs: Any) -> list[str]:
        """Add a node of several results, and return them."""
        from onnx import helper

        named = [each or f"{self.prefix}{len(self.nodes)}.{n}" for n, each in enumerate(results)]
        self.nodes.append(helper.make_node(op, operands, named, name=named[0], **attrs))
        return named

    def constant(self, value: Any, dtype: str = "int64") -> str:
        """Return the name of a new constant."""
        self.constants += 1
        name = f"{self.prefix}constant{self.constants}"
        self.define(name, np.asarray(value, dtype))
        return name

    def number(self, value: float) -> str:
        """Return the name of a number of the first operand's type."""
        return self.constant(value, self.type(0).dtype)

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


@dataclass(frozen=True)
class Rule:
    """The definition of an operator."""

    add: Callable[[ForeignNode], None]
    """Adds the nodes."""
    needed: tuple[int, ...]
    """Inputs that must be there."""
    most: int
    """So many inputs there are."""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    """Attributes and their defaults; None: the node must give it."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that have no other value here."""
    ignored: tuple[str, ...] = ()
    """Attributes that change no result."""
    outputs: tuple[int, ...] = (0,)
    """Outputs that can be asked for."""

    def define(self, node: ForeignNode) -> Definition:
        """Return the nodes of a definition; raises ModelImportError where the node is not as the operator has it."""
        from onnx import helper

        given = {a.name: helper.get_attribute_value(a) for a in node.proto.attribute}
        self._check(node, given)
        node.attrs = {**self.attrs, **given}
        self.add(node)
        return Definition(tuple(node.nodes), _OPSET)

    def _check(self, node: ForeignNode, given: Mapping[str, Any]) -> None:
        known = [*self.attrs, *self.fixed, *self.ignored]
        for name, value in given.items():
            if name not in known:
                raise node.fail(f"attribute {name!r} is not known{did_you_mean(name, known)}")
            wanted = float if isinstance(self.attrs.get(name), float) else int
            if name in self.attrs and type(value) is not wanted:
                raise node.fail(f"attribute {name!r} is {value!r}; it is of type {wanted.__name__}")
            plain = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            if name in self.fixed and plain != self.fixed[name]:
                raise node.fail(
                    f"attribute {name!r} is {plain!r}; only {self.fixed[name]!r} is supported\n"
                    "  export the model again without it"
                )
        if missing := [name for name, default in self.attrs.items() if default is None and name not in given]:
            raise node.fail(f"attribute {missing[0]!r} is missing")
        if missing_inputs := [index for index in self.needed if not node.input(index)]:
            raise node.fail(f"input {missing_inputs[0]} is missing")
        if len(node.proto.input) > self.most:
            raise node.fail(f"it has {len(node.proto.input)} inputs of at most {self.most}")
        asked = [n for n, name in enumerate(node.proto.output) if name and n not in self.outputs]
        if asked or not node.output(0):
            raise node.fail(
                f"output {asked[0]} is not supported" if asked else "its first output has no name"
            )


__all__ = ["ForeignNode", "Rule"]
