"""Loops: what the operator means, and that dispatches of all steps compute it."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from autotune.compiler.driver import compile_in_detail
from autotune.compiler.memory.proof import prove_memory
from autotune.compiler.request import CompileRequest
from autotune.errors import GraphError, InternalError
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.graph.ops.loop import LoopParts, lifted, loop_node
from autotune.graph.text import parse_graph
from autotune.graph.verify import verify
from autotune.passes.partition import partition
from autotune.passes.pipeline import run_passes, standard_passes
from autotune.passes.repetition import Repetition
from autotune.runtime.module import Module
from tests.compiler.random_models import check_model, random_way


def sums(trips: int = 3, from_end: tuple[int, ...] = (), columns: int = 4) -> Graph:
    """Running sums of rows, each times a weight."""
    body = GraphBuilder("sum")
    total, row, weight = (body.input(v, (columns,)) for v in ("total", "row", "weight"))
    new = body.node("Add", total, body.node("Mul", row, weight), name="new")
    b = GraphBuilder("sums")
    b.input("start", (columns,))
    b.input("rows", (trips, columns))
    b.constant("factors", np.arange(columns, dtype=np.float32))
    node = loop_node(
        ["start", "rows", "factors"],
        ["end", "all"],
        body.graph(new, new),
        carried=1,
        scanned=1,
        trips=trips,
        from_end=from_end,
    )
    b.nodes(node.op, node.inputs, node.outputs, **node.attrs)
    return b.graph("end", "all")


@pytest.mark.parametrize("from_end", [(), (1, 0), (0, 1), (1, 1)])
def test_steps_carry_scan_and_collect(from_end: tuple[int, ...]) -> None:
    graph = sums(5, from_end)
    rng = np.random.default_rng(0)
    start, rows = (rng.standard_normal(s).astype(np.float32) for s in ((4,), (5, 4)))
    scan, collect = from_end or (0, 0)
    expected = start + np.cumsum((rows[::-1] if scan else rows) * np.arange(4), 0)
    found = evaluate.run(graph, {"start": start, "rows": rows})
    np.testing.assert_allclose(found["end"], expected[-1], rtol=1e-5)
    np.testing.assert_allclose(found["all"], expected[::-1] if collect else expected, rtol=1e-5)
    check_model(graph, random_way(random.Random(1)))


def test_a_loop_has_a_text() -> None:
    graph = sums()
    again = parse_graph(str(graph), graph.constants)
    verify(again)
    assert str(again) == str(graph)


def test_one_workload_serves_all_steps() -> None:
    graph = run_passes(sums(50), standard_passes())
    parts = partition(graph)
    first, *repeated, last, copy = parts.dispatches  # the last sum is an output of its own beside all of them
    assert [d.repeats for d in repeated] == [(Repetition("end.loop", 24),)] * 2
    assert [d.runs for d in parts.dispatches] == [1, 24, 24, 1, 1]
    assert first.workload == repeated[0].workload == last.workload
    assert not copy.repeats


def test_short_loops_stand_there() -> None:
    parts = [partition(run_passes(sums(trips), standard_passes())) for trips in (8, 9, 10)]
    assert [len(each.dispatches) for each in parts] == [9, 6, 5]


def test_what_lives_within_a_step_has_one_place_for_all() -> None:
    done = [compile_in_detail(CompileRequest(_wide(trips), threads=1)) for trips in (3, 30)]
    assert done[0].memory_plan.arena_bytes == done[1].memory_plan.arena_bytes


def _wide(trips: int) -> Graph:
    """A product whose result lives from one dispatch of a step to the next."""
    body = GraphBuilder("step")
    state, weight = body.input("state", (2, 8)), body.input("weight", (8, 64))
    wide = body.node("Softmax", body.node("MatMul", state, weight), axis=1)
    body.node("ReduceSum", body.node("Reshape", wide, shape=(2, 8, 8)), axes=(2,), keepdims=0, name="new")
    b = GraphBuilder("wide")
    b.input("x", (2, 8))
    b.constant("w", np.ones((8, 64), np.float32))
    node = loop_node(["x", "w"], ["y"], body.graph("new"), carried=1, scanned=0, trips=trips)
    b.nodes(node.op, node.inputs, node.outputs, **node.attrs)
    return b.graph("y")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trips": 0}, "node 'end' (Loop): trips = 0: a loop has at least one step"),
        ({"trips": 4}, "node 'end' (Loop): input 1 is float32[3, 4], the body's 'row' needs float32[4, 4]"),
        (
            {"carried": 2},
            "node 'end' (Loop): from_end has 2 entries for 1 values",
        ),
        (
            {"carried": 3, "from_end": (0,)},
            "node 'end' (Loop): the body has 3 inputs and 2 outputs, of which 3 are carried and 1 scanned",
        ),
        ({"going": 1}, "node 'end' (Loop): going = 1: it should be one of the 1 carried values"),
        ({"going": 0}, "node 'end' (Loop): going = 0, which is float32[4] and should be one boolean"),
        ({"body": "graph {"}, "node 'end' (Loop): line 1, column 7: expected a name, found '{'"),
    ],
)
def test_what_a_loop_refuses(changes: dict[str, object], message: str) -> None:
    graph = sums()
    (node,) = graph.nodes
    wrong = graph.replace(nodes=(node.replace(attrs={**node.attrs, **changes}),))
    with pytest.raises(GraphError) as caught:
        verify(wrong)
    assert str(caught.value) == f"graph 'sums', {message}"


def random_loops(rng: random.Random) -> Graph:
    """Loops over random bodies, one after another, some within another; results are read, joined and cut."""
    b = GraphBuilder("loops")
    batch, width, trips = rng.choice((1, 2, 3)), rng.choice((4, 8, 17)), rng.choice((1, 2, 3, 5, 9, 10, 13))
    states = [b.input(f"x{i}", (batch, width)) for i in range(2)]
    rows = b.input("rows", (trips, batch, width))
    states.append(b.constant("zeros", np.zeros((batch, width), np.float32)))
    b.constant("w", np.random.default_rng(rng.randrange(99)).standard_normal((width, width)).astype("f4") / 4)
    outputs = list[str]()
    for number in range(rng.randint(1, 2)):
        carried = rng.randint(0, 2)
        body, names = _random_body(rng, batch, width, carried, depth=rng.choice((0, 0, 1)))
        inner, constants = lifted(body)
        values = [b.constant(f"c{number}.{name}", array) for name, array in constants.items()]
        collected = len(body.outputs) - carried
        results = [f"l{number}.{i}" for i in range(len(body.outputs))]
        node = loop_node(
            [*(rng.choice(states) for _ in range(carried)), rows, *names, *values],
            results,
            inner,
            carried=carried,
            scanned=1,
            trips=trips,
            from_end=[rng.randint(0, 1) for _ in range(1 + collected)],
        )
        b.nodes(node.op, node.inputs, node.outputs, **node.attrs)
        states += results[:carried]
        if collected and rng.random() < 0.5:
            flat = [b.node("Reshape", v, shape=(trips, 1, batch, width)) for v in results[carried:]]
            outputs.append(b.node("Concat", *flat, rng.choice(flat), axis=1))
        outputs += results
        if collected:
            rows = rng.choice((rows, results[-1], b.node("Neg", results[-1])))
    return b.graph(*rng.sample(outputs, rng.randint(1, len(outputs)))).pruned()


def _random_body(
    rng: random.Random, batch: int, width: int, carried: int, depth: int
) -> tuple[Graph, list[str]]:
    b = GraphBuilder("body")
    values = [b.input(f"s{i}", (batch, width)) for i in range(carried)] + [b.input("row", (batch, width))]
    weight, shape = b.input("w", (width, width)), (batch, width)
    half = b.constant("half", np.float32([0.5]))
    for _ in range(rng.randint(1, 5)):
        kind, value, other = rng.randrange(6), rng.choice(values), rng.choice(values)
        if kind == 0:
            values.append(b.node("Tanh", b.node("MatMul", value, weight)))
        elif kind == 1:
            values.append(b.node("Mul", b.node("Add", value, other), half))
        elif kind == 2:
            cut = rng.randint(1, width - 1)
            parts = b.nodes(
                "Split",
                [value],
                [f"{value}.{len(values)}.{i}" for i in "ab"],
                axis=1,
                split=(cut, width - cut),
            )
            values.append(b.node("Concat", parts[1], parts[0], axis=1))
        elif kind == 3:
            values.append(b.node("Softmax", value, axis=-1))
        elif kind == 4:
            values.append(b.node("Reshape", b.node("Reshape", value, shape=(width, batch)), shape=shape))
        elif depth:
            inner, names = _random_body(rng, batch, width, 1, depth - 1)
            inner, constants = lifted(inner)
            given = [b.constant(f"{value}.{len(values)}.{n}", a) for n, a in constants.items()]
            trips = rng.choice((2, 9, 12))
            rows = [b.node("Reshape", rng.choice((value, other)), shape=(1, *shape)) for _ in range(trips)]
            stacked = b.node("Concat", *rows, axis=0)
            results = [f"inner{len(values)}.{i}" for i in range(len(inner.outputs))]
            node = loop_node(
                [other, stacked, *names, *given], results, inner, carried=1, scanned=1, trips=trips
            )
            b.nodes(node.op, node.inputs, node.outputs, **node.attrs)
            values.append(results[0])
    made = [rng.choice(values) for _ in range(carried)] + [
        rng.choice(values) for _ in range(rng.randint(0, 2))
    ]
    return b.graph(*(made or [values[-1]])), [weight]


@pytest.mark.parametrize("block", range(4))
def test_random_loops_compute_their_reference(block: int) -> None:
    for seed in range(6 * block, 6 * block + 6):
        rng = random.Random(seed)
        graph, way = random_loops(rng), random_way(rng)
        try:
            check_model(graph, way)
        except Exception as error:  # noqa: BLE001  # whatever went wrong is reported with its model
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}\n{way}\n{graph}")


def test_parts_of_a_loop() -> None:
    (node,) = sums(3, (1, 0)).nodes
    parts = LoopParts.of(node.attrs)
    assert parts.captured == ("weight",)
    assert [parts.scanned_at(0, step) for step in range(3)] == [2, 1, 0]
    assert [parts.collected_at(0, step) for step in range(3)] == [0, 1, 2]


def test_the_memory_proof_knows_steps() -> None:
    done = compile_in_detail(CompileRequest(_wide(4), threads=1))
    parts = done.partition
    assert prove_memory(parts, done.memory_plan)
    first, later = (
        next(v for d in parts.dispatches for v in d.inputs if v.endswith(f"{i}.state")) for i in (1, 3)
    )
    assert parts.placements[first] == parts.placements[later]
    stale = replace(parts, versions={**parts.versions, later: parts.versions[first]})
    with pytest.raises(
        InternalError, match=f"reads '{later}', of which a part was not written before, or overwritten"
    ):
        prove_memory(stale, done.memory_plan)


def test_a_constant_to_begin_with_is_kept_where_options_divide_dispatches() -> None:
    body = GraphBuilder("recall")
    memory, key = body.input("memory", (2, 4, 8, 8)), body.input("key", (2, 4, 8))
    column = body.node("Reshape", key, shape=(2, 4, 8, 1))
    turned = body.node("Transpose", memory, perm=(0, 1, 3, 2))
    seen = body.node("Reshape", body.node("MatMul", turned, column), shape=(2, 4, 1, 8))
    new = body.node("Add", memory, body.node("MatMul", column, body.node("Tanh", seen)))
    b = GraphBuilder("memory")
    b.input("keys", (3, 2, 4, 8))
    b.constant("start", np.full((2, 4, 8, 8), 0.1, np.float32))
    node = loop_node(["start", "keys"], ["end"], body.graph(new), carried=1, scanned=1, trips=3)
    b.nodes(node.op, node.inputs, node.outputs, **node.attrs)
    graph = b.graph("end")
    divided = compile_in_detail(
        CompileRequest(graph, threads=1, algorithm="row sums")
    )  # which not every machine chooses
    assert any(name.count("/") > 1 for name in (d.name for d in divided.partition.dispatches))
    prove_memory(divided.partition, divided.memory_plan)
    keys = np.random.default_rng(0).standard_normal((3, 2, 4, 8)).astype(np.float32)
    with Module(divided.image) as module:
        np.testing.assert_allclose(module(keys)[0], evaluate.run(graph, {"keys": keys})["end"], rtol=1e-4)
