"""Operators by library kernels of users' own, which are registered for them (:mod:`autotune.library`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from autotune import library
from autotune.errors import GraphError
from autotune.graph import ops
from autotune.graph.ir import ABSENT, Graph, Node
from autotune.graph.ops.library_kernel import numbers_of, operator_of
from autotune.passes.base import Algorithm
from autotune.passes.rewriter import Rewriter, rewrite


@dataclass(frozen=True)
class CallLibraryKernel(Algorithm):
    """Convert nodes of the operator that a kernel was registered for to calls of it, where it can compute them."""

    kernel: library.LibraryKernel
    name: ClassVar[str] = "library_kernel"
    speculative = True  # nothing is known of the function's speed before it is measured
    promising = math.inf

    @property
    def label(self) -> str:
        return f"kernel {self.kernel.name}"

    @property
    def error(self) -> float:
        return self.kernel.error

    def apply(self, graph: Graph) -> Graph:
        return rewrite(graph, self._convert)

    def _convert(self, rewriter: Rewriter, node: Node) -> bool:
        if node.op != self.kernel.operation or ABSENT in (*node.inputs, *node.outputs):
            return False
        inputs = tuple(map(rewriter.current, node.inputs))
        types = [rewriter.type_of(value) for value in inputs]
        attrs = ops.get(node.op).canonical(types, node.attrs)
        if numbers_of(self.kernel, types, attrs) is None:
            return False
        rewriter.add(Node(operator_of(self.kernel), inputs, node.outputs, attrs))
        return True


def library_kernels() -> tuple[CallLibraryKernel, ...]:
    """Return a rule for each kernel of an operator. Raises GraphError for a kernel of an unknown one."""
    kernels = library.operator_kernels()
    for kernel in kernels:
        try:
            ops.get(kernel.operation)
        except GraphError as error:
            raise GraphError(f"library kernel {kernel.name}: {error}") from error
    return tuple(map(CallLibraryKernel, kernels))


__all__ = ["CallLibraryKernel", "library_kernels"]
