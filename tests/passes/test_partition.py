"""Dispatches: every node in one, in a legal order, with values where the placements say."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import UsageError
from autotune.frontends import zoo_built
from autotune.frontends.onnx.importer import load
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.verify import verify
from autotune.passes.fusion.fuse import FusionOptions
from autotune.passes.layout.views import view_kind
from autotune.passes.partition import PartitionOptions, partition
from autotune.passes.pipeline import run_passes, standard_passes


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ops_of(dispatch):
    return [node.op for node in dispatch.region.graph.nodes]


def all_ops(parts):
    return [ops_of(d) for d in parts.dispatches]


def place(memory, placement, array_type):
    root = memory[placement.root]
    steps = [stride * root.itemsize for stride in placement.strides]
    return np.lib.stride_tricks.as_strided(root[placement.offset :], array_type.shape, steps)


def simulate(parts, inputs):
    """Run the dispatches in NumPy on the memory that the placements describe."""
    roots = {p.root for p in parts.placements.values()}
    memory = {}
    for root in roots:
        found = parts.types[root]
        source = inputs.get(root, parts.constants.get(root))
        if source is None:
            source = np.full(found.shape, 77, found.dtype)
        memory[root] = np.ascontiguousarray(source).reshape(-1).copy()
    for dispatch in parts.dispatches:
        arrays = [place(memory, parts.placements[v], parts.types[v]) for v in dispatch.inputs]
        results = dispatch.workload.reference([a.copy() for a in arrays])
        for value, result in zip(dispatch.outputs, results, strict=True):
            place(memory, parts.placements[value], parts.types[value])[...] = result
    return {v: place(memory, parts.placements[v], parts.types[v]) for v in parts.outputs}


def check(graph, options=None):
    """Partition a graph and check all that must hold for any graph."""
    parts = partition(graph, options)
    inputs = {v: normal(*graph.types[v].shape, seed=i) for i, v in enumerate(graph.inputs)}
    expected, results = evaluate.run(graph, inputs), simulate(parts, inputs)
    for name, want in expected.items():
        np.testing.assert_allclose(results[name], want, rtol=1e-4, atol=1e-5)
    made = [v for d in parts.dispatches for n in d.region.graph.nodes for v in n.outputs]
    assert len(made) == len(set(made))  # no node is in two dispatches
    computed = {n.outputs[0] for n in graph.nodes if view_kind(n) != "reshape"}
    views = computed - set(made)
    assert all(graph.producers()[v].op in ("Transpose", "Concat", "Slice", "Split") for v in views
               if f"{v}.shared" not in made)  # fmt: skip
    seen = set()
    for dispatch in parts.dispatches:
        graph_inputs = dispatch.workload.region.graph.inputs
        assert len(dispatch.inputs) == len(graph_inputs)
        for value, canonical in zip(dispatch.inputs, graph_inputs, strict=True):
            assert parts.types[value].shape == dispatch.workload.region.graph.types[canonical].shape
        seen.update(dispatch.outputs)
    for value, placement in parts.placements.items():
        root = parts.types[placement.root]
        last = placement.offset + sum(
            (d - 1) * s for d, s in zip(parts.types[value].shape, placement.strides, strict=True)
        )
        assert 0 <= placement.offset <= last < math.prod(root.shape)
    output_roots = [parts.placements[v].root for v in parts.outputs]
    assert len(set(output_roots)) == len(output_roots)
    assert not set(output_roots) & {*parts.inputs, *parts.constants}
    return parts


MODELS = {
    "tiny_cnn": zoo_built.tiny_cnn,
    "mlp": lambda: zoo_built.mlp(batch=2, sizes=(8, 16, 4)),
    "encoder": lambda: zoo_built.encoder(layers=1, width=16, heads=2, sequence=6, hidden=32),
}


@pytest.mark.parametrize("views", [True, False])
@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_models(name, fuse, views):
    graph = run_passes(load(MODELS[name]()), standard_passes())
    parts = check(graph, PartitionOptions(FusionOptions(fuse), views, views))
    again = partition(graph, PartitionOptions(FusionOptions(fuse), views, views))
    assert [d.workload.key for d in again.dispatches] == [d.workload.key for d in parts.dispatches]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "densenet121", "inception_v1"])
def test_large_models(name):
    check(run_passes(load(f"zoo:{name}"), standard_passes()))


# --- fusion ---------------------------------------------------------------------------------------


def test_anchor_takes_in_its_epilogue():
    b = GraphBuilder()
    x = b.node("MatMul", b.input("x", (4, 8)), b.constant("w", normal(8, 6)))
    x = b.node("Add", x, b.constant("bias", normal(6)))
    x = b.node("Add", x, b.input("residual", (4, 6)))
    parts = check(b.graph(b.node("Relu", x, name="y")))
    assert all_ops(parts) == [["MatMul", "Add", "Add", "Relu"]]
    assert parts.dispatches[0].workload.kind == "contraction"
    assert len(parts.dispatches[0].workload.region.constant_inputs) == 2


def test_without_fusion_every_node_is_a_dispatch():
    b = GraphBuilder()
    x = b.node("MatMul", b.input("x", (4, 8)), b.constant("w", normal(8, 6)))
    graph = b.graph(b.node("Relu", x, name="y"))
    assert all_ops(check(graph, PartitionOptions(FusionOptions(epilogues=False)))) == [["MatMul"], ["Relu"]]


def test_diamonds_are_taken_in_whole():
    b = GraphBuilder()
    x = b.node("MatMul", b.input("x", (4, 8)), b.constant("w", normal(8, 6)))
    y = b.node("Mul", x, b.node("Sigmoid", x), name="y")
    assert all_ops(check(b.graph(y))) == [["MatMul", "Sigmoid", "Mul"]]


def test_a_value_that_is_read_elsewhere_ends_the_region():
    b = GraphBuilder()
    x = b.node("MatMul", b.input("x", (4, 8)), b.constant("w", normal(8, 8)))
    z = b.node("MatMul", x, b.constant("w2", normal(8, 8)), name="z")
    y = b.node("Relu", x, name="y")
    assert sorted(all_ops(check(b.graph(y, z)))) == [["MatMul"], ["MatMul"], ["Relu"]]


def test_an_output_ends_the_region():
    b = GraphBuilder()
    x = b.node("MatMul", b.input("x", (4, 8)), b.constant("w", normal(8, 6)), name="x1")
    assert all_ops(check(b.graph(x, b.node("Relu", x, name="y")))) == [["MatMul"], ["Relu"]]


def test_the_later_branch_takes_in_the_addition():
    b = GraphBuilder()
    x = b.input("x", (4, 8))
    first = b.node("MatMul", x, b.constant("w1", normal(8, 8)))
    second = b.node("MatMul", b.node("Relu", first), b.constant("w2", normal(8, 8)))
    skip = b.node("MatMul", x, b.constant("w3", normal(8, 8)))
    y = b.node("Add", skip, second, name="y")
    assert sorted(all_ops(check(b.graph(y)))) == [["MatMul"], ["MatMul", "Add"], ["MatMul", "Relu"]]


def test_broadcasting_up_is_not_an_epilogue():
    b = GraphBuilder()
    x = b.node("ReduceMean", b.input("x", (4, 8)), axes=(1,), keepdims=1)
    y = b.node("Sub", b.input("z", (4, 8)), x, name="y")
    assert all_ops(check(b.graph(y))) == [["ReduceMean"], ["Sub"]]


def test_elementwise_chains_share_a_dispatch():
    b = GraphBuilder()
    x = b.node("Exp", b.node("Neg", b.input("x", (4, 5, 8))))
    x = b.node("Transpose", x, perm=(2, 0, 1))
    assert all_ops(check(b.graph(b.node("Relu", x, name="y")))) == [["Neg", "Exp", "Transpose", "Relu"]]


def test_limits_bound_a_region():
    b = GraphBuilder()
    x = b.input("x", (4, 8))
    for _ in range(10):
        x = b.node("Exp", b.node("Tanh", x))
    graph = b.graph(b.node("Relu", x, name="y"))
    parts = check(graph, PartitionOptions(FusionOptions(max_nodes=8)))
    assert [len(ops) for ops in all_ops(parts)] == [8, 8, 5]


def test_equal_regions_are_one_workload():
    b = GraphBuilder()
    x = b.input("x", (4, 8))
    for i in range(3):
        x = b.node("Relu", b.node("MatMul", x, b.constant(f"w{i}", normal(8, 8))))
    parts = check(b.graph(x))
    assert len({d.workload.key for d in parts.dispatches}) == 1
    assert [d.name for d in parts.dispatches] == [f"00{i}_matmul_relu" for i in range(3)]


# --- views ----------------------------------------------------------------------------------------


def test_reshapes_cost_nothing():
    b = GraphBuilder()
    x = b.node("Reshape", b.node("Exp", b.input("x", (4, 6))), shape=(2, 2, 6))
    x = b.node("Flatten", b.node("Softmax", x, axis=-1), axis=1)
    assert all_ops(check(b.graph(x))) == [["Exp"], ["Softmax"]]


def test_a_transpose_that_keeps_the_last_axis_is_read_through_strides():
    b = GraphBuilder()
    x = b.node("Transpose", b.input("x", (4, 6, 8)), perm=(1, 0, 2))
    y = b.node("MatMul", x, b.constant("w", normal(8, 8)), name="y")
    parts = check(b.graph(y))
    assert all_ops(parts) == [["MatMul"]]
    assert parts.dispatches[0].workload.region.graph.types["i0"].strides == (8, 48, 1)


def test_a_transpose_before_a_reshape_is_written_through_strides():
    b = GraphBuilder()
    x = b.node("MatMul", b.input("x", (2, 4, 8)), b.constant("w", normal(8, 8)))
    x = b.node("Transpose", x, perm=(1, 0, 2))
    y = b.node("Reshape", x, shape=(4, 16), name="y")
    parts = check(b.graph(y))
    assert all_ops(parts) == [["MatMul"]]
    assert parts.dispatches[0].workload.region.graph.types["v0"].strides == (8, 16, 1)


def test_slices_and_splits_are_read_in_place():
    b = GraphBuilder()
    x = b.node("Exp", b.input("x", (4, 64)))
    b.nodes("Split", [x], ["a", "b"], axis=1, split=(16, 48))
    c = b.node("Slice", x, starts=(1,), ends=(4,), axes=(0,), steps=(2,))
    y = b.node("Softmax", "b", axis=1, name="y")
    parts = check(b.graph(y, b.node("Relu", c, name="z"), b.node("Tanh", "a", name="t")))
    assert sorted(all_ops(parts)) == [["Exp"], ["Relu"], ["Softmax"], ["Tanh"]]


def join(b, *operands, name="joined"):
    return b.node("Concat", *operands, axis=-1, name=name)


def dense(b, x, outer, name):
    inner = b.type_of(x).shape[-1]
    return b.node("MatMul", x, b.constant(f"{name}.w", normal(inner, outer)), name=name)


def test_operands_are_written_into_their_concatenation():
    b = GraphBuilder()
    x = b.input("x", (4, 8))
    y = b.node("Softmax", join(b, dense(b, x, 16, "a"), dense(b, x, 32, "c")), name="y")
    parts = check(b.graph(y))
    assert all_ops(parts) == [["MatMul"], ["MatMul"], ["Softmax"]]
    assert parts.placements["c"].root == "joined"
    assert (parts.placements["c"].offset, parts.placements["c"].strides) == (16, (48, 1))


def test_nested_concatenations_share_one_memory():
    b = GraphBuilder()
    x = dense(b, b.input("x", (4, 8)), 16, "a")
    for i in range(3):
        x = join(b, x, dense(b, x, 16, f"d{i}"), name=f"join{i}")
    parts = check(b.graph(b.node("Exp", x, name="y")))
    assert all_ops(parts) == [["MatMul"]] * 4 + [["Exp"]]
    assert {parts.placements[v].root for v in ("a", "d0", "d1", "join0", "join1")} == {"join2"}


@pytest.mark.parametrize("case", ["input", "constant", "twice", "output", "merged"])
def test_operands_that_cannot_be_written_in_place_are_copied(case):
    b = GraphBuilder()
    x = b.input("x", (4, 16))
    first = dense(b, x, 16, "a")
    outputs = []
    if case == "input":
        second = x
    elif case == "constant":
        second = b.constant("k", normal(4, 16))
    elif case == "twice":
        first = second = dense(b, x, 16, "t")
    else:
        second = dense(b, x, 16, "e")
    if case == "output":
        outputs.append(second)
    if case == "merged":
        outputs.append(b.node("Exp", b.node("Reshape", second, shape=(64,)), name="r"))
    joined = join(b, first, second)
    parts = check(b.graph(b.node("Tanh", joined, name="y"), *outputs))
    copies = [ops for ops in all_ops(parts) if ops in (["Identity"], ["Concat"])]
    assert copies == [["Identity"]]


def test_joining_along_the_first_axis():
    b = GraphBuilder()
    x = b.input("x", (4, 16))
    joined = b.node("Concat", dense(b, x, 16, "a"), dense(b, x, 16, "c"), axis=0)
    parts = check(b.graph(b.node("Exp", joined, name="y")))
    assert all_ops(parts) == [["MatMul"], ["MatMul"], ["Exp"]]
    assert len({d.workload.key for d in parts.dispatches}) == 2  # dense: no strides in the way


def test_outputs_never_share_memory():
    b = GraphBuilder()
    x = b.input("x", (4, 6))
    exp = b.node("Exp", x, name="e")
    outputs = [
        exp,
        b.node("Reshape", exp, shape=(24,), name="flat"),
        b.node("Reshape", x, shape=(6, 4), name="same_as_input"),
        b.node("Slice", exp, starts=(0,), ends=(2,), name="part"),
        b.node("Transpose", b.node("Neg", exp), perm=(1, 0), name="turned"),
    ]
    check(b.graph(*outputs))


def test_outputs_without_operation_are_copied_and_keep_their_names():
    b = GraphBuilder()
    x = b.input("x", (4, 6))
    parts = partition(b.graph(x, b.node("Exp", x, name="y"), "y"))
    assert parts.output_names == ("x", "y", "y")
    assert parts.outputs == ("x.copy", "y", "y.copy")
    assert [d.inputs for d in parts.dispatches if "identity" in d.name] == [("x",), ("y",)]


# --- any graph ------------------------------------------------------------------------------------


@st.composite
def graphs(draw):
    """Random graphs of [2, rows, 16 * k] values: everything that views and fusion care about."""
    b = GraphBuilder()
    values = [b.input("x", (2, 3, 16)), b.input("z", (2, 3, 32))]
    for i in range(draw(st.integers(1, 14))):
        x = draw(st.sampled_from(values))
        shape = b.type_of(x).shape
        kind = draw(st.integers(0, 9))
        if kind <= 1:
            new = b.node(draw(st.sampled_from(["Tanh", "Neg", "Sigmoid"])), x)
        elif kind == 2:
            same = [v for v in values if b.type_of(v).shape == shape]
            new = b.node("Add", x, draw(st.sampled_from(same)))
        elif kind == 3:
            outer = 16 * draw(st.integers(1, 3))
            new = b.node("MatMul", x, b.constant(f"w{i}", normal(shape[-1], outer, seed=i) / 4))
        elif kind == 4:
            same = [v for v in values if b.type_of(v).shape[:2] == shape[:2]]
            others = draw(st.lists(st.sampled_from(same), min_size=1, max_size=2))
            new = b.node("Concat", x, *others, axis=2)
        elif kind == 5:
            new = b.node("Transpose", x, perm=draw(st.sampled_from([(1, 0, 2), (0, 2, 1)])))
        elif kind == 6:
            flat = b.node("Reshape", x, shape=(shape[0] * shape[1], shape[2]))
            flat = b.node("Exp", b.node("Neg", b.node("Abs", flat)))
            new = b.node("Reshape", flat, shape=shape)
        elif kind == 7:
            new = b.node("Softmax", x, axis=draw(st.sampled_from([1, 2])))
        elif kind == 8 and shape[2] % 2 == 0:
            half = shape[2] // 2
            new = b.nodes("Split", [x], [f"s{i}", f"t{i}"], axis=2, split=(half, half))[1]
        else:
            new = b.node("Slice", x, starts=(1,), ends=(shape[1],), axes=(1,)) if shape[1] > 1 else x
        values.append(new)
    made = values[2:]
    outputs = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True))
    outputs = [v for v in outputs if v not in ("x", "z")]
    return b.graph(*outputs).pruned() if outputs else b.graph(b.node("Exp", "x"))


@settings(max_examples=120, deadline=None)
@given(graphs(), st.booleans())
def test_any_graph(graph, fuse):
    verify(graph)
    check(graph, PartitionOptions(FusionOptions(fuse)))


def test_columns_are_woven_in_place():
    b = GraphBuilder()
    x = b.input("x", (4, 8))
    columns = [b.node("Reshape", dense(b, x, 16, f"a{i}"), shape=(4, 16, 1)) for i in range(3)]
    woven = b.node("Concat", *columns, axis=2, name="woven")
    y = b.node("Exp", b.node("Reshape", woven, shape=(4, 48)), name="y")
    parts = check(b.graph(y))
    assert all_ops(parts) == [["MatMul"]] * 3 + [["Exp"]]
    assert (parts.placements["a1"].offset, parts.placements["a1"].strides) == (1, (48, 3))


@pytest.mark.parametrize(
    ("producers", "expected"),
    [
        ("none", [["Transpose"], ["Mul", "Relu"], ["Conv", "Exp"]]),
        ("transpose", [["Transpose"], ["Mul", "Relu"], ["Conv", "Exp"]]),
        ("elementwise", [["Transpose"], ["Mul", "Relu", "Conv", "Exp"]]),
    ],
)
def test_what_a_convolution_takes_in_before_it(producers, expected):
    b = GraphBuilder()
    x = b.node("Transpose", b.input("x", (1, 4, 6, 6)), perm=(0, 2, 3, 1), name="t")
    x = b.node("Relu", b.node("Mul", x, b.constant("s", normal(4))))
    x = b.node("Conv", x, b.constant("w", normal(3, 3, 4, 8)), layout="NHWC")
    graph = b.graph(b.node("Exp", x, name="y"), b.node("Softmax", "t", name="z"))
    parts = check(graph, PartitionOptions(FusionOptions(producers=producers)))
    assert [ops for ops in all_ops(parts) if ops != ["Softmax"]] == expected


def test_a_transpose_joins_the_convolution_after_it():
    b = GraphBuilder()
    x = b.node("Transpose", b.input("x", (1, 4, 6, 6)), perm=(0, 2, 3, 1))
    y = b.node("Conv", x, b.constant("w", normal(3, 3, 4, 8)), layout="NHWC", name="y")
    assert all_ops(check(b.graph(y))) == [["Transpose", "Conv"]]


def test_an_operation_between_two_anchors_ends_the_first():
    b = GraphBuilder()
    x, w = b.input("x", (1, 6, 6, 4)), [b.constant(f"w{i}", normal(1, 1, 4, 4)) for i in range(2)]
    x = b.node("Relu", b.node("Conv", x, w[0], layout="NHWC"))
    y = b.node("Conv", x, w[1], layout="NHWC", name="y")
    parts = check(b.graph(y), PartitionOptions(FusionOptions(producers="elementwise")))
    assert all_ops(parts) == [["Conv", "Relu"], ["Conv"]]


def test_a_reduction_takes_in_what_prepares_it():
    b = GraphBuilder("norm")
    x = b.input("x", (4, 6))
    total = b.node("ReduceSum", b.node("Mul", x, x), axes=(1,), keepdims=0)
    assert all_ops(check(b.graph(b.node("Sqrt", total)))) == [["Mul", "ReduceSum", "Sqrt"]]


def test_unknown_choice_of_producers():
    with pytest.raises(UsageError, match="unknown choice of producers 'all'"):
        FusionOptions(producers="all")
