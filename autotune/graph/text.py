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
values of constants are not in the text of a graph (those of a model's file are: `autotune.graph.text_file`). ``#``
starts a comment.

``on cpu:1`` names a device: after the type of an input, after the types of a node's outputs (where it runs), after
an output (where it is wanted), and after the graph's name for all that names none::

    graph two on cpu:0 {
      input x: float32[4] on cpu:1
      y = Relu(x) : float32[4] on cpu:1
      output y on cpu:0
    }

Of an output ``y counted[1, n]`` the first ``n`` elements along axis 1 are there, where ``n`` is another output.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from autotune.errors import GraphError
from autotune.graph.ir import Array, Attr, Graph, Node, TensorType
from autotune.graph.text_parser import KEYWORDS, Parsed, Parser
from autotune.graph.text_tokens import WORD


def print_graph(
    graph: Graph,
    constant_inputs: Iterable[str] = (),
    keyword: str = "graph",
    value_text: Callable[[str], str] = lambda constant: "",
    function_of: Callable[[Node, str], str | None] = lambda node, attribute: None,
) -> str:
    """Return the text of a graph, without a final newline. `constant_inputs` print as `const`.

    `value_text` has what follows the type of a constant; `function_of` the name of a function that an attribute is.
    """
    fixed, named = set(constant_inputs), graph.affinity
    lines = [f"{keyword} {name_text(graph.name)}{_device(named.default)} {{"]
    for value in graph.inputs:
        role, device = "const" if value in fixed else "input", _device(named.inputs.get(value, ""))
        lines.append(f"  {role} {name_text(value)}: {graph.type_of(value)}{device}")
    for value in graph.constants:
        lines.append(f"  const {name_text(value)}: {graph.type_of(value)}{value_text(value)}")
    lines += [f"  {_node_text(node, graph, function_of)}" for node in graph.nodes]
    if graph.outputs:
        lines.append(f"  output {', '.join(_output_text(graph, n) for n in range(len(graph.outputs)))}")
    return "\n".join([*lines, "}"])


def parse_graph(text: str, constants: Mapping[str, Array] | None = None) -> Graph:
    """Return the graph of a text.

    The text has no constants' values: those not given in `constants` are zeros. Raises GraphError
    with the line and column; the result is not verified.
    """
    parsed, given = parse(text, "graph"), constants or {}
    return graph_of(parsed, lambda name: given[name] if name in given else _zeros(parsed.types[name]))


def graph_of(parsed: Parsed, constant: Callable[[str], Array]) -> Graph:
    """Return the graph that a text says, with the values of its constants by name."""
    fixed = {name: constant(name) for role, name in parsed.sources if role == "const"}
    inputs = tuple(name for role, name in parsed.sources if role == "input")
    for value in {value for one, _, count in parsed.counted for value in (one, count)}:
        if value not in parsed.outputs:
            raise GraphError(f"graph {parsed.name!r}: {value!r} is counted or counts, and is no output")
    place = parsed.outputs.index
    counted = tuple((place(value), axis, place(count)) for value, axis, count in parsed.counted)
    return Graph(
        parsed.name, inputs, parsed.outputs, parsed.nodes, parsed.types, fixed, parsed.affinity, counted
    )


def parse(text: str, keyword: str) -> Parsed:
    """Parse a text that starts with `keyword`. Raises GraphError with the line and column."""
    return Parser(text).program(keyword)


def _zeros(tensor_type: TensorType) -> Array:
    return np.broadcast_to(np.zeros((), tensor_type.dtype), tensor_type.shape)


def name_text(name: str) -> str:
    """Return a name as it stands in a text: quoted where it is no plain word."""
    return name if WORD.fullmatch(name) and name not in KEYWORDS else json.dumps(name)


def _device(name: str) -> str:
    """Return the text that names a device, after what is on it; nothing without one."""
    return f" on {':'.join(map(name_text, name.split(':')))}" if name else ""


def _output_text(graph: Graph, number: int) -> str:
    value = graph.outputs[number]
    text = name_text(value)
    for output, axis, count in graph.counted:
        if output == number:
            text += f" counted[{axis}, {name_text(graph.outputs[count])}]"
    return text + _device(graph.affinity.outputs.get(value, ""))


def _attr_text(value: Attr) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return repr(value)


def _node_text(node: Node, graph: Graph, function_of: Callable[[Node, str], str | None]) -> str:
    outputs = ", ".join(map(name_text, node.outputs))
    inputs = ", ".join(map(name_text, node.inputs))
    attrs = ", ".join(
        f"{key if WORD.fullmatch(key) else json.dumps(key)}="
        + (_attr_text(value) if (name := function_of(node, key)) is None else f"@{name_text(name)}")
        for key, value in node.attrs.items()
    )
    types = ", ".join(str(graph.type_of(v)) if v else "none" for v in node.outputs)
    text = f"{outputs} = {name_text(node.op)}({inputs})"
    text += f" {{{attrs}}} : {types}" if attrs else f" : {types}"
    text += _device(node.device)
    default = next((o for o in node.outputs if o), node.op)
    return text if node.name == default else f"{text} as {name_text(node.name)}"


__all__ = ["Parsed", "graph_of", "name_text", "parse", "parse_graph", "print_graph"]
