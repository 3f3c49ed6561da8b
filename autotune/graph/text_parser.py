"""Reads graphs' text form."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.errors import GraphError
from autotune.graph.ir import Affinity, Attr, Node, TensorType
from autotune.graph.text_tokens import Token, size_of, tokens

KEYWORDS = {
    "graph",
    "region",
    "function",
    "constants",
    "input",
    "const",
    "output",
    "as",
    "on",
    "strides",
    "counted",
}
"""Words that are no names, unless in quotes."""


class FunctionName(str):
    """The value of an attribute that is the name of a function in the same file."""

    __slots__ = ()


@dataclass(frozen=True)
class Parsed:
    """A parsed text; `sources` are (role, name) with role "input" or "const", in order.

    `values` are those of constants: the words of their elements, or the key of data beside the text. `shapes` are those
    of sources as they are written, and `counted` as in :class:`autotune.graph.ir.Graph`, with the values' names.
    """

    name: str
    sources: tuple[tuple[str, str], ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    types: Mapping[str, TensorType]
    affinity: Affinity
    values: Mapping[str, tuple[str, ...] | str]
    shapes: Mapping[str, tuple[int | str, ...]]
    counted: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True)
class ParsedFile:
    """The parsed text of a model: the file of its constants, its graph, and functions by name."""

    constants: str
    graph: Parsed
    functions: Mapping[str, Parsed]


class Parser:
    """Reads a text once. `sizes` are values of names in shapes; without them shapes are numbers.

    With `inferred` nodes may come without types.
    """

    def __init__(self, text: str, sizes: Mapping[str, int] | None = None, *, inferred: bool = False) -> None:
        self._tokens = tokens(text)
        self._at = 0
        self._sizes = sizes
        self._inferred = inferred
        self._begin()

    def _begin(self) -> None:
        self._types = dict[str, TensorType]()
        self._values = dict[str, tuple[str, ...] | str]()
        self._shapes = dict[str, tuple[int | str, ...]]()
        self._counted: list[tuple[str, int, str]] = []

    def file(self) -> ParsedFile:
        """Return the text of a model: a file of constants if it names one, a graph, functions. Raises GraphError."""
        constants = self._name() if self._accept("constants") else ""
        graph, functions = self._graph("graph"), dict[str, Parsed]()
        while self._peek.kind != "end":
            at = self._peek.place
            found = self._graph("function")
            if found.name in functions:
                raise GraphError(f"{at}: function {found.name!r} is defined twice")
            functions[found.name] = found
        return ParsedFile(constants, graph, functions)

    def program(self, keyword: str) -> Parsed:
        """Return a text of one graph. Raises GraphError."""
        found = self._graph(keyword)
        if self._peek.kind != "end":
            raise self._error("the end of the text")
        return found

    def _graph(self, keyword: str) -> Parsed:
        self._begin()
        self._expect(keyword)
        name, default = self._name(), self._device()
        self._expect("{")
        sources: list[tuple[str, str]] = []
        nodes: list[Node] = []
        outputs: list[str] = []
        on_inputs, on_outputs = dict[str, str](), dict[str, str]()
        while not self._accept("}"):
            role = self._peek.text if self._peek.kind == "word" else ""
            if role in ("input", "const"):
                place = self._next().place
                value = self._name()
                self._expect(":")
                self._shapes[value] = self._define(value, place)
                sources.append((role, value))
                if role == "const" and self._accept("="):
                    self._values[value] = self._value()
                self._named(value, on_inputs)
            elif self._accept("output"):
                outputs += self._outputs(on_outputs)
            else:
                nodes.append(self._node())
        return Parsed(
            name,
            tuple(sources),
            tuple(nodes),
            tuple(outputs),
            self._types,
            Affinity(default, on_inputs, on_outputs),
            self._values,
            self._shapes,
            tuple(self._counted),
        )

    def _value(self) -> tuple[str, ...] | str:
        """Return elements in brackets, or `data` and a key."""
        if self._accept("data"):
            return self._name()
        self._expect("[")
        words: list[str] = []
        while not self._accept("]"):
            if words:
                self._expect(",")
            if self._peek.kind != "word":
                raise self._error("a number")
            words.append(self._next().text)
        return tuple(words)

    @property
    def _peek(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._peek
        if token.kind != "end":
            self._at += 1
        return token

    def _error(self, expected: str) -> GraphError:
        token = self._peek
        found = token.text if token.kind == "end" else repr(token.text)
        return GraphError(f"{token.place}: expected {expected}, found {found}")

    def _accept(self, text: str) -> bool:
        if self._peek.kind in ("word", "mark") and self._peek.text == text:
            self._next()
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._error(repr(text))

    def _name(self) -> str:
        token = self._peek
        if token.kind == "string":
            return self._string()
        if token.kind != "word" or token.text in KEYWORDS:
            raise self._error("a name")
        return self._next().text

    def _string(self) -> str:
        try:
            value = json.loads(self._peek.text)
        except json.JSONDecodeError as error:
            raise self._error("a JSON string") from error
        self._next()
        return str(value)

    def _names(self) -> list[str]:
        names = [self._name()]
        while self._accept(","):
            names.append(self._name())
        return names

    def _outputs(self, devices: dict[str, str]) -> list[str]:
        """Return names of outputs; the devices of those that have one are added."""
        names: list[str] = []
        while not names or self._accept(","):
            names.append(self._name())
            if self._accept("counted"):
                self._expect("[")
                axis = self._int()
                self._expect(",")
                self._counted.append((names[-1], axis, self._name()))
                self._expect("]")
            self._named(names[-1], devices)
        return names

    def _named(self, value: str, devices: dict[str, str]) -> None:
        device = self._device()
        if device:
            devices[value] = device

    def _device(self) -> str:
        """Return a device after `on`; nothing without."""
        if not self._accept("on"):
            return ""
        parts = [self._name()]
        while self._accept(":"):
            parts.append(self._name())
        return ":".join(parts)

    def _int(self) -> int:
        value = self._number()
        if isinstance(value, float):
            self._at -= 1
            raise self._error("an integer")
        return value

    def _number(self) -> int | float:
        text = self._peek.text
        for kind in (int, float):
            try:
                value = kind(text)
            except ValueError:
                continue
            self._next()
            return value
        raise self._error("a number")

    def _ints(self, close: str) -> tuple[int, ...]:
        return tuple(value for value, _ in self._sized(close))

    def _sized(self, close: str) -> list[tuple[int, str]]:
        """Return sizes up to a mark, each with its text."""
        values: list[tuple[int, str]] = []
        while not self._accept(close):
            if values:
                self._expect(",")
            values.append(self._size())
        return values

    def _size(self) -> tuple[int, str]:
        """Return a number, or an expression of named sizes where there may be some; with its text."""
        word = self._peek
        if self._sizes is None or word.kind != "word" or _is_number(word.text):
            followed = self._tokens[min(self._at + 1, len(self._tokens) - 1)].text == "*"
            if self._sizes is None or not followed:
                return self._int(), word.text
        text = self._next().text
        while self._accept("*"):
            text += "*" + self._next().text
        try:
            value = size_of(text, self._sizes)
        except KeyError as error:
            raise GraphError(
                f"{word.place}: size {error.args[0]!r} is open: nothing gives it a value"
            ) from error
        if value is None:
            raise GraphError(f"{word.place}: expected a size such as 4, batch or 4*batch+1, found {text!r}")
        return value, text

    def _type(self) -> tuple[TensorType, tuple[int | str, ...]]:
        """Return a type, and its shape as it is written."""
        place, dtype = self._peek.place, self._name()
        self._expect("[")
        sized = self._sized("]")
        strides = None
        if self._accept("strides"):
            self._expect("=")
            self._expect("(")
            strides = self._ints(")")
        try:
            found = TensorType(tuple(value for value, _ in sized), dtype, strides)
        except GraphError as error:
            raise GraphError(f"{place}: {error}") from error
        return found, tuple(value if _is_number(text) else text for value, text in sized)

    def _define(self, value: str, place: str) -> tuple[int | str, ...]:
        tensor_type, shape = self._type()
        if value in self._types:
            raise GraphError(f"{place}: value {value!r} is defined twice")
        self._types[value] = tensor_type
        return shape

    def _attr(self) -> Attr:
        if self._accept("["):
            return self._ints("]")
        if self._accept("true"):
            return True
        if self._accept("false"):
            return False
        if self._accept("@"):
            return FunctionName(self._name())
        if self._peek.kind == "string":
            return self._string()
        if (
            self._sizes is not None
            and re.match("[A-Za-z_]", self._peek.text)
            and not _is_number(self._peek.text)
        ):
            return self._size()[0]
        return self._number()

    def _attrs(self) -> dict[str, Attr]:
        attrs: dict[str, Attr] = {}
        while not self._accept("}"):
            if attrs:
                self._expect(",")
            key = self._next().text if self._peek.kind == "word" else self._name()
            self._expect("=")
            attrs[key] = self._attr()
        return attrs

    def _node(self) -> Node:
        place, outputs = self._peek.place, self._names()
        self._expect("=")
        op = self._name()
        self._expect("(")
        inputs = [] if self._accept(")") else self._names()
        if inputs:
            self._expect(")")
        attrs = self._attrs() if self._accept("{") else {}
        if not self._inferred or self._peek.text == ":":
            self._expect(":")
            self._output_types(outputs, place)
        device = self._device()
        name = self._name() if self._accept("as") else ""
        return Node(op, tuple(inputs), tuple(outputs), attrs, name, device=device)

    def _output_types(self, outputs: Sequence[str], place: str) -> None:
        for i, value in enumerate(outputs):
            if i:
                self._expect(",")
            if value:
                self._define(value, place)
            else:
                self._expect("none")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


__all__ = ["KEYWORDS", "FunctionName", "Parsed", "ParsedFile", "Parser"]
