"""The meaning of the statements of a sequential kernel: run one after another, on NumPy arrays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autotune import library
from autotune.te.expr import Const, Expr
from autotune.te.sequential import SequentialOp
from autotune.te.sequential_accesses import checked_statements
from autotune.te.statements import Assign, Branch, External, Named, Repeat, RepeatWhile, Statement
from autotune.te.tensor import Operation, Tensor

Array = np.ndarray[Any, Any]
Values = dict[tuple[Operation, int], Array]
Evaluate = Callable[[Expr, "dict[Expr, Array]", Values], Array]


def run_statements(op: SequentialOp, values: Values, evaluate: Evaluate) -> list[Array]:
    """Return the results of ``op`` for the arrays of its inputs; ``evaluate`` works out expressions."""
    results = [np.zeros(t.shape, t.dtype) for t in op.results]
    memory = dict(values)
    memory |= {(t.op, 0): array for t, array in zip(op.results, results, strict=True)}
    run = _Interpretation(memory, evaluate)
    for point in itertools.product(*(range(axis.extent) for axis in op.axis)):
        memory |= {(t.op, 0): np.zeros(t.shape, t.dtype) for t in op.scratch}
        run.env = {axis: np.asarray(at) for axis, at in zip(op.axis, point, strict=True)}
        run.block(checked_statements(op))
    return results


class _Interpretation:
    def __init__(self, memory: Values, evaluate: Evaluate) -> None:
        self.memory = memory
        self.evaluate = evaluate
        self.env: dict[Expr, Array] = {}

    def value(self, expr: Expr) -> Array:
        return np.asarray(self.evaluate(expr, self.env, self.memory))

    def _given(self, argument: Tensor | Const) -> Any:
        if isinstance(argument, Const):
            return np.dtype(argument.dtype).type(argument.value)
        return self.memory[argument.op, argument.value_index]

    def block(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, node: Statement) -> None:
        if isinstance(node, Assign):
            place = tuple(int(self.value(i)) for i in node.indices)
            self.memory[node.tensor.op, 0][place] = self.value(node.value)
        elif isinstance(node, Named):
            self.env[node.var] = self.value(node.value).copy()
        elif isinstance(node, Repeat):
            for number in range(node.extent):
                self.env[node.var] = np.asarray(number)
                self.block(node.body)
        elif isinstance(node, RepeatWhile):
            while bool(self.value(node.cond)):
                self.block(node.body)
        elif isinstance(node, Branch):
            self.block(node.then if bool(self.value(node.cond)) else node.otherwise)
        elif isinstance(node, External):
            library.call(node.symbol, [self._given(a) for a in node.arguments])
        else:
            raise TypeError(f"unknown statement {type(node).__name__}")


__all__ = ["run_statements"]
