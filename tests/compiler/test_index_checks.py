"""Indices out of range are refused, whoever brings them and however the module is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.compiler import compile_in_detail
from autotune.compiler.request import CompileRequest
from autotune.errors import ArtifactError, GraphError, InputError
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.runtime.artifacts import artifact
from autotune.runtime.image import ModuleImage
from autotune.runtime.module import Module

TABLE = np.arange(50 * 16, dtype=np.float32).reshape(50, 16)


def lookup(indices: Callable[[GraphBuilder], str]) -> Graph:
    b = GraphBuilder("lookup")
    table = b.constant("table", TABLE)
    return b.graph(b.node("Gather", table, indices(b), axis=0, name="rows"))


def image_of(graph: Graph, threads: int = 1) -> ModuleImage:
    return compile_in_detail(CompileRequest(graph, target="host", threads=threads)).image


def message(call: Callable[[], Any]) -> str:
    with pytest.raises(InputError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("count", [1, 7, 40, 9000])
def test_an_index_out_of_range_is_refused_wherever_it_stands(count: int, dtype: str, threads: int) -> None:
    limits = np.iinfo(dtype)
    good = np.random.default_rng(count).integers(-50, 50, count).astype(dtype)
    with Module(image_of(lookup(lambda b: b.input("ids", (count,), dtype)), threads), threads) as module:
        for wrong in (50, -51, limits.max, limits.min, limits.max - 49):
            for place in {0, count // 2, count - 1}:
                bad = good.copy()
                bad[place] = wrong
                assert message(lambda bad=bad: module(bad)).startswith(f"index {wrong} is out of range")
        np.testing.assert_array_equal(module(good)[0], TABLE[good])


def test_the_message_says_which_dispatch_node_and_axis() -> None:
    with Module(image_of(lookup(lambda b: b.input("ids", (2,), "int64")))) as module:
        assert message(lambda: module(np.array([3, 50]))) == (
            "index 50 is out of range: dispatch '000_gather' of 'lookup', node rows\n"
            "  axis 0 has 50 elements: indices are from -50 to 49"
        )


def test_every_way_to_run_a_module_refuses() -> None:
    bad = np.array([3, 50])
    with Module(image_of(lookup(lambda b: b.input("ids", (2,), "int64")))) as module:
        out = [np.zeros((2, 16), np.float32)]
        for call in (
            lambda: module.run({"ids": bad}),
            lambda: module(bad, out=out),
            lambda: module(bad[::-1]),  # through the conversions in Python
            lambda: module.submit(bad).result(),
            lambda: module.time([bad]),
            lambda: module.profile([bad]),
            lambda: module.timeline([bad]),
        ):
            assert message(call).startswith("index 50 is out of range")
            assert module(np.array([3, 49]))[0][1, 0] == TABLE[49, 0]


def test_computed_and_strided_indices_are_checked() -> None:
    def part(b: GraphBuilder) -> str:
        moved = b.node("Add", b.input("ids", (6, 8), "int64"), b.constant("one", np.int64(1)))
        return b.node("Slice", moved, starts=(1, 2), ends=(5, 7), axes=(0, 1))

    with Module(image_of(lookup(part), 2), 2) as module:
        ids = np.full((6, 8), 99)
        ids[1:5, 2:7] = 48
        assert (module(ids)[0] == TABLE[49]).all()
        for place in np.argwhere(ids == 48):
            ids[tuple(place)] = 49
            assert message(lambda: module(ids)).startswith("index 50 is out of range")
            ids[tuple(place)] = 48


def test_elements_are_checked_along_their_axis() -> None:
    b = GraphBuilder("elements")
    x, ids = b.input("x", (3, 5)), b.input("ids", (3, 2), "int32")
    graph = b.graph(b.node("GatherElements", x, ids, axis=-1, name="y"))
    with Module(image_of(graph)) as module:
        data = np.arange(15, dtype=np.float32).reshape(3, 5)
        assert module(data, np.array([[4, -5]] * 3, np.int32))[0].tolist() == [[4, 0], [9, 5], [14, 10]]
        assert "axis 1 has 5 elements" in message(lambda: module(data, np.array([[4, 5]] * 3, np.int32)))


def test_constant_indices_are_checked_when_the_model_is_compiled() -> None:
    b = GraphBuilder("constant")
    x = b.input("x", (3, 5))
    for indices, fits in ((np.array([2, -3]), True), (np.array([1, 3]), False)):
        graph = b.graph(b.node("Gather", x, b.constant(f"i{fits}", indices), axis=0, name=f"y{fits}"))
        if fits:
            assert not image_of(graph).checks
            continue
        with pytest.raises(GraphError, match="constant index 3 is out of range\n  axis 0 has 3 elements"):
            image_of(graph)


def test_checks_are_kept_in_artifacts_and_verified(tmp_path: Path) -> None:
    image = image_of(lookup(lambda b: b.input("ids", (40,), "int64")))
    artifact.save(image, tmp_path / "lookup.atm")
    with Module(artifact.load_image(tmp_path / "lookup.atm")) as module:
        assert module.image.checks == image.checks
        assert message(lambda: module(np.full(40, 50))).startswith("index 50")
    (check,) = image.checks
    for wrong in (
        replace(check, count=41),
        replace(check, runs=2, stride=8),
        replace(check, runs=2, stride=-8),
        replace(check, width=16),
        replace(check, extent=0),
        replace(check, command=1),
        replace(check, dispatch=-1),
        replace(check, binding=replace(check.binding, offset=8)),
    ):
        with pytest.raises(ArtifactError, match="index check 0: "):
            Module(replace(image, checks=(wrong,)))


def tuples(op: str, *inputs: Any, **attrs: Any) -> Graph:
    b = GraphBuilder("tuples")
    data = b.input("data", (4, 3, 2), "float32")
    names = [b.input(f"x{n}", shape, dtype) for n, (shape, dtype) in enumerate(inputs)]
    return b.graph(b.node(op, data, *names, name="chosen", **attrs))


@pytest.mark.parametrize("column", [0, 1])
def test_tuples_of_indices_are_checked_column_by_column(column: int) -> None:
    data, good = np.zeros((4, 3, 2), np.float32), np.array([[3, 2], [-4, -3], [0, 0]])
    for graph, rest in (
        (tuples("GatherND", ((3, 2), "int64")), []),
        (tuples("ScatterND", ((3, 2), "int64"), ((3, 2), "float32")), [np.ones((3, 2), np.float32)]),
    ):
        with Module(image_of(graph)) as module:
            module(data, good, *rest)
            bad = good.copy()
            bad[1, column] = (4, 3)[column]
            extent = data.shape[column]
            said = message(lambda module=module, bad=bad, rest=rest: module(data, bad, *rest))
            assert said.startswith(f"index {extent} is out of range")
            assert f"axis {column} has {extent} elements" in said


def test_constant_tuples_of_indices_are_checked_when_a_model_is_compiled() -> None:
    b = GraphBuilder("tuples")
    data = b.input("data", (4, 3), "float32")
    graph = b.graph(b.node("GatherND", data, b.constant("at", np.array([[3, 2], [1, 3]])), name="chosen"))
    with pytest.raises(GraphError, match="constant index 3 is out of range"):
        image_of(graph)
