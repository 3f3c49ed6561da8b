"""Values inside of other values: reshapes, joins and slices without a copy, on random graphs and chosen ones."""

import random
from itertools import count

import numpy as np
import pytest

from autotune.graph.build import GraphBuilder
from autotune.graph.verify import verify
from autotune.passes.partition import PartitionOptions, partition
from tests.passes.random_joins import random_joins
from tests.passes.test_partition import all_ops, check, normal


@pytest.mark.parametrize("block", range(8))
def test_any_graph_of_joins(block):
    for seed in range(25 * block, 25 * (block + 1)):
        graph = random_joins(random.Random(seed))
        verify(graph)
        for options in (None, PartitionOptions(in_place_concat=False), PartitionOptions(views=False)):
            try:
                check(graph, options)
            except Exception as error:  # noqa: BLE001  # whatever went wrong is reported with its graph
                pytest.fail(f"seed {seed}, {options}: {type(error).__name__}: {error}\n{graph}")


NUMBERS = count()


def dense(b, x, outer):
    weights = b.constant(f"w{next(NUMBERS)}", normal(b.type_of(x).shape[-1], outer))
    return b.node("MatMul", x, weights)


def test_reshaped_operands_are_written_in_place():
    """The heads of a detector: predictions of several scales, flattened and joined."""
    b = GraphBuilder()
    parts = []
    for size in (4, 2):
        x = b.input(f"x{size}", (1, size, size, 8))
        parts.append(b.node("Reshape", dense(b, x, 6), shape=(1, size * size * 2, 3)))
    joined = b.node("Concat", *parts, axis=1, name="joined")
    parts = check(b.graph(b.node("Softmax", joined, axis=2, name="y")))
    assert all_ops(parts) == [["MatMul"], ["MatMul"], ["Softmax"]]
    (second,) = parts.dispatches[1].outputs
    assert parts.placements[second].root == "joined"
    assert parts.placements[second].offset == 4 * 4 * 6


def test_transposed_operands_are_written_in_place():
    b = GraphBuilder()
    x = b.input("x", (4, 6, 8))
    parts = [b.node("Transpose", dense(b, x, 8), perm=(1, 0, 2)) for _ in range(2)]
    joined = b.node("Concat", *parts, axis=1, name="joined")
    assert all_ops(check(b.graph(b.node("Exp", joined, name="y")))) == [["MatMul"], ["MatMul"], ["Exp"]]


def test_slices_are_read_through_reshapes():
    """Queries, keys and values of one product: a dimension of 3, sliced and squeezed."""
    b = GraphBuilder()
    x = dense(b, b.input("x", (5, 8)), 48)
    x = b.node("Transpose", b.node("Reshape", x, shape=(5, 3, 4, 4)), perm=(1, 2, 0, 3))
    names = ["q", "k", "v"]
    b.nodes("Split", [x], names, axis=0, split=(1, 1, 1))
    outputs = [b.node("Tanh", b.node("Reshape", v, shape=(4, 5, 4)), name=f"{v}.t") for v in names]
    parts = check(b.graph(*outputs))
    assert all_ops(parts) == [["MatMul"], ["Tanh"], ["Tanh"], ["Tanh"]]
    assert parts.dispatches[2].workload.region.graph.types["i0"].strides == (4, 48, 1)


def test_a_reshape_across_a_gap_is_a_copy_of_its_slice():
    b = GraphBuilder()
    x = b.node("Slice", dense(b, b.input("x", (4, 8)), 16), starts=(0,), ends=(8,), axes=(1,))
    y = b.node("Tanh", b.node("Reshape", x, shape=(32,)), name="y")
    assert all_ops(check(b.graph(y))) == [["MatMul"], ["Slice"], ["Tanh"]]


def test_a_merging_reader_keeps_its_value_out_of_a_join_along_the_inner_axis_only():
    def copies(axis):
        b = GraphBuilder()
        x = b.input("x", (4, 8))
        first, second = dense(b, x, 8), dense(b, x, 8)
        flat = b.node("Tanh", b.node("Reshape", second, shape=(32,)), name="flat")
        joined = b.node("Concat", first, second, axis=axis)
        return sum(ops == ["Identity"] for ops in all_ops(check(b.graph(flat, b.node("Exp", joined)))))

    assert copies(axis=1) == 1
    assert copies(axis=0) == 0


def test_an_operand_that_is_joined_twice_is_copied_once():
    b = GraphBuilder()
    x = dense(b, b.input("x", (4, 8)), 8)
    joined = b.node("Concat", x, x, x, axis=1)
    assert all_ops(check(b.graph(b.node("Exp", joined)))) == [["MatMul"], ["Identity"], ["Identity"], ["Exp"]]


def test_bytes_that_are_moved():
    """Joining and slicing along the channels moves nothing: the dispatches read and write what they compute."""
    b = GraphBuilder()
    x = b.input("x", (64, 16))
    joined = b.node("Concat", dense(b, x, 16), dense(b, x, 48), axis=1)
    part = b.node("Slice", joined, starts=(16,), ends=(48,), axes=(1,))
    graph = b.graph(b.node("Exp", part, name="y"))
    in_place = sum(d.workload.bytes for d in partition(graph).dispatches)
    copying = partition(graph, PartitionOptions(views=False, in_place_concat=False))
    moved = 4 * 64 * (64 + 64 + 64 + 32)  # arguments of the Concat and the Slice that would copy
    assert sum(d.workload.bytes for d in copying.dispatches) == in_place + moved


def test_the_text_says_what_costs_nothing():
    b = GraphBuilder()
    x = b.input("x", (4, 8))
    joined = b.node("Concat", b.node("Tanh", x, name="t"), x, axis=1, name="joined")
    part = b.node("Slice", joined, starts=(4,), ends=(12,), axes=(1,), name="part")
    parts = partition(b.graph(b.node("Exp", part, name="y")))
    assert str(parts).splitlines()[-3:] == [
        "  joined = Concat(t, x) in place, copies x; 128 bytes not moved",
        "  part = Slice(joined) in place; 128 bytes not moved",
        "}",
    ]


def test_constants_are_read_through_views():
    b = GraphBuilder()
    k = b.node("Reshape", b.constant("k", normal(4, 6)), shape=(6, 4))
    parts = check(b.graph(b.node("Slice", k, starts=(0,), ends=(2,), axes=(1,), name="y")))
    assert np.array_equal(parts.constants["k"], normal(4, 6))
