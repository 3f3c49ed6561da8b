"""Expressions of Python as instructions."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

from autotune.runtime.cpu.translate.code import FunctionCode, NativeValue, Variable
from autotune.runtime.cpu.translate.functions import WORDS, Callee, FunctionSource, Kind

_ARITHMETIC: Final = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.BitAnd: "and",
    ast.BitOr: "or",
}
_COMPARISONS: Final = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "slt",
    ast.LtE: "sle",
    ast.Gt: "sgt",
    ast.GtE: "sge",
}
_EXTREMES: Final = {"min": "smin", "max": "smax"}


class PythonExpressions:
    """Writes the instructions of expressions into the code of one function.

    ``variables`` are its local names that have a value where the code stands; ``called`` gathers the
    functions it needs.
    """

    def __init__(self, code: FunctionCode, source: FunctionSource) -> None:
        self._code = code
        self._source = source
        self.variables: dict[str, Variable] = {}
        self.called: list[Callee[..., Any]] = []
        self._writers: dict[type[ast.expr], Callable[..., NativeValue]] = {
            ast.Constant: self._constant,
            ast.Name: self._name,
            ast.BinOp: self._arithmetic,
            ast.UnaryOp: self._unary,
            ast.Compare: self._comparison,
            ast.BoolOp: self._connection,
            ast.IfExp: self._choice,
            ast.Call: self._call,
        }

    def value(self, node: ast.expr) -> NativeValue:
        """Return an integer or a truth value; nothing for a call of what returns None."""
        writer = self._writers.get(type(node))
        if writer is None:
            self._source.refuse(node, f"{type(node).__name__} has no translation")
        return writer(node)

    def integer(self, node: ast.expr) -> NativeValue:
        """Return the value as a word of 64 bits; an error where it has another type."""
        return self._of(node, "i64")

    def truth(self, node: ast.expr) -> NativeValue:
        """Return the truth of a value, as ``if`` and ``while`` ask for it."""
        if isinstance(node, ast.BoolOp):
            return self._connected(node, self.truth)
        value = self.value(node)
        if value.kind == "i64":
            return self._code.value(f"icmp ne i64 {value.text}, 0", "i1")
        return self._expect(node, value, "i1")

    def arithmetic(
        self, node: ast.AST, operator: ast.operator, a: NativeValue, b: NativeValue
    ) -> NativeValue:
        """Return two integers, added and so on; ``node`` is where that stands."""
        if isinstance(operator, ast.FloorDiv | ast.Mod):
            return self._division(isinstance(operator, ast.Mod), a, b)
        name = _ARITHMETIC.get(type(operator))
        if name is None:
            self._source.refuse(node, f"{type(operator).__name__} has no translation")
        return self._code.value(f"{name} i64 {a.text}, {b.text}", "i64")

    def _of(self, node: ast.expr, kind: Kind) -> NativeValue:
        return self._expect(node, self.value(node), kind)

    def _expect(self, node: ast.expr, value: NativeValue, kind: Kind) -> NativeValue:
        if value.kind != kind:
            self._source.refuse(node, f"expected {WORDS[kind]}, got {WORDS[value.kind]}")
        return value

    def _constant(self, node: ast.Constant) -> NativeValue:
        return self._literal(node, node.value)

    def _literal(self, node: ast.expr, value: object) -> NativeValue:
        if isinstance(value, bool):
            return NativeValue("true" if value else "false", "i1")
        if not isinstance(value, int) or not -(2**63) <= value < 2**63:
            self._source.refuse(node, "expected an integer of 64 bits or a truth value")
        return NativeValue(str(value), "i64")

    def _name(self, node: ast.Name) -> NativeValue:
        variable = self.variables.get(node.id)
        if variable is not None:
            return self._code.read(variable)
        if node.id in self._source.variables:
            self._source.refuse(node, "a variable without a value on some path to here")
        if node.id not in self._source.names:
            self._source.refuse(node, "neither a variable nor a name of the module")
        return self._literal(node, self._source.names[node.id])

    def _arithmetic(self, node: ast.BinOp) -> NativeValue:
        return self.arithmetic(node, node.op, self.integer(node.left), self.integer(node.right))

    def _division(self, remainder: bool, a: NativeValue, b: NativeValue) -> NativeValue:
        """Return the rounded towards minus infinity, as Python does; the instructions round towards zero."""
        code = self._code
        rest = code.value(f"srem i64 {a.text}, {b.text}", "i64")
        inexact = code.value(f"icmp ne i64 {rest.text}, 0", "i1")
        signs = code.value(f"xor i64 {rest.text}, {b.text}", "i64")
        differ = code.value(f"icmp slt i64 {signs.text}, 0", "i1")
        below = code.value(f"and i1 {inexact.text}, {differ.text}", "i1")
        if remainder:
            shift = code.value(f"select i1 {below.text}, i64 {b.text}, i64 0", "i64")
            return code.value(f"add i64 {rest.text}, {shift.text}", "i64")
        quotient = code.value(f"sdiv i64 {a.text}, {b.text}", "i64")
        down = code.value(f"sext i1 {below.text} to i64", "i64")
        return code.value(f"add i64 {quotient.text}, {down.text}", "i64")

    def _unary(self, node: ast.UnaryOp) -> NativeValue:
        if isinstance(node.op, ast.Not):
            return self._code.value(f"xor i1 {self.truth(node.operand).text}, true", "i1")
        if not isinstance(node.op, ast.USub):
            self._source.refuse(node, f"{type(node.op).__name__} has no translation")
        return self._code.value(f"sub i64 0, {self.integer(node.operand).text}", "i64")

    def _comparison(self, node: ast.Compare) -> NativeValue:
        name = _COMPARISONS.get(type(node.ops[0]))
        if name is None or len(node.ops) > 1:
            self._source.refuse(node, "of comparisons only one of two integers has a translation")
        a, b = self.integer(node.left), self.integer(node.comparators[0])
        return self._code.value(f"icmp {name} i64 {a.text}, {b.text}", "i1")

    def _connection(self, node: ast.BoolOp) -> NativeValue:
        """Translate ``and`` and ``or``, which give one of their operands: of integers that would be an integer."""
        return self._connected(node, lambda operand: self._of(operand, "i1"))

    def _connected(self, node: ast.BoolOp, truth_of: Callable[[ast.expr], NativeValue]) -> NativeValue:
        """Translate the next operand, which is only looked at when those before have not decided."""
        code = self._code
        result, end = code.variable("i1"), code.label()
        for operand in node.values:
            code.assign(result, truth := truth_of(operand))
            if operand is not node.values[-1]:
                more = code.label()
                code.branch(truth, *((more, end) if isinstance(node.op, ast.And) else (end, more)))
                code.begin(more)
        code.begin(end)
        return code.read(result)

    def _choice(self, node: ast.IfExp) -> NativeValue:
        code = self._code
        then, otherwise, end = code.label(), code.label(), code.label()
        code.branch(self.truth(node.test), then, otherwise)
        code.begin(then)
        value = self.value(node.body)
        result = code.variable(value.kind)
        code.assign(result, value)
        code.jump(end)
        code.begin(otherwise)
        code.assign(result, self._of(node.orelse, value.kind))
        code.begin(end)
        return code.read(result)

    def _call(self, node: ast.Call) -> NativeValue:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in _EXTREMES and len(node.args) == 2 and not node.keywords:
            a, b = map(self.integer, node.args)
            call = f"call i64 @llvm.{_EXTREMES[name]}.i64(i64 {a.text}, i64 {b.text})"
            return self._code.value(call, "i64")
        function = self._source.names.get(name)
        if not isinstance(function, Callee):
            self._source.refuse(
                node, "only native functions, operations, and min and max of two can be called"
            )
        kinds = list(function.parameters.values())
        if node.keywords or len(node.args) != len(kinds):
            self._source.refuse(node, f"{function.symbol} takes {len(kinds)} arguments by position")
        self.called.append(function)
        values = [self._of(argument, kind) for argument, kind in zip(node.args, kinds, strict=True)]
        arguments = ", ".join(f"{value.kind} {value.text}" for value in values)
        call = f"call {function.result} @{function.symbol}({arguments})"
        if function.result != "void":
            return self._code.value(call, function.result)
        self._code.write(call)
        return NativeValue("", "void")


__all__ = ["PythonExpressions"]
