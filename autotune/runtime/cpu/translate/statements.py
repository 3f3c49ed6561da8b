"""Statements of Python as blocks of instructions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.runtime.cpu.translate.code import FunctionCode, NativeValue, Variable
from autotune.runtime.cpu.translate.expressions import PythonExpressions
from autotune.runtime.cpu.translate.functions import WORDS, FunctionSource, Kind


@dataclass
class _Loop:
    """The destinations of ``continue`` and ``break``, and whether a ``break`` was written."""

    again: str
    done: str
    left: bool = False


class PythonStatements:
    """Writes statements into the code of one function that returns ``result``.

    A local name has one type, and is read where it has a value on every path.
    """

    def __init__(
        self, code: FunctionCode, source: FunctionSource, expressions: PythonExpressions, result: Kind
    ) -> None:
        self._code = code
        self._source = source
        self._expressions = expressions
        self._result = result
        self._variables: dict[str, Variable] = {}
        self._loops: list[_Loop] = []
        self._writers: dict[type[ast.stmt], Callable[[Any], None]] = {
            ast.Expr: self._expression,
            ast.Assign: self._assignment,
            ast.AnnAssign: self._annotated,
            ast.AugAssign: self._augmented,
            ast.If: self._if,
            ast.While: self._while,
            ast.For: self._for,
            ast.Break: self._break,
            ast.Continue: self._continue,
            ast.Pass: lambda node: None,
            ast.Return: self._return,
        }

    def function(self, definition: ast.FunctionDef, parameters: dict[str, Kind]) -> None:
        """Translate a whole body; parameters are variables like others."""
        for name, kind in parameters.items():
            self._assign(definition, name, NativeValue(f"%{name}", kind))
        self._block(definition.body)
        if self._code.ended:
            return
        if self._result != "void":
            self._source.refuse(definition.body[-1], "a path ends without a result")
        self._code.end("ret void")

    def _block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if self._code.ended:
                return  # never reached
            writer = self._writers.get(type(statement))
            if writer is None:
                self._source.refuse(statement, f"{type(statement).__name__} has no translation")
            writer(statement)

    def _expression(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self._expressions.value(node.value)

    def _assignment(self, node: ast.Assign) -> None:
        if len(node.targets) > 1:
            self._source.refuse(node, "only one assignment at a time has a translation")
        (target,) = node.targets
        if not isinstance(target, ast.Tuple):
            self._assign(node, self._target(target), self._expressions.value(node.value))
            return
        if not isinstance(node.value, ast.Tuple) or len(node.value.elts) != len(target.elts):
            self._source.refuse(node, "expected as many values as names")
        values = [self._expressions.value(value) for value in node.value.elts]
        for name, value in zip(map(self._target, target.elts), values, strict=True):
            self._assign(node, name, value)

    def _annotated(self, node: ast.AnnAssign) -> None:
        if node.value is None:
            self._source.refuse(node, "expected a value")
        self._assign(node, self._target(node.target), self._expressions.value(node.value))

    def _augmented(self, node: ast.AugAssign) -> None:
        name = self._target(node.target)
        before = self._expressions.integer(ast.copy_location(ast.Name(name, ast.Load()), node))
        by = self._expressions.integer(node.value)
        self._assign(node, name, self._expressions.arithmetic(node, node.op, before, by))

    def _target(self, node: ast.expr) -> str:
        if not isinstance(node, ast.Name):
            self._source.refuse(node, "only names can be assigned to")
        return node.id

    def _assign(self, node: ast.AST, name: str, value: NativeValue) -> None:
        if value.kind == "void":
            self._source.refuse(node, "a call that returns nothing has no value")
        variable = self._variables.get(name)
        if variable is None:
            variable = self._variables[name] = self._code.variable(value.kind)
        if variable.kind != value.kind:
            self._source.refuse(node, f"{name!r} is an integer in one place and a truth value in another")
        self._code.assign(variable, value)
        self._expressions.variables[name] = variable

    def _if(self, node: ast.If) -> None:
        code = self._code
        then, otherwise, end = code.label(), code.label(), code.label()
        code.branch(self._expressions.truth(node.test), then, otherwise)
        before = dict(self._expressions.variables)
        ends = []
        for label, body in ((then, node.body), (otherwise, node.orelse)):
            self._expressions.variables = dict(before)
            code.begin(label)
            self._block(body)
            if not code.ended:
                code.jump(end)
                ends.append(self._expressions.variables)
        if ends:
            code.begin(end)
            self._expressions.variables = {
                name: variable for name, variable in ends[0].items() if all(name in other for other in ends)
            }

    def _while(self, node: ast.While) -> None:
        code, loop = self._code, self._loop(node)
        body = code.label()
        code.begin(loop.again)
        endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        if endless:
            code.jump(body)
        else:
            code.branch(self._expressions.truth(node.test), body, loop.done)
        code.begin(body)
        before = dict(self._expressions.variables)
        self._repeated(node.body, loop)
        self._expressions.variables = before
        if not code.ended:
            code.jump(loop.again)
        if loop.left or not endless:
            code.begin(loop.done)

    def _for(self, node: ast.For) -> None:
        code = self._code
        name, loop = self._target(node.target), self._loop(node)
        first, stop = self._range(node.iter)
        head, body = code.label(), code.label()
        counter = code.variable("i64")
        code.assign(counter, first)
        code.begin(head)
        index = code.read(counter)
        code.branch(code.value(f"icmp slt i64 {index.text}, {stop.text}", "i1"), body, loop.done)
        code.begin(body)
        before = dict(self._expressions.variables)
        self._assign(node, name, index)
        self._repeated(node.body, loop)
        self._expressions.variables = before  # those of the loop have no value if it has no turn
        code.begin(loop.again)
        code.assign(counter, code.value(f"add i64 {index.text}, 1", "i64"))
        code.jump(head)
        code.begin(loop.done)

    def _range(self, node: ast.expr) -> tuple[NativeValue, NativeValue]:
        """Return the first and end of a ``range``."""
        if (
            not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Name)
            or node.func.id != "range"
            or node.keywords
            or not 1 <= len(node.args) <= 2
        ):
            self._source.refuse(node, "only range(stop) and range(start, stop) can be looped over")
        *first, stop = map(self._expressions.integer, node.args)
        return (first[0] if first else NativeValue("0", "i64")), stop

    def _loop(self, node: ast.While | ast.For) -> _Loop:
        if node.orelse:
            self._source.refuse(node, "else of a loop has no translation")
        return _Loop(self._code.label(), self._code.label())

    def _repeated(self, statements: Sequence[ast.stmt], loop: _Loop) -> None:
        self._loops.append(loop)
        self._block(statements)
        self._loops.pop()

    def _break(self, node: ast.Break) -> None:
        self._loops[-1].left = True
        self._code.jump(self._loops[-1].done)

    def _continue(self, node: ast.Continue) -> None:
        self._code.jump(self._loops[-1].again)

    def _return(self, node: ast.Return) -> None:
        value = NativeValue("", "void") if node.value is None else self._expressions.value(node.value)
        if value.kind != self._result:
            self._source.refuse(
                node, f"the function returns {WORDS[self._result]}, this is {WORDS[value.kind]}"
            )
        self._code.end(f"ret {value.kind} {value.text}".rstrip())


__all__ = ["PythonStatements"]
