"""Products of one value become one, and may be divided again: the numbers stay the same."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from autotune.codegen import interpreter
from autotune.compiler import compile_in_detail, distinct_workloads, divide
from autotune.compiler.assemble import assemble
from autotune.compiler.build.build import Building
from autotune.compiler.plan import OPTION, option_key, rank
from autotune.compiler.planned import schedule_for
from autotune.compiler.region import region_partition
from autotune.compiler.request import CompileRequest
from autotune.database import Comparison, Database, Latency, WorkloadRow
from autotune.errors import GraphError
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.graph.region import Workload
from autotune.lower import lower_schedule
from autotune.passes.algorithms import sibling_products
from autotune.passes.algorithms.sibling_products import SiblingProducts
from autotune.passes.options import Option, options_of
from autotune.passes.partition import Partition, partition
from autotune.passes.preference import Preference
from autotune.passes.substitute import substitute
from autotune.runtime.module import Module
from autotune.target import Target
from search_spaces import spaces
from tests.search_spaces import workloads as make
from tests.seeds import seeds


def whole_numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).integers(-3, 4, shape).astype(np.float32)


class Layers(GraphBuilder):
    """Products of ``x``, each with a bias and what a test adds."""

    def __init__(self, *shape: int) -> None:
        super().__init__("layers")
        self.x = self.input("x", shape or (6, 8))

    def dense(self, name: str, columns: int, x: str = "x") -> str:
        inner = self.type_of(x).shape[-1]
        product = self.node("MatMul", x, self.constant(f"{name}.w", whole_numbers(inner, columns)))
        return self.node("Add", product, self.constant(f"{name}.b", whole_numbers(columns)), name=name)

    def conv(self, name: str, columns: int, kernel: int = 1) -> str:
        inner = self.type_of(self.x).shape[-1]
        weights = self.constant(f"{name}.w", whole_numbers(kernel, kernel, inner, columns))
        product = self.node("Conv", self.x, weights, layout="NHWC", pads=(kernel // 2,) * 4)
        return self.node("Relu", product, name=name)

    def read(self, *values: str) -> Graph:
        """A graph in which a reduction reads each value."""
        return self.graph(*(self.node("ReduceMax", v, axes=(-1,), name=f"{v}.max") for v in values))


def merged(graph: Graph) -> list[tuple[str, tuple[int, ...]]]:
    """The products after the pass, each by operator and shape; the graph computes the same."""
    after = SiblingProducts().apply(graph)
    arrays = {v: whole_numbers(*graph.type_of(v).shape) for v in graph.inputs}
    for name, expected in evaluate.run(graph, arrays).items():
        np.testing.assert_array_equal(evaluate.run(after, arrays)[name], expected)
    assert not any(node.op == "Split" for d in partition(after).dispatches for node in d.region.graph.nodes)
    return [(n.op, after.type_of(n.outputs[0]).shape) for n in after.nodes if n.op in ("MatMul", "Conv")]


def test_products_of_one_value_become_one() -> None:
    b = Layers()
    graph = b.read(b.dense("q", 4), b.dense("k", 4), b.dense("v", 6))
    assert merged(graph) == [("MatMul", (6, 14))]
    (product, *_) = distinct_workloads(divide(graph))
    assert [node.op for node in product.region.graph.nodes] == ["MatMul", "Add"]


def test_so_do_convolutions_of_one_kind() -> None:
    b = Layers(1, 5, 7, 8)
    graph = b.read(b.conv("a", 4), b.conv("b", 3, kernel=3), b.conv("c", 5), b.conv("d", 2, kernel=3))
    assert merged(graph) == [("Conv", (1, 5, 7, 9)), ("Conv", (1, 5, 7, 5))]


def test_constants_without_columns_may_differ() -> None:
    b = Layers()
    x = b.node("Mul", b.dense("a", 4), b.constant("two", np.asarray(2, np.float32)))
    y = b.node("Mul", b.dense("b", 6), b.constant("three", np.asarray(3, np.float32)))
    assert merged(b.read(x, y)) == [("MatMul", (6, 10))]


def test_weights_of_several_layers_are_joined_once() -> None:
    b = Layers(6, 6)
    w, v = (b.constant(name, whole_numbers(6, 6) + i) for i, name in enumerate("wv"))
    ends = [
        b.node("MatMul", x, a, name=f"{x}{a}") for x in ("x", b.node("Relu", "x", name="r")) for a in (w, v)
    ]
    after = SiblingProducts().apply(b.read(*ends))
    assert len([a for a in after.constants.values() if a.shape == (6, 12)]) == 1


def test_different_operations_after_them_stay_with_each() -> None:
    b = Layers()
    graph = b.read(b.dense("q", 4), b.node("Relu", b.dense("k", 4)), b.dense("v", 4))
    assert merged(graph) == [("MatMul", (6, 8)), ("MatMul", (6, 4))]


def test_what_has_a_place_of_its_own_stays() -> None:
    b = Layers()
    joined = b.node("Concat", b.dense("a", 4), b.dense("b", 4), axis=1)
    assert merged(b.read(joined)) == [("MatMul", (6, 4))] * 2
    b = Layers()
    assert merged(b.graph(b.dense("a", 4), b.dense("b", 4))) == [("MatMul", (6, 4))] * 2


def test_large_products_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Layers()
    graph = b.read(b.dense("q", 4), b.dense("k", 4), b.dense("v", 6))
    monkeypatch.setattr(sibling_products, "MOST_FLOPS", 2 * 6 * 8 * 4)
    assert merged(graph) == [("MatMul", (6, 8)), ("MatMul", (6, 6))]


def test_what_cannot_be_read_as_a_slice_stays() -> None:
    b = Layers()
    flat = [b.node("Reshape", b.dense(name, 4), shape=(24,)) for name in "ab"]
    assert merged(b.read(*flat)) == [("MatMul", (6, 4))] * 2


def test_two_factors_stay_as_the_product_ends_the_second() -> None:
    b = Layers()
    gate = b.node("Mul", b.node("Sigmoid", b.dense("gate", 4)), b.dense("up", 4))
    assert merged(b.graph(b.node("Relu", gate, name="y"))) == [("MatMul", (6, 4))] * 2


def option(workload: Workload, name: str) -> Option | None:
    return next((option for option in options_of(workload) if option.name == name), None)


def test_siblings_may_be_computed_apart() -> None:
    b = Layers()
    graph = SiblingProducts().apply(b.read(b.dense("q", 4), b.dense("k", 4), b.dense("v", 6)))
    workload = partition(graph).dispatches[0].workload
    assert "columns=[4, 4, 6]" in workload.text
    found = option(workload, "columns apart")
    assert found is not None
    assert [region.region.graph.type_of("v1").shape for region in found.regions] == [(6, 4), (6, 4), (6, 6)]
    assert not any("columns" in region.text for region in found.regions)


def test_other_products_are_not_divided() -> None:
    b = Layers()
    (workload,) = distinct_workloads(divide(b.graph(b.dense("y", 96))))
    assert option(workload, "columns apart") is None


@pytest.mark.parametrize("columns", [(), (4, 0, 4), (4, 3)])
def test_columns_that_are_not_those_of_the_operand(columns: tuple[int, ...]) -> None:
    b = Layers()
    with pytest.raises(
        GraphError, match=r"MatMul: columns = .* are not the 8 of its second operand in parts"
    ):
        b.node("MatMul", "x", b.constant("w", whole_numbers(8, 8)), columns=columns)


@pytest.mark.parametrize("kernel", [1, 3])
def test_every_option_of_siblings_computes_the_same(kernel: int) -> None:
    b = Layers(1, 9, 11, 8)
    b.x = b.node("Relu", "x")
    graph = SiblingProducts().apply(b.read(b.conv("a", 12, kernel), b.conv("b", 20, kernel)))
    workload, target = partition(graph).dispatches[0].workload, Target.detect(1)
    assert [node.op for node in workload.region.graph.nodes] == ["Relu", "Conv", "Relu"]
    arrays = workload.random_inputs(0)
    (expected,) = workload.reference(arrays)
    for found in options_of(workload):
        parts = substitute(region_partition(workload, arrays), {workload.key: found})
        planned = [schedule_for(w, target, None, {}) for w in distinct_workloads(parts)]
        image, _ = assemble(parts, Building(planned, target).finish(), target, {})
        (result,) = Module(image).run(dict(zip(parts.inputs, arrays[:1], strict=True))).values()
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4, err_msg=found.name)


def test_they_are_apart_where_a_comparison_says_so(tmp_path: Path) -> None:
    b, target = Layers(), Target.parse("x86-64-v3", threads=1)
    graph = b.read(b.dense("q", 16), b.dense("k", 16))
    workload = divide(graph).dispatches[0].workload
    found = option(workload, "columns apart")
    assert found is not None
    with Database(tmp_path / "tuning.db") as store:
        store.add_target(target)
        store.add_workload(WorkloadRow(workload.key, workload.text, workload.kind, 1, 1))
        assert rank([workload], target, store, Preference()) == {}
        row = Comparison(found.name, option_key(found, target), Latency(5, 1e4, 1e4, 0.0), won=True)
        store.compared(workload.key, target.key, OPTION, [row], "net")
        done = compile_in_detail(CompileRequest(graph, target=target, database=store))
    assert [d.workload.kind for d in done.partition.dispatches] == ["contraction"] * 2 + ["reduction"] * 2


def random_siblings(rng: random.Random) -> Graph:
    """Two to four products of a value, with operations after them, and what reads each."""
    is_image = rng.random() < 0.4
    b = Layers(*((1, 3, 4, 5) if is_image else rng.choice(((5, 7), (1, 6, 5), (2, 3, 7)))))
    steps = [rng.choice(("Add", "Mul", "Max", "Relu", "residual")) for _ in range(rng.randint(0, 3))]
    equal, ends = rng.choice((0, 8, 12)), list[str]()
    for number in range(rng.randint(2, 4)):
        columns = equal or rng.choice((4, 8, 12, 17))
        y = b.conv(f"c{number}", columns) if is_image else b.dense(f"d{number}", columns)
        for at, step in enumerate(steps):
            name, shape = f"{number}.{at}", b.type_of(y).shape
            if step == "Relu":
                y = b.node("Relu", y)
            elif step == "residual":
                y = b.node("Add", y, b.input(name, shape)) if equal and rng.random() < 0.2 else y
            else:
                one = rng.choice(((), (1,), shape[-1:]))
                y = b.node(step, y, b.constant(name, whole_numbers(*one)))
        ends.append(b.node("Identity", y, name=f"end{number}"))
    if rng.random() < 0.3 and not is_image:
        heads = [b.node("Reshape", y, shape=(*b.type_of(y).shape[:-1], -1, 4)) for y in ends[:1] if equal]
        ends = [*heads, *ends[len(heads) :]]
    return b.read(*ends)


def divided(parts: Partition) -> Partition:
    """The dispatches with siblings apart."""
    chosen = dict[str, Option]()
    for workload in distinct_workloads(parts):
        found = [o for o in options_of(workload, tolerance=0.0) if o.name == "columns apart"]
        if found:
            (chosen[workload.key],) = found
    return substitute(parts, chosen)


def interpreted(workload: Workload) -> None:
    """The loops of the default schedule give what NumPy gives."""
    space, program = spaces.space_for(workload, make.host()), workload.program()
    lowered = lower_schedule(space.apply(program, space.default()), program.args)
    inputs = [whole_numbers(*t.shape) for t in program.inputs]
    arrays = {t.name: a for t, a in zip(program.inputs, inputs, strict=True)}
    arrays |= {t.name: np.full(t.shape, np.nan, np.float32) for t in program.outputs}
    interpreter.run_program(lowered, arrays)
    for tensor, expected in zip(program.outputs, workload.reference(inputs), strict=True):
        np.testing.assert_array_equal(arrays[tensor.name], expected)


@pytest.mark.parametrize("seed", seeds(5, 12))
def test_numpy_loops_and_machine_code_agree(seed: int) -> None:
    rng = random.Random(seed)
    graph = random_siblings(rng)
    merged(graph)
    for workload in distinct_workloads(divided(divide(graph))):
        interpreted(workload)
    arrays = {v: whole_numbers(*graph.type_of(v).shape) for v in graph.inputs}
    for algorithm in (None, "columns apart"):
        done = compile_in_detail(CompileRequest(graph, target=Target.detect(1), algorithm=algorithm))
        for name, found in Module(done.image).run(arrays).items():
            np.testing.assert_array_equal(found, evaluate.run(graph, arrays)[name], err_msg=str(algorithm))


def test_products_that_nobody_reads_are_no_siblings() -> None:
    """Of a pair whose results are read by what nobody reads nothing is left to merge."""
    b = Layers()
    for name in ("one", "other"):
        b.node("Neg", b.dense(name, 4))
    graph = SiblingProducts().apply(b.graph(b.node("Abs", "x")))
    assert [node.op for node in graph.nodes] == ["Abs"]
