"""The text form of graphs: deterministic, and it parses back.

::

    graph small {
      input x: float32[1, 4, 4, 3] strides=(64, 16, 4, 1)
      const w: float32[1, 1, 3, 8]
      y = Conv(x, w) {layout="NHWC", strides=[2, 2]} : float32[1, 2, 2, 8]
      a, b = Split(y) {axis=3, split=[4, 4]} : float32[1, 2, 2, 4], float32[1, 2, 2, 4] as halves
      output a, b
    }

Names are words of letters, digits and ``_ . / + -``, or JSON strings; an absent input or output is
"". Attributes are sorted by name. ``as`` gives a node's name if it is not its first output. The
values of constants are not in the text. ``#`` starts a comment.

``on cpu:1`` names a device: after the type of an input, after the types of a node's outputs (where it runs), after
an output (where it is wanted), and after the graph's name for all that names none::

    graph two on cpu:0 {
      input x: float32[4] on cpu:1
      y = Relu(x) : float32[4] on cpu:1
      output y on cpu:0
    }
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.errors import GraphError
from autotune.graph.ir import Affinity, Array, Attr, Graph, Node, TensorType

_KEYWORDS = {"graph", "region", "input", "const", "output", "as", "on", "strides"}
_WORD = re.compile(r"[A-Za-z0-9_./+-]+")
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+|\#[^\n]*)|(?P<newline>\n)|(?P<string>"(?:[^"\\\n]|\\.)*")"""
    r"""|(?P<word>[A-Za-z0-9_./+-]+)|(?P<mark>[\[\](){}=,:])"""
)


def print_graph(graph: Graph, constant_inputs: Iterable[str] = (), keyword: str = "graph") -> str:
    """The text of a graph, without a final newline. `constant_inputs` print as `const`."""
    fixed, named = set(constant_inputs), graph.affinity
    lines = [f"{keyword} {_name(graph.name)}{_device(named.default)} {{"]
    for value in graph.inputs:
        role, device = "const" if value in fixed else "input", _device(named.inputs.get(value, ""))
        lines.append(f"  {role} {_name(value)}: {graph.type_of(value)}{device}")
    for value in graph.constants:
        lines.append(f"  const {_name(value)}: {graph.type_of(value)}")
    lines += [f"  {_node_text(node, graph)}" for node in graph.nodes]
    if graph.outputs:
        outputs = (f"{_name(v)}{_device(named.outputs.get(v, ''))}" for v in graph.outputs)
        lines.append(f"  output {', '.join(outputs)}")
    return "\n".join([*lines, "}"])


def parse_graph(text: str, constants: Mapping[str, Array] | None = None) -> Graph:
    """The graph of a text.

    The text has no constants' values: those not given in `constants` are zeros. Raises GraphError
    with the line number; the result is not verified.
    """
    parsed = parse(text, "graph")
    given = constants or {}
    fixed = {
        name: given[name] if name in given else _zeros(parsed.types[name])
        for role, name in parsed.sources
        if role == "const"
    }
    inputs = tuple(name for role, name in parsed.sources if role == "input")
    return Graph(parsed.name, inputs, parsed.outputs, parsed.nodes, parsed.types, fixed, parsed.affinity)


@dataclass(frozen=True)
class Parsed:
    """What a text says; `sources` are (role, name) with role "input" or "const", in order."""

    name: str
    sources: tuple[tuple[str, str], ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    types: Mapping[str, TensorType]
    affinity: Affinity


def parse(text: str, keyword: str) -> Parsed:
    """Parse a text that starts with `keyword`. Raises GraphError with the line number."""
    return _Parser(text).program(keyword)


def _zeros(tensor_type: TensorType) -> Array:
    return np.broadcast_to(np.zeros((), tensor_type.dtype), tensor_type.shape)


def _name(name: str) -> str:
    return name if _WORD.fullmatch(name) and name not in _KEYWORDS else json.dumps(name)


def _device(name: str) -> str:
    """What names a device, after what is on it; nothing without one."""
    return f" on {':'.join(map(_name, name.split(':')))}" if name else ""


def _attr_text(value: Attr) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return repr(value)


def _node_text(node: Node, graph: Graph) -> str:
    outputs = ", ".join(map(_name, node.outputs))
    inputs = ", ".join(map(_name, node.inputs))
    attrs = ", ".join(
        f"{k if _WORD.fullmatch(k) else json.dumps(k)}={_attr_text(v)}" for k, v in node.attrs.items()
    )
    types = ", ".join(str(graph.type_of(v)) if v else "none" for v in node.outputs)
    text = f"{outputs} = {_name(node.op)}({inputs})"
    text += f" {{{attrs}}} : {types}" if attrs else f" : {types}"
    text += _device(node.device)
    default = next((o for o in node.outputs if o), node.op)
    return text if node.name == default else f"{text} as {_name(node.name)}"


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    line: int


def _tokens(text: str) -> list[_Token]:
    found, position, line = [], 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise GraphError(f"line {line}: unexpected character {text[position]!r}")
        kind = match.lastgroup or ""
        if kind == "newline":
            line += 1
        elif kind != "space":
            found.append(_Token(kind, match.group(), line))
        position = match.end()
    return [*found, _Token("end", "end of text", line)]


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._types: dict[str, TensorType] = {}

    def program(self, keyword: str) -> Parsed:
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
                line = self._next().line
                value = self._name()
                self._expect(":")
                self._define(value, line)
                sources.append((role, value))
                self._named(value, on_inputs)
            elif self._accept("output"):
                outputs += self._outputs(on_outputs)
            else:
                nodes.append(self._node())
        if self._peek.kind != "end":
            raise self._error("the end of the text")
        named = Affinity(default, on_inputs, on_outputs)
        return Parsed(name, tuple(sources), tuple(nodes), tuple(outputs), self._types, named)

    @property
    def _peek(self) -> _Token:
        return self._tokens[self._at]

    def _next(self) -> _Token:
        token = self._peek
        if token.kind != "end":
            self._at += 1
        return token

    def _error(self, expected: str) -> GraphError:
        token = self._peek
        found = token.text if token.kind == "end" else repr(token.text)
        return GraphError(f"line {token.line}: expected {expected}, found {found}")

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
        if token.kind != "word" or token.text in _KEYWORDS:
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
        """Names of outputs; the devices of those that have one are added."""
        names: list[str] = []
        while not names or self._accept(","):
            names.append(self._name())
            self._named(names[-1], devices)
        return names

    def _named(self, value: str, devices: dict[str, str]) -> None:
        device = self._device()
        if device:
            devices[value] = device

    def _device(self) -> str:
        """A device after `on`; nothing without."""
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
        values: list[int] = []
        while not self._accept(close):
            if values:
                self._expect(",")
            values.append(self._int())
        return tuple(values)

    def _type(self) -> TensorType:
        line, dtype = self._peek.line, self._name()
        self._expect("[")
        shape = self._ints("]")
        strides = None
        if self._accept("strides"):
            self._expect("=")
            self._expect("(")
            strides = self._ints(")")
        try:
            return TensorType(shape, dtype, strides)
        except GraphError as error:
            raise GraphError(f"line {line}: {error}") from error

    def _define(self, value: str, line: int) -> None:
        tensor_type = self._type()
        if value in self._types:
            raise GraphError(f"line {line}: value {value!r} is defined twice")
        self._types[value] = tensor_type

    def _attr(self) -> Attr:
        if self._accept("["):
            return self._ints("]")
        if self._accept("true"):
            return True
        if self._accept("false"):
            return False
        return self._string() if self._peek.kind == "string" else self._number()

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
        line, outputs = self._peek.line, self._names()
        self._expect("=")
        op = self._name()
        self._expect("(")
        inputs = [] if self._accept(")") else self._names()
        if inputs:
            self._expect(")")
        attrs = self._attrs() if self._accept("{") else {}
        self._expect(":")
        self._output_types(outputs, line)
        device = self._device()
        name = self._name() if self._accept("as") else ""
        return Node(op, tuple(inputs), tuple(outputs), attrs, name, device=device)

    def _output_types(self, outputs: Sequence[str], line: int) -> None:
        for i, value in enumerate(outputs):
            if i:
                self._expect(",")
            if value:
                self._define(value, line)
            else:
                self._expect("none")
