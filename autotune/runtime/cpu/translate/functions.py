"""Functions to translate, operations written in LLVM IR, and the error of what has no translation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NoReturn, ParamSpec, TypeVar, cast

from autotune.errors import BuildError, InternalError

if TYPE_CHECKING:
    import ast

Kind = Literal["i64", "i1", "void"]
"""LLVM's type of a value; of a result also ``void``."""

_KINDS: Final[Mapping[str, Kind]] = {"int": "i64", "bool": "i1", "None": "void"}
WORDS: Final[Mapping[Kind, str]] = {"i64": "an integer", "i1": "a truth value", "void": "nothing"}
"""The same for a person."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


class FunctionSource:
    """The file and the names of one function, for those who read its syntax tree."""

    def __init__(self, function: FunctionType) -> None:
        self.file = function.__code__.co_filename
        self.line = function.__code__.co_firstlineno
        self.names: Mapping[str, Any] = function.__globals__
        self.variables = frozenset(function.__code__.co_varnames)

    def refuse(self, node: ast.AST | None, reason: str) -> NoReturn:
        """Raise BuildError for a construct outside the subset; None stands for the signature."""
        import ast  # what runs and was compiled before needs no syntax trees

        line = self.line if node is None else getattr(node, "lineno", self.line)
        text = "" if node is None else f": {ast.unparse(node).splitlines()[0]}"
        raise BuildError(f"{self.file}:{line}: {reason}{text}")


@dataclass(frozen=True, eq=False)
class Callee(Generic[_P, _R]):
    """A function that translated code can call, with a signature."""

    function: Callable[_P, _R]

    @cached_property
    def source(self) -> FunctionSource:
        """Return its parsed source, read once."""
        return FunctionSource(cast("FunctionType", self.function))

    @property
    def symbol(self) -> str:
        """Its name in machine code."""
        return f"{self.function.__module__}.{self.function.__name__}"

    @cached_property
    def parameters(self) -> dict[str, Kind]:
        """Names and types, in order."""
        code = cast("FunctionType", self.function).__code__
        return {name: self._kind(name) for name in code.co_varnames[: code.co_argcount]}

    @cached_property
    def result(self) -> Kind:
        """Type of what it returns."""
        return self._kind("return")

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        raise InternalError(f"{self.symbol} can only be called by translated functions")

    def _kind(self, name: str) -> Kind:
        annotation = self.function.__annotations__.get(name, "nothing")
        kind = _KINDS.get(annotation.__name__ if isinstance(annotation, type) else str(annotation))
        if kind is None or (kind == "void" and name != "return"):
            self.source.refuse(None, f"{self.symbol}: {name} must be annotated int or bool, or return None")
        return kind


class Native(Callee[_P, _R]):
    """A function of the subset, which Python runs as well."""

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return self.function(*args, **kwargs)


@dataclass(frozen=True, eq=False)
class NativeOperation(Callee[_P, _R]):
    """A function whose body is LLVM IR over its parameters, such as ``%address``."""

    body: str
    externals: tuple[str, ...]
    """Declarations of the functions that the body calls."""


@dataclass(frozen=True, eq=False)
class ExternalFunction(Callee[_P, _R]):
    """A function that the process has, such as one of the C library, on words of 64 bits."""

    name: str

    @property
    def symbol(self) -> str:
        """The function's own name."""
        return self.name


def native(function: Callable[_P, _R]) -> Native[_P, _R]:
    """Return marks a function of the subset."""
    return Native(function)


def operation(body: str, *externals: str) -> Callable[[Callable[_P, _R]], NativeOperation[_P, _R]]:
    """Return marks a function whose body is LLVM IR; ``externals`` declares what that calls."""
    return lambda function: NativeOperation(function, body, externals)


def external(name: str) -> Callable[[Callable[_P, _R]], ExternalFunction[_P, _R]]:
    """Return marks the signature of a function that the process has under this name."""
    return lambda function: ExternalFunction(function, name)


__all__ = [
    "WORDS",
    "Callee",
    "ExternalFunction",
    "FunctionSource",
    "Kind",
    "Native",
    "NativeOperation",
    "external",
    "native",
    "operation",
]
