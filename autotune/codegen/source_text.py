"""Source text of a language: lines as they are written, and expressions, each worked out once in a statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeVar

from autotune.errors import BuildError
from autotune.lower.ir import nodes, operands
from autotune.te.expr import Expr, Var

V = TypeVar("V")
"""A value: its text, and what the language needs to know of it."""


class SourceWriter(Generic[V]):
    """The body of one function."""

    indent: ClassVar[str]

    def __init__(self, functions: set[str]) -> None:
        self.lines: list[str] = []
        self.functions = functions
        """Names of the helper functions that the program calls; this body adds its own."""
        self._indent = 1
        self._known: list[dict[int, V]] = [{}]

    def line(self, text: str) -> None:
        """Write a line."""
        self.lines.append(self.indent * self._indent + text)

    def function(self, name: str) -> str:
        """Return the name of a helper function, which the program then has."""
        self.functions.add(name)
        return name

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Forget values that are named from here on at the end."""
        self._known.append({})
        yield
        self._known.pop()

    @contextmanager
    def statement(self) -> Iterator[None]:
        """Open a statement: what was worked out for others may have changed since."""
        before, self._known = self._known, [{}]
        yield
        self._known = before

    def known(self, key: int) -> V | None:
        """Return a value that was worked out for this statement."""
        for values in reversed(self._known):
            if key in values:
                return values[key]
        return None

    def remember(self, key: int, value: V) -> None:
        """Keep a value until the end of the innermost scope."""
        self._known[-1][key] = value

    def named(self, value: V) -> V:
        """Return the value under a name of its own."""
        raise NotImplementedError


class SourceExpressions(Generic[V]):
    """Writes expressions; a value that is used twice in a statement, and one that is large, gets a name before it."""

    emitters: ClassVar[Mapping[type[Expr], Callable[[Any, Any], Any]]]
    """The writer of each kind of node."""

    def __init__(self, code: SourceWriter[V]) -> None:
        self.code = code
        self.env: dict[Var, V] = {}
        self._uses: dict[int, int] = {}

    def begin(self, *roots: Expr) -> None:
        """Begin a statement with these expressions, inside of ``code.statement()``."""
        self._uses = {}
        for node in nodes(*roots):
            for part in operands(node):
                self._uses[id(part)] = self._uses.get(id(part), 0) + 1

    def value(self, node: Expr) -> V:
        """Return the value of an expression."""
        known = self.code.known(id(node))
        if known is not None:
            return known
        emit = self.emitters.get(type(node))
        if emit is None:
            raise BuildError(f"no code for {type(node).__name__}")
        value: V = emit(self, node)
        if not self._is_plain(node, value):
            if self._uses.get(id(node), 0) > 1 or self._is_large(value):
                value = self.code.named(value)
            self.code.remember(id(node), value)
        return value

    def _is_plain(self, node: Expr, value: V) -> bool:
        """Return whether a value is as short as a name."""
        raise NotImplementedError

    def _is_large(self, value: V) -> bool:
        raise NotImplementedError

    def _variable(self, node: Var) -> V:
        return self.env[node]


__all__ = ["SourceExpressions", "SourceWriter"]
