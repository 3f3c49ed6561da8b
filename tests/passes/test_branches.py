"""Branches: what the operator means, and that the dispatches of the chosen one compute it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from autotune.compiler.driver import compile_in_detail
from autotune.compiler.memory.proof import prove_memory
from autotune.compiler.request import CompileRequest
from autotune.errors import GraphError, InputError, InternalError
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Array, Graph
from autotune.graph.ops.branch import branch_node
from autotune.graph.ops.loop import lifted, loop_node
from autotune.graph.text import parse_graph
from autotune.graph.text_file import file_text
from autotune.graph.verify import verify
from autotune.passes.partition import partition
from autotune.passes.pipeline import run_passes, standard_passes
from autotune.passes.placement.both_branches import without_choices
from autotune.runtime.module import Module
from tests.compiler.random_models import check_model, random_way


def choice(refusal: str = "") -> Graph:
    """A product of a sum and weights, or, where the sum is positive, the softmax of another product."""
    then, other = GraphBuilder("then"), GraphBuilder("other")
    x, w = then.input("x", (4, 8)), then.input("w", (8, 8))
    yes = then.graph(then.node("Softmax", then.node("MatMul", x, w), axis=-1))
    x, w = other.input("x", (4, 8)), other.input("w", (8, 8))
    no = other.graph(other.node("MatMul", other.node("Softmax", x, axis=-1), w))
    b = GraphBuilder("choice")
    x = b.input("x", (4, 8))
    w = b.constant("w", np.arange(64, dtype=np.float32).reshape(8, 8) / 64)
    positive = _positive(b, x, "c")
    first = None if refusal else (yes, (x, w))
    node = branch_node(positive, first, (no, (x, w)), ["y"], refusal=refusal)
    b.nodes(node.op, node.inputs, node.outputs, **node.attrs)
    return b.graph("y")


def _positive(b: GraphBuilder, value: str, name: str = "") -> str:
    """A boolean that depends on the elements of a value."""
    total = b.node("ReduceSum", value, axes=(0, 1), keepdims=0)
    zero = b.constant(f"{total}.zero", np.zeros((), np.float32))
    return b.node("Greater", total, zero, name=name)


def both_ways() -> list[Array]:
    rows = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    return [np.abs(rows), -np.abs(rows)]


@pytest.mark.parametrize("threads", [1, 2])
def test_the_chosen_branch_runs(threads: int) -> None:
    graph = choice()
    done = compile_in_detail(CompileRequest(graph, threads=threads))
    prove_memory(done.partition, done.memory_plan)
    with Module(done.image, threads=threads) as module:
        for x in (*both_ways(), *both_ways()):
            wanted = evaluate.run(graph, {"x": x})["y"]
            np.testing.assert_allclose(module(x)[0], wanted, rtol=1e-4, atol=1e-6)
            ran = {module.dispatches[e.dispatch].name for e in module.timeline([x]) if e.tiles}
            chosen = "then" if x.sum() > 0 else "else"
            assert {name.split("/")[0] for name in ran if ".if." in name} == {f"y.if.{chosen}"}


def test_a_refused_branch_is_an_error_when_it_is_chosen() -> None:
    graph = choice("there is no such branch")
    positive, negative = both_ways()
    wanted = evaluate.run(graph, {"x": negative})["y"]
    with pytest.raises(InputError, match=r"^there is no such branch$"):
        evaluate.run(graph, {"x": positive})
    with Module(compile_in_detail(CompileRequest(graph, threads=1)).image) as module:
        for _ in range(2):
            np.testing.assert_allclose(module(negative)[0], wanted, rtol=1e-4)
            with pytest.raises(InputError, match=r"^there is no such branch$"):
                module(positive)


def test_branches_have_a_text() -> None:
    for graph in (choice(), choice("no")):
        again = parse_graph(str(graph), graph.constants)
        verify(again)
        assert str(again) == str(graph)
        assert "function" in file_text(graph, "constants.npz")


def test_both_branches_can_be_computed() -> None:
    graph = choice()
    both = without_choices(graph)
    assert {"If"} & {node.op for node in both.nodes} == set()
    for x in both_ways():
        results = [evaluate.run(each, {"x": x})["y"] for each in (graph, both)]
        np.testing.assert_array_equal(*results)
    with pytest.raises(GraphError, match="a model on named devices cannot refuse a branch: never"):
        without_choices(choice("never"))


def test_branches_take_memory_once() -> None:
    parts = partition(run_passes(choice(), standard_passes()))
    texts = str(parts).splitlines()
    assert texts.count("    if c") == texts.count("    unless c") == 2
    done = compile_in_detail(CompileRequest(choice(), threads=2))
    under = [[str(c) for c in d.conditions] for d in done.partition.dispatches if d.conditions]
    assert under in ([["if c"]] * 2 + [["unless c"]] * 2, [["unless c"]] * 2 + [["if c"]] * 2)


def test_the_memory_proof_knows_conditions() -> None:
    done = compile_in_detail(CompileRequest(choice(), threads=1))
    parts, plan = done.partition, done.memory_plan
    (root,) = {parts.placements["c"].root}
    (inner,) = {d.outputs[0] for d in parts.dispatches if d.name.startswith("y.if.else/000")}
    moved = replace(plan, offsets={**plan.offsets, root: plan.offsets[parts.placements[inner].root]})
    with pytest.raises(InternalError, match="reads 'c', of which a part is overwritten"):
        prove_memory(parts, moved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"then_inputs": 1}, "then_branch takes 2 values, given are 1"),
        ({"then_branch": ""}, "a branch is refused without a reason, or with one not refused"),
        ({"refusal": "why"}, "a branch is refused without a reason, or with one not refused"),
        ({"else_branch": "graph {"}, "line 1, column 7: expected a name, found '{'"),
        (
            {"else_branch": "graph o {\n  input x: float32[4, 8]\n  input w: float32[8, 8]\n  output w\n}"},
            "its branches give float32[4, 8] and float32[8, 8]",
        ),
    ],
)
def test_what_branches_refuse(change: dict[str, object], message: str) -> None:
    graph = choice()
    nodes = [n.replace(attrs={**n.attrs, **change}) if n.op == "If" else n for n in graph.nodes]
    with pytest.raises(GraphError) as caught:
        verify(graph.replace(nodes=tuple(nodes)))
    assert str(caught.value) == f"graph 'choice', node 'y' (If): {message}"


# random programs ----------------------------------------------------------------------------------


def random_branches(rng: random.Random) -> Graph:
    """Branches and loops within one another, to some depth; results are read, joined, cut and given out twice."""
    b = GraphBuilder("branches")
    shape = (rng.choice((1, 3)), rng.choice((4, 8, 17)))
    values = [b.input(f"x{i}", shape) for i in range(2)]
    w = np.random.default_rng(rng.randrange(99)).standard_normal((shape[1],) * 2).astype("f4") / 4
    weight = b.constant("w", w)
    for _ in range(rng.randint(2, 4)):
        values += _random_step(rng, b, values, weight, shape, depth=2)
    outputs = rng.sample(values[2:], rng.randint(1, min(3, len(values) - 2)))
    if rng.random() < 0.5:
        outputs.append(b.node("Concat", *rng.choices(values[2:], k=2), axis=1))
    return b.graph(*outputs).pruned()


def _random_step(
    rng: random.Random, b: GraphBuilder, values: list[str], weight: str, shape: tuple[int, int], depth: int
) -> list[str]:
    value, other = rng.choice(values), rng.choice(values)
    kind = rng.randrange(8 if depth else 4)
    if kind == 0:
        return [b.node("Tanh", b.node("MatMul", value, weight))]
    if kind == 1:
        return [b.node("Sub", value, other)]
    if kind == 2:
        return [b.node("Softmax", value, axis=-1)]
    if kind == 3:
        cut = rng.randint(1, shape[1] - 1)
        names = [f"{value}.{len(values)}.{rng.randrange(1 << 30)}.{i}" for i in "ab"]
        parts = b.nodes("Split", [value], names, axis=1, split=(cut, shape[1] - cut))
        return [b.node("Concat", parts[1], parts[0], axis=1)]
    insides: list[Callable[..., list[str]]] = [_random_loop, _random_branch, _random_branch, _random_branch]
    return insides[kind - 4](rng, b, [value, other], weight, shape, depth - 1)


def _random_graph(
    rng: random.Random, shape: tuple[int, int], depth: int, results: int
) -> tuple[Graph, dict[str, Array]]:
    """A graph of two values and the weight; and its constants, which are its last inputs."""
    b = GraphBuilder("inside")
    values = [b.input("s", shape), b.input("t", shape)]
    weight = b.input("w", (shape[1],) * 2)
    for _ in range(rng.randint(0, 3)):
        values += _random_step(rng, b, values, weight, shape, depth)
    graph, constants = lifted(b.graph(*rng.choices(values, k=results)))
    return graph, dict(constants)


def _given(b: GraphBuilder, constants: dict[str, Array], values: list[str], weight: str) -> list[str]:
    names = [b.constant(f"{values[0]}.{k}.{id(a)}", a) for k, a in constants.items()]
    return [*values, weight, *names]


def _random_branch(
    rng: random.Random, b: GraphBuilder, values: list[str], weight: str, shape: tuple[int, int], depth: int
) -> list[str]:
    results = rng.randint(1, 2)
    sides = []
    for _ in range(2):
        graph, constants = _random_graph(rng, shape, depth, results)
        sides.append((graph, _given(b, constants, values, weight)))
    names = [f"{values[0]}.if{rng.randrange(1 << 30)}.{i}" for i in range(results)]
    node = branch_node(_positive(b, values[1]), *sides, names)
    return list(b.nodes(node.op, node.inputs, node.outputs, **node.attrs))


def _random_loop(
    rng: random.Random, b: GraphBuilder, values: list[str], weight: str, shape: tuple[int, int], depth: int
) -> list[str]:
    graph, constants = _random_graph(rng, shape, depth, 2)
    names = [f"{values[0]}.loop{rng.randrange(1 << 30)}.{i}" for i in range(2)]
    given = _given(b, constants, values, weight)
    node = loop_node(given, names, graph, carried=2, scanned=0, trips=rng.randint(1, 3))
    return list(b.nodes(node.op, node.inputs, node.outputs, **node.attrs))


def _check_random(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        graph, way = random_branches(rng), random_way(rng)
        try:
            check_model(graph, way)
        except Exception as error:  # noqa: BLE001  # whatever went wrong is reported with its model
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}\n{way}\n{graph}")


def test_random_branches_compute_their_reference() -> None:
    _check_random(range(8))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_many_random_branches_compute_their_reference(block: int) -> None:
    _check_random(range(100 + 16 * block, 116 + 16 * block))
