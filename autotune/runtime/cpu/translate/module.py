"""A module of LLVM IR: some functions and all that they call."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable
from typing import Any

from autotune.runtime.cpu.translate.code import FunctionCode
from autotune.runtime.cpu.translate.expressions import PythonExpressions
from autotune.runtime.cpu.translate.functions import (
    Callee,
    ExternalFunction,
    FunctionSource,
    Native,
    NativeOperation,
)
from autotune.runtime.cpu.translate.statements import PythonStatements


def llvm_ir(functions: Iterable[Native[..., Any]]) -> str:
    """Return LLVM IR of the functions, under their symbols, with all that they call inlined.

    Raises BuildError for a function that is outside the subset.
    """
    return _Module().text(list(functions))


class _Module:
    def __init__(self) -> None:
        self._trees: dict[str, dict[int, ast.FunctionDef]] = {}
        self._declarations: dict[str, None] = {}

    def text(self, functions: list[Native[..., Any]]) -> str:
        """Return all definitions, callers before what they call."""
        definitions = []
        waiting: list[Callee[..., Any]] = [*functions]
        done: set[Callee[..., Any]] = set()
        for function in waiting:  # grows
            if function in done:
                continue
            done.add(function)
            if isinstance(function, ExternalFunction):
                self._declare(f"declare {function.result} @{function.symbol}({_parameters(function)})")
            else:
                body = self._body(function, waiting)
                definitions.append(_definition(function, body, internal=function not in functions))
        return "\n".join([*self._declarations, *definitions])

    def _declare(self, *lines: str) -> None:
        self._declarations.update(dict.fromkeys(lines))

    def _body(self, function: Callee[..., Any], waiting: list[Callee[..., Any]]) -> str:
        if isinstance(function, NativeOperation):
            self._declare(*function.externals)
            return function.body.strip("\n")
        code, source = FunctionCode(), function.source
        expressions = PythonExpressions(code, source)
        statements = PythonStatements(code, source, expressions, function.result)
        statements.function(self._tree(source), function.parameters)
        waiting.extend(expressions.called)
        return code.text()

    def _tree(self, source: FunctionSource) -> ast.FunctionDef:
        """Return the syntax tree of a function, with the line numbers of its file."""
        if source.file not in self._trees:
            self._trees[source.file] = _definitions(source)
        tree = self._trees[source.file].get(source.line)
        if tree is None:
            source.refuse(None, "no source text to translate")
        return tree


def _definitions(source: FunctionSource) -> dict[int, ast.FunctionDef]:
    """Return the functions of a file's top level by their first line, that of a decorator."""
    linecache.lazycache(source.file, dict(source.names))
    tree = ast.parse("".join(linecache.getlines(source.file)))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {node.decorator_list[0].lineno: node for node in functions if node.decorator_list}


def _definition(function: Callee[..., Any], body: str, *, internal: bool) -> str:
    """Return one function; those that are not asked for by name are inlined."""
    linkage, inlined = ("internal ", " alwaysinline") if internal else ("", "")
    head = f"define {linkage}{function.result} @{function.symbol}({_parameters(function)}){inlined}"
    return f"{head} {{\n{body}\n}}\n"


def _parameters(function: Callee[..., Any]) -> str:
    return ", ".join(f"{kind} %{name}" for name, kind in function.parameters.items())


__all__ = ["llvm_ir"]
