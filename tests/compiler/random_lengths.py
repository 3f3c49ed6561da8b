"""Random graphs with lengths that they compute: rows that conditions choose, joined, cut, sorted, counted."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, helper, numpy_helper

ROWS, COLUMNS = 12, 4


class Rows(NamedTuple):
    """A value of some rows; two of one ``length`` have as many."""

    name: str
    length: int


class LengthGraph:
    """A graph that grows an operator at a time."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.outputs: list[str] = []
        self.lengths = 0
        self.chosen = self.places("x", 1.5 * self.rng.standard_normal())
        self.values = [Rows(self.node("Gather", "x", self.chosen), 0)]
        for _ in range(self.rng.integers(3, 9)):
            self.pick(STEPS)(self, self.pick(self.values))

    def pick(self, values: Any) -> Any:
        return values[self.rng.integers(len(values))]

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        array = np.asarray(value)
        self.constants[name] = array.astype(np.float32) if array.dtype == np.float64 else array
        return name

    def node(self, op: str, *inputs: str, outputs: int = 1, **attrs: Any) -> str:
        """Add a node and return its last result."""
        names = [f"v{len(self.nodes)}_{n}" for n in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attrs))
        return names[-1]

    def sums(self, value: str) -> str:
        return self.node("ReduceSum", value, self.constant([1]), keepdims=0)

    def places(self, value: str, least: float) -> str:
        """Return the rows whose sums are more than a number."""
        found = self.node("NonZero", self.node("Greater", self.sums(value), self.constant(least)))
        return self.node("Squeeze", found, self.constant([0]))

    def count(self, value: str) -> str:
        return self.node("Shape", value, end=1)

    def append(self, name: str, length: int | None = None) -> None:
        """Add rows, of a length of their own where none is given."""
        self.lengths += length is None
        self.values.append(Rows(name, self.lengths if length is None else length))

    def model(self) -> Any:
        outputs = dict.fromkeys([*self.outputs, *(value.name for value in self.values[-2:])])
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (ROWS, COLUMNS))
        made = [helper.make_empty_tensor_value_info(name) for name in outputs]
        stored = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "lengths", [x], made, stored)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])

    def requests(self) -> list[Any]:
        """Return inputs of which some rows are chosen, none, all, and one."""
        few = np.where(np.arange(ROWS)[:, None] == 3, 9.0, -9.0)
        every: list[Any] = [self.rng.standard_normal((ROWS, COLUMNS))]
        every += [np.full((ROWS, COLUMNS), -9.0), np.full((ROWS, COLUMNS), 9.0)]
        every += [few + self.rng.standard_normal((ROWS, COLUMNS)) / 10]
        return [x.astype(np.float32) for x in every]


def _pointwise(graph: LengthGraph, rows: Rows) -> None:
    bounded = graph.node("Clip", rows.name, graph.constant(-3.0), graph.constant(3.0))
    graph.append(graph.node(graph.pick(("Relu", "Exp", "Neg", "Sigmoid")), bounded), rows.length)


def _softmax(graph: LengthGraph, rows: Rows) -> None:
    graph.append(graph.node("Softmax", rows.name, axis=graph.pick((0, 1))), rows.length)


def _sum(graph: LengthGraph, rows: Rows) -> None:
    graph.outputs.append(graph.node("ReduceSum", rows.name, graph.constant([0]), keepdims=graph.pick((0, 1))))


def _less_the_sum(graph: LengthGraph, rows: Rows) -> None:
    total = graph.node("ReduceSum", rows.name, graph.constant([0]), keepdims=1)
    graph.append(graph.node("Sub", rows.name, total), rows.length)


def _product(graph: LengthGraph, rows: Rows) -> None:
    weights = graph.constant(graph.rng.standard_normal((COLUMNS, COLUMNS)))
    graph.append(graph.node("MatMul", rows.name, weights), rows.length)


def _product_over_rows(graph: LengthGraph, rows: Rows) -> None:
    turned = graph.node("Transpose", rows.name, perm=[1, 0])
    graph.outputs.append(graph.node("MatMul", turned, rows.name))


def _joined(graph: LengthGraph, rows: Rows) -> None:
    graph.append(graph.node("Concat", rows.name, graph.pick(graph.values).name, axis=0))


def _cut(graph: LengthGraph, rows: Rows, few: int = 8) -> str:
    ends = graph.constant([int(graph.rng.integers(1, few + 1))])
    zero = graph.constant([0])
    return graph.node("Slice", rows.name, zero, ends, zero)


def _first_few(graph: LengthGraph, rows: Rows) -> None:
    graph.append(_cut(graph, rows))


def _running_sum(graph: LengthGraph, rows: Rows) -> None:
    attrs = {"reverse": graph.pick((0, 1)), "exclusive": graph.pick((0, 1))}
    graph.append(graph.node("CumSum", rows.name, graph.constant(0), **attrs), rows.length)


def _chosen_again(graph: LengthGraph, rows: Rows) -> None:
    places = graph.places(rows.name, graph.rng.standard_normal())
    graph.append(graph.node("Gather", rows.name, places))


def _largest(graph: LengthGraph, rows: Rows) -> None:
    sums = graph.sums(rows.name)
    most = graph.constant([int(graph.rng.integers(1, 7))])
    places = graph.node("TopK", sums, graph.node("Min", graph.count(sums), most), outputs=2)
    graph.append(graph.node("Gather", rows.name, places))


def _expanded(graph: LengthGraph, rows: Rows) -> None:
    twos = graph.node("Expand", graph.constant(2.0), graph.node("Shape", rows.name))
    graph.append(graph.node("Mul", rows.name, twos), rows.length)


def _flat_and_back(graph: LengthGraph, rows: Rows) -> None:
    flat = graph.node("Reshape", rows.name, graph.constant([-1]))
    graph.append(graph.node("Reshape", flat, graph.constant([-1, COLUMNS])), rows.length)


def _normalized(graph: LengthGraph, rows: Rows) -> None:
    scale, bias = graph.rng.uniform(0.5, 2, COLUMNS), graph.rng.standard_normal(COLUMNS)
    found = graph.node("LayerNormalization", rows.name, graph.constant(scale), graph.constant(bias))
    graph.append(found, rows.length)


def _numbered(graph: LengthGraph, rows: Rows) -> None:
    count = graph.node("Squeeze", graph.count(rows.name))
    numbers = graph.node("Range", graph.constant(0), count, graph.constant(1))
    column = graph.node("Unsqueeze", numbers, graph.constant([1]))
    graph.append(graph.node("Add", rows.name, graph.node("Cast", column, to=1)), rows.length)


def _back_to_their_places(graph: LengthGraph, rows: Rows) -> None:
    if rows.length == 0:
        places = graph.node("Unsqueeze", graph.chosen, graph.constant([1]))
        zeros = graph.constant(np.zeros((ROWS, COLUMNS)))
        reduction = graph.pick(("none", "add"))
        graph.outputs.append(graph.node("ScatterND", zeros, places, rows.name, reduction=reduction))


def _counted(graph: LengthGraph, rows: Rows) -> None:
    cut = graph.pick((rows.name, _cut(graph, rows, 2)))
    graph.outputs.append(graph.node(graph.pick(("Size", "Shape")), cut))


def _bounded_count(graph: LengthGraph, rows: Rows) -> None:
    few = graph.constant([int(graph.rng.integers(1, 3))])
    count = graph.node(graph.pick(("Min", "Max")), graph.count(rows.name), few)
    graph.outputs.append(graph.node("Mul", count, graph.constant([3])))
    graph.outputs.append(graph.node("Expand", graph.constant(1.0), count))


def _part_of_a_count(graph: LengthGraph, rows: Rows) -> None:
    more, by = (graph.constant([int(graph.rng.integers(*each))]) for each in ((0, 4), (1, 6)))
    part = graph.node("Div", graph.node("Add", graph.count(rows.name), more), by)
    graph.outputs.append(graph.node("Expand", graph.constant(1.0), part))
    graph.outputs.append(graph.node("Add", part, graph.constant([1])))


def _turned(graph: LengthGraph, rows: Rows) -> None:
    chosen = graph.pick(SLICES)
    turned = graph.node("Slice", rows.name, *(graph.constant([n]) for n in chosen))
    graph.append(turned, rows.length if chosen[-1] == -1 else None)


def _noisy(graph: LengthGraph, rows: Rows) -> None:
    nothing = graph.node("Mul", graph.node("RandomNormalLike", rows.name), graph.constant(0.0))
    graph.append(graph.node("Add", rows.name, nothing), rows.length)


SLICES = ((-1, -99, 1, -1), (-1, -99, 0, -1), (COLUMNS - 1, -99, 1, -1), (0, 99, 0, 2), (1, 99, 0, 3))
"""Start, end, axis and step of slices that turn columns or rows round, or keep some rows."""

STEPS = (
    _pointwise,
    _softmax,
    _sum,
    _less_the_sum,
    _product,
    _product_over_rows,
    _joined,
    _first_few,
    _running_sum,
    _chosen_again,
    _largest,
    _expanded,
    _flat_and_back,
    _normalized,
    _numbered,
    _back_to_their_places,
    _counted,
    _bounded_count,
    _part_of_a_count,
    _turned,
    _noisy,
)
