"""Statements of sequential kernels as statements of the loop IR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.errors import InternalError, LoweringError
from autotune.lower import ir
from autotune.lower.ir import Allocate, Buffer, For, If, Let, Stmt, Store, While, sequence
from autotune.lower.linear import Lin, constant_form
from autotune.lower.translate import StageBuffers, Translator
from autotune.strides import dense_strides
from autotune.te.expr import Const, Expr, const
from autotune.te.sequential import SequentialOp
from autotune.te.sequential_accesses import checked_statements
from autotune.te.statements import Assign, Branch, External, Named, Repeat, RepeatWhile, Statement
from autotune.te.tensor import Tensor


def sequential_statement(
    op: SequentialOp, values: Mapping[Expr, Lin], out: StageBuffers, translator: Translator
) -> Stmt:
    """Return the statements of one point of ``op``, whose results are at ``out``; scratch memory is
    allocated around them."""
    places = dict(zip(op.results, (StageBuffers((b,), out.starts) for b in out.buffers), strict=True))
    scratch = [Buffer(t.name, t.shape, t.dtype, "local") for t in op.scratch]
    for tensor, buffer in zip(op.scratch, scratch, strict=True):
        places[tensor] = StageBuffers((buffer,), tuple(constant_form(0) for _ in buffer.shape))

    def place_of(tensor: Tensor) -> StageBuffers:
        return places.get(tensor) or translator.place_of(tensor)

    made = _Statements(Translator(translator.simplifier, place_of), values).block(checked_statements(op))
    for buffer in reversed(scratch):
        made = Allocate(buffer, made)
    return made


class _Statements:
    def __init__(self, translator: Translator, values: Mapping[Expr, Lin]) -> None:
        self.translator = translator
        self.values = values

    def value(self, expr: Expr) -> Expr:
        """Return an expression with nodes of its own: memory may have changed since another statement read it."""
        return self.translator.value(expr, self.values)

    def block(self, statements: Sequence[Statement]) -> Stmt:
        made: list[Stmt] = []
        for number, node in enumerate(statements):
            if isinstance(node, Named):
                value = self.value(node.value)
                made.append(Let(node.var, value, self.block(statements[number + 1 :])))
                break
            made.append(self.statement(node))
        return sequence(made)

    def statement(self, node: Statement) -> Stmt:
        if isinstance(node, Assign):
            place = self.translator.place_of(node.tensor)
            memo: dict[int, Expr] = {}
            index = [self.translator.index(i, self.values, memo) for i in node.indices]
            value = self.translator.value(node.value, self.values, memo)
            return Store(place.buffers[node.tensor.value_index], place.indices(index), value)
        if isinstance(node, Repeat):
            self.translator.simplifier.declare(node.var, 0, node.extent - 1)
            return For(node.var, node.extent, node.kind, self.block(node.body))
        if isinstance(node, RepeatWhile):
            return While(self.value(node.cond), self.block(node.body))
        if isinstance(node, Branch):
            otherwise = self.block(node.otherwise) if node.otherwise else None
            return If(self.value(node.cond), self.block(node.then), otherwise)
        if isinstance(node, External):
            return self._external(node)
        raise InternalError(f"no loop statement for {type(node).__name__}")

    def _external(self, node: External) -> ir.External:
        first = {t: self._first(t) for t in (*node.results, *node.inputs)}
        arguments = tuple(a if isinstance(a, Const) else first[a] for a in node.arguments)
        results, inputs = (tuple(first[t] for t in tensors) for tensors in (node.results, node.inputs))
        return ir.External(node.symbol, arguments, results, inputs)

    def _first(self, tensor: Tensor) -> ir.Load:
        """Return the first element of a tensor, which must lie dense in memory."""
        buffer = self.translator.place_of(tensor).buffers[tensor.value_index]
        if buffer.strides != dense_strides(buffer.shape):
            raise LoweringError(
                f"{tensor.name} is an argument of te.extern, which takes dense tensors; its strides are "
                f"{buffer.strides}: leave out storage_align"
            )
        return ir.Load(buffer, tuple(const(0) for _ in buffer.shape))


__all__ = ["sequential_statement"]
