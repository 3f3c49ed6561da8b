"""Adding the nodes that a node of ONNX becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from autotune.frontends.onnx.nodes import OnnxNode
from autotune.graph.ir import ABSENT, Array, Attr, TensorType


class _Append(Protocol):
    def __call__(self, op: str, inputs: list[str], outputs: list[str], attrs: Mapping[str, Attr]) -> None: ...


@dataclass(frozen=True)
class Emitter:
    """Adds the nodes that a node becomes."""

    node: OnnxNode
    append: _Append
    define: Callable[[str, Array], None]
    fresh: Callable[[str], str]
    part: Callable[[str, int, str, str], None]
    """Defines the part of a value that another one counts along an axis: value, axis, count, and the part."""

    def __call__(
        self,
        op: str,
        inputs: Sequence[str],
        attrs: Mapping[str, Attr] | None = None,
        suffix: str = "",
        output: str = "",
    ) -> str:
        """Add a node; returns its output, which is ``output`` or named by the suffix."""
        output = output or self.fresh(f"{self.node.outputs[0]}.{suffix or op.lower()}")
        self.append(op, list(inputs), [output], attrs or {})
        return output

    def constant(self, value: Array | float | int, dtype: str) -> str:
        """Define a constant under a fresh name, and return that name."""
        name = self.fresh(f"{self.node.outputs[0]}.constant")
        self.define(name, np.asarray(value).astype(dtype))
        return name

    def type_of(self, value: str) -> TensorType:
        """Return the type of a value."""
        return self.node.scope.type_of(value)

    def wants(self, index: int) -> bool:
        """Return whether the node has an output."""
        return index < len(self.node.outputs) and self.node.outputs[index] != ABSENT


Composer: TypeAlias = Callable[[OnnxNode, Emitter], None]
"""Adds the nodes for a node."""

__all__ = ["Composer", "Emitter"]
