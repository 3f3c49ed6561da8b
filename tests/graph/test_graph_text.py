"""The text form: golden text, round trip, errors with line numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import GraphError
from autotune.graph import Graph, Node, TensorType
from autotune.graph.text import parse_graph, print_graph
from tests.graph.graphs import random_graphs, small_convnet

GOLDEN = """\
graph "small convnet" {
  input "x/0:0": float32[1, 3, 8, 8]
  const w1: float32[4, 3, 3, 3]
  const w2: float32[4, 4, 1, 1]
  const w3: float32[4, 5]
  const b3: float32[5]
  conv = Conv("x/0:0", w1) {dilations=[1, 1], group=1, kernel_shape=[3, 3], layout="NCHW", \
pads=[1, 1, 1, 1], strides=[2, 2]} : float32[1, 4, 4, 4]
  relu = Relu(conv) : float32[1, 4, 4, 4]
  conv_1 = Conv(relu, w2) {dilations=[1, 1], group=1, kernel_shape=[1, 1], layout="NCHW", \
pads=[0, 0, 0, 0], strides=[1, 1]} : float32[1, 4, 4, 4]
  add = Add(relu, conv_1) : float32[1, 4, 4, 4]
  globalaveragepool = GlobalAveragePool(add) {layout="NCHW"} : float32[1, 4, 1, 1]
  flatten = Flatten(globalaveragepool) {axis=1} : float32[1, 4]
  gemm = Gemm(flatten, w3, b3) {alpha=1.0, beta=1.0, transA=0, transB=0} : float32[1, 5]
  y = Softmax(gemm) {axis=1} : float32[1, 5]
  output y
}"""


def test_golden() -> None:
    assert print_graph(small_convnet()) == GOLDEN
    assert str(small_convnet()) == GOLDEN


def same_structure(a: Graph, b: Graph) -> None:
    assert (a.name, a.inputs, a.outputs, a.nodes) == (b.name, b.inputs, b.outputs, b.nodes)
    assert dict(a.types) == dict(b.types)
    assert list(a.constants) == list(b.constants)


def test_parsing_gives_the_graph_back() -> None:
    graph = small_convnet()
    same_structure(parse_graph(GOLDEN, graph.constants), graph)
    assert parse_graph(GOLDEN, graph.constants).constants["w1"] is graph.constants["w1"]
    assert not parse_graph(GOLDEN).constants["w1"].any()


@settings(max_examples=100, deadline=None)
@given(random_graphs())
def test_round_trip(graph: Graph) -> None:
    text = print_graph(graph)
    parsed = parse_graph(text)
    same_structure(parsed, graph)
    assert print_graph(parsed) == text


ATTRS = st.dictionaries(
    st.text(min_size=1, max_size=4),
    st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.lists(st.integers(), max_size=3).map(tuple),
    max_size=4,
)


@settings(max_examples=100, deadline=None)
@given(ATTRS, st.text(max_size=5))
def test_any_attributes_and_names_round_trip(attrs: dict[str, object], name: str) -> None:
    node = Node("Any", ("x", ""), ("", "y"), attrs, name)  # type: ignore[arg-type]
    t = TensorType((1,), "int8", (2,))
    graph = Graph("g", ("x",), ("y",), (node,), {"x": t, "y": t})
    parsed = parse_graph(print_graph(graph))
    same_structure(parsed, graph)
    assert [type(v) for v in parsed.nodes[0].attrs.values()] == [type(v) for v in node.attrs.values()]


def test_keywords_as_names_are_quoted() -> None:
    t = TensorType((), "float32")
    node = Node("Relu", ("input",), ("output",), {"strides": 1}, "as")
    graph = Graph("graph", ("input",), ("output",), (node,), {"input": t, "output": t})
    assert print_graph(graph) == (
        'graph "graph" {\n  input "input": float32[]\n'
        '  "output" = Relu("input") {strides=1} : float32[] as "as"\n  output "output"\n}'
    )
    same_structure(parse_graph(print_graph(graph)), graph)


def test_comments_and_layout_are_free() -> None:
    text = "graph g { # a comment\ninput x:float32[2]\n\ny=Relu(x):float32[2] output y }"
    assert parse_graph(text).nodes == (Node("Relu", ("x",), ("y",)),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: expected 'graph', found end of text"),
        ("graph g {\n  input x float32[2]\n}", "line 2, column 11: expected ':', found 'float32'"),
        ("graph g {\n  input x: float32[2\n}", "line 3, column 1: expected ',', found '}'"),
        ("graph g {\n  input x: float32[a]\n}", "line 2, column 20: expected a number, found 'a'"),
        ("graph g {\n  input x: float32[1.5]\n}", "line 2, column 20: expected an integer, found '1.5'"),
        ("graph g {\n  input x: float[2]\n}", "line 2, column 12: unknown dtype 'float'; known: bool"),
        ("graph g {\n  input x: float32[-2]\n}", "line 2, column 12: negative dimension in shape (-2,)"),
        ("graph g {\n\n  !\n}", "line 3, column 3: unexpected character '!'"),
        ("graph g {\n  y = Relu(x) {a=?} : float32[]\n}", "line 2, column 18: unexpected character '?'"),
        ("graph g {\n  y = Relu(x) {a=b} : float32[]\n}", "line 2, column 18: expected a number, found 'b'"),
        ("graph g {\n  y = Relu(x)\n}", "line 3, column 1: expected ':', found '}'"),
        (
            'graph g {\n  input "\\q": float32[]\n}',
            "line 2, column 9: expected a JSON string, found '\"\\\\q\"'",
        ),
        (
            "graph g {\n  input x: int8[]\n  input x: int8[]\n}",
            "line 3, column 3: value 'x' is defined twice",
        ),
        ("graph g {\n}\nmore", "line 3, column 1: expected the end of the text, found 'more'"),
        ("region g {\n}", "line 1, column 1: expected 'graph', found 'region'"),
    ],
)
def test_errors_name_the_line(text: str, message: str) -> None:
    with pytest.raises(GraphError) as caught:
        parse_graph(text)
    assert str(caught.value).startswith(message)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(GOLDEN)), st.integers(0, 30), st.text(max_size=6))
def test_damaged_text_is_a_graph_error_or_a_graph(at: int, cut: int, put: str) -> None:
    try:
        parsed = parse_graph(GOLDEN[:at] + put + GOLDEN[at + cut :])
    except GraphError:
        return
    assert isinstance(parsed, Graph)


def test_constants_of_the_text_are_zeros_of_their_type() -> None:
    graph = parse_graph("graph g {\n const c: int8[1000, 1000]\n output c\n}")
    assert graph.constants["c"].dtype == np.int8
    assert graph.constants["c"].strides == (0, 0)
