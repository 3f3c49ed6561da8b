"""Each pass: what it does, and that it computes the same numbers."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from autotune import library, passes
from autotune.errors import InternalError, UsageError
from autotune.frontends import zoo_built
from autotune.frontends.onnx.importer import load
from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.verify import verify
from autotune.passes.algorithms.split_groups import SplitGroups
from autotune.passes.algorithms.winograd import Winograd
from autotune.passes.base import GraphPass
from autotune.passes.canonical.common_subexpressions import CommonSubexpressions
from autotune.passes.canonical.dead_code import DeadCode
from autotune.passes.canonical.explicit_bias import ExplicitBias
from autotune.passes.canonical.fold_affine import FoldAffine
from autotune.passes.canonical.fold_batch_norm import FoldBatchNorm
from autotune.passes.canonical.fold_constants import FoldConstants
from autotune.passes.canonical.simplify import Simplify
from autotune.passes.canonical.sink_shuffles import SinkShuffles
from autotune.passes.layout.convert_layout import ConvertLayout
from autotune.passes.layout.group_axis import GroupAxis
from autotune.passes.options import rules
from autotune.passes.partition import partition
from autotune.passes.pipeline import placed_passes, run_passes, standard_passes
from autotune.passes.placement.device_rules import NO_RULES

rng = np.random.default_rng(0)


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def run(graph):
    inputs = {
        name: np.random.default_rng(1)
        .standard_normal(graph.types[name].shape)
        .astype(graph.types[name].dtype)
        for name in graph.inputs
    }
    return evaluate.run(graph, inputs)


def apply(graph, *passes):
    """Apply passes; check rules, interface and numbers after each."""
    expected = run(graph)
    for graph_pass in passes:
        changed = graph_pass.apply(graph)
        verify(changed)
        assert (changed.inputs, changed.outputs) == (graph.inputs, graph.outputs)
        results = run(changed)
        for name, want in expected.items():
            assert results[name].shape == want.shape
            np.testing.assert_allclose(results[name], want, rtol=1e-4, atol=1e-5)
        graph = changed
    return graph


def ops_of(graph):
    return [node.op for node in graph.nodes]


MODELS = {
    "tiny_cnn": zoo_built.tiny_cnn,
    "mlp": lambda: zoo_built.mlp(batch=2, sizes=(8, 16, 4)),
    "encoder": lambda: zoo_built.encoder(layers=1, width=16, heads=2, sequence=6, hidden=32),
    "mobilenetv2": lambda: zoo_built.mobilenetv2(size=32),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_pipeline_preserves_numbers(name):
    apply(load(MODELS[name]()), *standard_passes())


def test_the_pipeline_without_another_layout():
    graph = apply(load(MODELS["tiny_cnn"]()), *standard_passes("NCHW"))
    assert "Transpose" not in ops_of(graph)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "densenet121", "inception_v1"])
def test_the_pipeline_preserves_numbers_of_large_models(name):
    apply(load(f"zoo:{name}"), *standard_passes())


@pytest.mark.parametrize("name", ["tiny_cnn", "encoder"])
def test_the_pipeline_is_idempotent(name):
    once = run_passes(load(MODELS[name]()), standard_passes())
    twice = run_passes(once, standard_passes())
    assert ops_of(twice) == ops_of(once)


# --- the driver -----------------------------------------------------------------------------------


def test_every_pass_is_used_and_has_a_file_of_its_name():
    library.register(
        "any_relu", SimpleNamespace(address=1), operation="Relu", arguments=lambda types, attrs: ()
    )
    used = (*placed_passes(NO_RULES), *rules())
    library.unregister("any_relu")
    files = {path.stem: path.read_text(encoding="utf-8") for path in Path(passes.__path__[0]).rglob("*.py")}
    defined = {name for name, text in files.items() if re.search(r"class \w+\((GraphPass|Algorithm)\)", text)}
    assert {p.name for p in used} == defined - {"base"}
    assert all(type(p).__module__.rpartition(".")[2] == p.name for p in used)


def test_observer_and_dump(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOTUNE_DUMP", str(tmp_path))
    records = []
    run_passes(load(MODELS["mlp"]()), standard_passes(), lambda record, graph: records.append(record))
    assert [r.name for r in records] == [str(p) for p in standard_passes()]
    files = sorted(p.name for p in (tmp_path / "mlp").iterdir())
    assert files.pop() == "constants.npz"
    assert files[:2] == ["00_input.txt", "01_empty_tensors.txt"]
    assert len(files) == 1 + len(records)
    assert "Gemm" in (tmp_path / "mlp" / "00_input.txt").read_text()


def test_options_show_in_the_name_of_a_pass():
    assert str(ConvertLayout()) == "convert_layout"
    assert str(ConvertLayout("NCHW")) == "convert_layout{layout=NCHW}"
    with pytest.raises(UsageError, match="unknown layout 'NHCW'"):
        ConvertLayout("NHCW")


class Breaks(GraphPass):
    name = "breaks"

    def apply(self, graph):
        return graph.replace(nodes=tuple(reversed(graph.nodes)))


def test_a_broken_graph_names_the_pass():
    with pytest.raises(InternalError, match="pass breaks left a broken graph"):
        run_passes(load(MODELS["mlp"]()), [Breaks()])


# --- fold_constants, dead_code, common_subexpressions ---------------------------------------------


def test_constant_subgraphs_are_folded():
    b = GraphBuilder()
    x, w = b.input("x", (2, 3)), b.constant("w", normal(4, 3))
    b.node("MatMul", x, b.node("Transpose", w, name="t"), name="y")
    assert ops_of(apply(b.graph("y"), FoldConstants())) == ["MatMul"]


def test_shapes_of_computed_values_are_constants():
    b = GraphBuilder()
    size = b.node("Shape", b.node("Relu", b.input("x", (2, 3))), start=1)
    graph = apply(b.graph(b.node("Cast", size, to="float32", name="y")), FoldConstants())
    (output,) = graph.nodes
    assert output.op == "Identity"
    np.testing.assert_array_equal(graph.constants[output.inputs[0]], np.array([3], np.float32))


def test_constants_that_grow_too_much_are_kept():
    b = GraphBuilder()
    x, w = b.input("x", (64, 1, 8)), b.constant("w", normal(1, 8))
    b.node("Add", x, b.node("Expand", w, shape=(64, 64, 8), name="e"), name="y")
    assert ops_of(apply(b.graph("y"), FoldConstants(max_growth_bytes=1000))) == ["Expand", "Add"]
    assert ops_of(apply(b.graph("y"), FoldConstants())) == ["Add"]


def test_an_output_that_is_constant_stays_an_output():
    b = GraphBuilder()
    b.node("Relu", b.constant("w", normal(3)), name="y")
    b.node("Relu", b.input("x", (3,)), name="z")
    graph = apply(b.graph("y", "z"), FoldConstants(), Simplify(), FoldConstants())
    assert graph.outputs == ("y", "z")


def test_dead_code():
    b = GraphBuilder()
    x = b.input("x", (3,))
    b.node("Exp", x, name="unused")
    graph = b.graph(b.node("Relu", x, name="y"))
    assert ops_of(apply(graph, DeadCode())) == ["Relu"]
    alive = apply(graph, DeadCode())
    assert DeadCode().apply(alive) is alive


def test_common_subexpressions():
    b = GraphBuilder()
    x = b.input("x", (3,))
    one, two = b.constant("one", normal(3)), None
    two = b.constant("two", b.graph("one").constants["one"].copy())
    first, second = b.node("Add", x, one, name="a"), b.node("Add", x, two, name="b")
    b.node("Mul", b.node("Exp", first, name="c"), b.node("Exp", second, name="d"), name="y")
    graph = apply(b.graph("y"), CommonSubexpressions())
    assert ops_of(graph) == ["Add", "Exp", "Mul"]
    assert len(graph.constants) == 1


def test_equal_outputs_both_stay():
    b = GraphBuilder()
    x = b.input("x", (3,))
    b.node("Exp", x, name="a"), b.node("Exp", x, name="b")
    assert apply(b.graph("a", "b"), CommonSubexpressions()).outputs == ("a", "b")


# --- simplify -------------------------------------------------------------------------------------


def simplified(build, *shape):
    b = GraphBuilder()
    return ops_of(apply(b.graph(build(b, b.input("x", shape))), Simplify()))


def test_operations_that_do_nothing_vanish():
    def build(b, x):
        x = b.node("Identity", x)
        x = b.node("Dropout", x)
        x = b.node("Mul", b.constant("one", np.float32(1)), x)
        x = b.node("Add", x, b.constant("zero", np.zeros((1, 3), np.float32)))
        x = b.node("Pad", x, pads=(0, 0, 0, 0))
        x = b.node("Slice", x, starts=(0,), ends=(99,), axes=(0,))
        x = b.node("Cast", x, to="float32")
        x = b.node("Transpose", x, perm=(0, 1))
        x = b.node("Sum", x)
        return b.node("Relu", x, name="y")

    assert simplified(build, 2, 3) == ["Relu"]


def test_neutral_constants_that_broadcast_are_kept():
    def build(b, x):
        return b.node("Mul", x, b.constant("ones", np.ones((4, 3), np.float32)), name="y")

    assert simplified(build, 1, 3) == ["Mul"]


@pytest.mark.parametrize("kept", [True, False])
def test_a_selection_that_always_takes_one_side(kept):
    def build(b, x):
        flags = b.constant("flags", np.full((3, 1), kept))
        sides = [b.node("Relu", x), b.constant("zero", np.zeros(1, np.float32))]
        y = b.node("Where", flags, *(sides if kept else sides[::-1]))
        return b.node("Exp", y, name="y")

    assert simplified(build, 3, 4) == ["Relu", "Exp"]


def test_nothing_left_but_a_copy_of_the_input():
    assert simplified(lambda b, x: b.node("Identity", x, name="y"), 2, 3) == ["Identity"]


def test_reshapes_become_one():
    def build(b, x):
        x = b.node("Flatten", x, axis=2)
        x = b.node("Unsqueeze", x, axes=(0,))
        return b.node("Relu", b.node("Reshape", x, shape=(4, 3, 2)), name="y")

    assert simplified(build, 2, 3, 4) == ["Reshape", "Relu"]


def test_reshapes_that_cancel_vanish():
    def build(b, x):
        x = b.node("Reshape", b.node("Reshape", x, shape=(6, 4)), shape=(2, 3, 4))
        return b.node("Relu", x, name="y")

    assert simplified(build, 2, 3, 4) == ["Relu"]


def test_transposes_become_one_or_none():
    def twice(second):
        def build(b, x):
            x = b.node("Transpose", b.node("Transpose", x, perm=(0, 2, 3, 1)), perm=second)
            return b.node("Relu", x, name="y")

        return build

    assert simplified(twice((0, 3, 1, 2)), 2, 3, 4, 5) == ["Relu"]
    assert simplified(twice((3, 2, 1, 0)), 2, 3, 4, 5) == ["Transpose", "Relu"]


def test_transpose_of_unit_dimensions_is_a_reshape():
    def build(b, x):
        return b.node("Transpose", x, perm=(0, 3, 1, 2), name="y")

    assert simplified(build, 2, 1, 1, 8) == ["Reshape"]


@pytest.mark.parametrize("shape", [(1, 12, 4, 5), (2, 6, 3)])
def test_channel_shuffle_is_recognised(shape):
    def build(b, x):
        rank = len(shape)
        x = b.node("Reshape", x, shape=(shape[0], 3, shape[1] // 3, *shape[2:]))
        x = b.node("Transpose", x, perm=(0, 2, 1, *range(3, rank + 1)))
        return b.node("Reshape", x, shape=shape, name="y")

    assert simplified(build, *shape) == ["ChannelShuffle"]


def test_padding_joins_the_convolution():
    b = GraphBuilder()
    x = b.node("Pad", b.input("x", (1, 2, 5, 5)), pads=(0, 0, 1, 0, 0, 0, 2, 1))
    b.node("Conv", x, b.constant("w", normal(3, 2, 3, 3)), pads=(1, 1, 1, 1), name="y")
    graph = apply(b.graph("y"), Simplify())
    assert ops_of(graph) == ["Conv"]
    assert graph.nodes[0].attrs["pads"] == (2, 1, 3, 2)


@pytest.mark.parametrize(
    ("power", "op"), [(1.0, "Relu"), (2.0, "Mul"), (3.0, "Mul"), (0.5, "Sqrt"), (4.0, "Pow")]
)
def test_simple_powers(power, op):
    def build(b, x):
        x = b.node("Exp", x)
        return b.node("Relu", b.node("Pow", x, b.constant("p", np.float32(power))), name="y")

    assert op in simplified(build, 2, 3)


def test_the_root_of_minus_infinity_as_a_power_is_infinity():
    b = GraphBuilder()
    x = b.input("x", (4,))
    graph = Simplify().apply(b.graph(b.node("Pow", x, b.constant("p", np.float32(0.5)), name="y")))
    found = evaluate.run(graph, {"x": np.array([-np.inf, np.inf, 4, np.nan], np.float32)})["y"]
    np.testing.assert_array_equal(found, np.array([np.inf, np.inf, 2, np.nan], np.float32))


# --- explicit_bias, fold_batch_norm, fold_affine --------------------------------------------------


@pytest.mark.parametrize("trans", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_gemm_becomes_matmul_and_add(trans, scale):
    b = GraphBuilder()
    a = b.input("a", (4, 3) if trans[0] else (3, 4))
    w = b.constant("w", normal(5, 4) if trans[1] else normal(4, 5))
    c = b.constant("c", normal(5))
    b.node("Gemm", a, w, c, transA=trans[0], transB=trans[1], alpha=scale, beta=2.0, name="y")
    ops = ops_of(apply(b.graph("y"), ExplicitBias()))
    assert ops == ["Transpose"] * trans[0] + ["MatMul"] + ["Mul"] * (scale != 1) + ["Add"]


def test_gemm_of_two_variables_keeps_its_transposition():
    b = GraphBuilder()
    b.node("Gemm", b.input("a", (3, 4)), b.input("w", (5, 4)), transB=1, name="y")
    assert ops_of(apply(b.graph("y"), ExplicitBias())) == ["Gemm"]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("biased", [False, True])
def test_a_convolution_of_one_tap_and_one_channel_a_group_is_a_product(layout, biased):
    b = GraphBuilder()
    x = b.input("x", (2, 3, 4, 5) if layout == "NCHW" else (2, 4, 5, 3))
    weights = normal(3, 1, 1, 1) if layout == "NCHW" else normal(1, 1, 1, 3)
    operands = [b.constant("w", weights), *([b.constant("b", normal(3))] if biased else [])]
    b.node("Conv", x, *operands, group=3, layout=layout, name="y")
    assert ops_of(apply(b.graph("y"), ExplicitBias())) == ["Mul", "Add"][: 1 + biased]


def test_such_a_convolution_vanishes_into_the_one_before_it():
    b = GraphBuilder()
    x = b.node("Conv", b.input("x", (1, 2, 5, 5)), b.constant("w", normal(3, 2, 3, 3)))
    b.node("Conv", x, b.constant("v", normal(3, 1, 1, 1)), group=3, name="y")
    assert ops_of(apply(b.graph("y"), *AFFINE)) == ["Conv"]


@pytest.mark.parametrize("attrs", [{"strides": (2, 1)}, {"pads": (0, 0, 1, 0)}])
def test_strides_and_padding_are_no_products(attrs):
    b = GraphBuilder()
    b.node(
        "Conv", b.input("x", (1, 3, 4, 4)), b.constant("w", normal(3, 1, 1, 1)), group=3, name="y", **attrs
    )
    assert ops_of(apply(b.graph("y"), ExplicitBias())) == ["Conv"]


def batch_norm(b, x, channels, name="norm"):
    scale, shift, mean = (b.constant(f"{name}.{i}", normal(channels)) for i in range(3))
    var = b.constant(f"{name}.var", rng.uniform(0.5, 2, channels).astype(np.float32))
    return b.node("BatchNormalization", x, scale, shift, mean, var, name=name)


AFFINE = (ExplicitBias(), FoldBatchNorm(), FoldAffine())


def test_batch_norm_vanishes_into_a_convolution():
    b = GraphBuilder()
    x = b.input("x", (1, 2, 5, 5))
    x = b.node("Conv", x, b.constant("w", normal(3, 2, 3, 3)), b.constant("b", normal(3)))
    b.node("Relu", batch_norm(b, x, 3), name="y")
    assert ops_of(apply(b.graph("y"), *AFFINE)) == ["Conv", "Add", "Relu"]


def test_batch_norm_vanishes_into_a_matrix():
    b = GraphBuilder()
    x = b.node("MatMul", b.input("x", (4, 2)), b.constant("w", normal(2, 3)))
    b.node("Relu", batch_norm(b, x, 3), name="y")
    assert ops_of(apply(b.graph("y"), *AFFINE)) == ["MatMul", "Add", "Relu"]


@pytest.mark.parametrize("pooled", [False, True])
def test_batch_norms_alone_are_scales_and_shifts(pooled):
    """Of what sums made they are one: it was rounded in some order before."""
    b = GraphBuilder()
    x = b.input("x", (2, 3, 4, 4))
    x = b.node("GlobalAveragePool", x) if pooled else x
    x = batch_norm(b, x, 3, "first")
    b.node("Relu", batch_norm(b, x, 3, "second"), name="y")
    scaled = ["Mul", "Add"] if pooled else ["Mul", "Add", "Mul", "Add"]
    assert ops_of(apply(b.graph("y"), *AFFINE))[pooled:] == [*scaled, "Relu"]


@pytest.mark.parametrize("ops", [("Add", "Add"), ("Mul", "Mul"), ("Add", "Mul")])
def test_numbers_that_no_sum_made_are_computed_as_written(ops):
    """A model that rounds behind them depends on each bit."""
    b = GraphBuilder()
    x = b.node("Cast", b.input("x", (64, 8), "int32"), to="float32")
    for number, op in enumerate(ops):
        x = b.node(op, x, b.constant(f"c{number}", normal(8)))
    graph = b.graph(x)
    given = {"x": rng.integers(-(1 << 20), 1 << 20, (64, 8)).astype(np.int32)}
    (wanted,), (found,) = (evaluate.run(g, given).values() for g in (graph, FoldAffine().apply(graph)))
    np.testing.assert_array_equal(found, wanted)


def test_weights_with_two_readers_of_the_result_stay():
    b = GraphBuilder()
    x = b.node("Conv", b.input("x", (1, 2, 5, 5)), b.constant("w", normal(3, 2, 1, 1)), name="c")
    b.node("Mul", x, b.constant("s", normal(3, 1, 1)), name="y")
    graph = b.graph("y", "c")
    assert ops_of(apply(graph, FoldAffine())) == ["Conv", "Mul"]


def test_scales_along_other_axes_stay():
    b = GraphBuilder()
    x = b.node("Conv", b.input("x", (1, 2, 5, 5)), b.constant("w", normal(3, 2, 1, 1)))
    b.node("Mul", x, b.constant("s", normal(5)), name="y")
    assert ops_of(apply(b.graph("y"), FoldAffine())) == ["Conv", "Mul"]


# --- convert_layout -------------------------------------------------------------------------------


def converted(b, *outputs):
    return apply(b.graph(*outputs), ConvertLayout(), FoldConstants(), Simplify())


def conv(b, x, inner, outer, name, **attrs):
    return b.node("Conv", x, b.constant(f"{name}.w", normal(outer, inner, 3, 3)), name=name, **attrs)


def test_transposes_only_at_the_boundaries():
    b = GraphBuilder()
    x = conv(b, b.input("x", (1, 3, 8, 8)), 3, 4, "c1", pads=(1, 1, 1, 1))
    x = b.node("MaxPool", b.node("Relu", x), kernel_shape=(2, 2), strides=(2, 2))
    x = b.node("Add", x, b.constant("bias", normal(4, 1, 1)))
    x = b.node("LRN", x, size=3)
    x = b.node("Concat", x, b.node("Exp", x), axis=1)
    x = b.node("Softmax", x, axis=1)
    x = b.node("ReduceMean", x, axes=(1,), keepdims=1)
    graph = converted(b, b.node("Relu", x, name="y"))
    # The mean leaves one channel, so that even the last transpose is a reshape.
    assert ops_of(graph).count("Transpose") == 1
    assert graph.nodes[0].op == "Transpose"
    assert all(n.attrs.get("layout", "NHWC") == "NHWC" for n in graph.nodes)


def test_split_and_reductions_follow():
    b = GraphBuilder()
    x = conv(b, b.input("x", (1, 3, 8, 8)), 3, 4, "c1")
    b.nodes("Split", [x], ["s0", "s1"], axis=1, split=(1, 3))
    y = b.node("ReduceMax", "s1", axes=(2, 3), keepdims=0, name="y")
    z = b.node("ReduceMax", "s0", axes=(2,), keepdims=0, name="z")
    converted(b, y, z)


def test_three_and_one_spatial_dimensions():
    for spatial in ((6,), (5, 5, 5)):
        b = GraphBuilder()
        w = b.constant("w", normal(4, 3, *(2,) * len(spatial)))
        x = b.node("Conv", b.input("x", (2, 3, *spatial)), w)
        x = b.node("AveragePool", b.node("Relu", x), kernel_shape=(2,) * len(spatial))
        ops = ops_of(converted(b, b.node("Relu", x, name="y")))
        assert ops == ["Transpose", "Conv", "Relu", "AveragePool", "Relu", "Transpose"]


def test_flattening_before_a_matrix_permutes_its_rows():
    b = GraphBuilder()
    x = conv(b, b.input("x", (2, 3, 6, 5)), 3, 4, "c1")
    x = b.node("Reshape", x, shape=(2, 4 * 4 * 3))
    graph = converted(b, b.node("MatMul", x, b.constant("m", normal(48, 7)), name="y"))
    assert ops_of(graph) == ["Transpose", "Conv", "Reshape", "MatMul"]


def test_other_reshapes_get_the_original_order():
    b = GraphBuilder()
    x = conv(b, b.input("x", (2, 3, 6, 5)), 3, 4, "c1")
    graph = converted(b, b.node("Reshape", x, shape=(8, 12), name="y"))
    assert ops_of(graph) == ["Transpose", "Conv", "Transpose", "Reshape"]


def test_global_pooling_needs_no_transpose_after_it():
    b = GraphBuilder()
    x = b.node("GlobalAveragePool", conv(b, b.input("x", (2, 3, 6, 5)), 3, 4, "c1"))
    graph = converted(b, b.node("Flatten", x, name="y"))
    assert ops_of(graph) == ["Transpose", "Conv", "GlobalAveragePool", "Reshape"]


def test_operands_that_were_not_converted_are():
    b = GraphBuilder()
    x = conv(b, b.input("x", (1, 3, 8, 8)), 3, 4, "c1")
    gate = b.node("Sigmoid", b.input("g", (4, 1, 1)))
    converted(b, b.node("Mul", x, gate, name="y"))


def test_an_output_that_is_also_read_on():
    b = GraphBuilder()
    x = conv(b, b.input("x", (1, 3, 8, 8)), 3, 4, "c1")
    converted(b, x, conv(b, b.node("Relu", x), 4, 5, "c2"))


def test_variable_weights_are_transposed_at_run_time():
    b = GraphBuilder()
    b.node("Conv", b.input("x", (1, 3, 8, 8)), b.input("w", (4, 3, 3, 3)), name="y")
    assert ops_of(converted(b, "y")).count("Transpose") == 3


def test_models_without_convolutions_do_not_change():
    graph = load(MODELS["encoder"]())
    assert ConvertLayout().apply(graph) is graph


# --- split_groups ---------------------------------------------------------------------------------


def grouped(b, x, groups, outer, name="c", **attrs):
    inner = b.type_of(x).shape[-1]
    w = b.constant(f"{name}.w", normal(1, 1, inner // groups, outer))
    return b.node("Conv", x, w, layout="NHWC", group=groups, name=name, **attrs)


@pytest.mark.parametrize("groups", [2, 4])
def test_groups_become_convolutions_of_slices(groups):
    b = GraphBuilder()
    x = grouped(b, b.input("x", (1, 5, 5, 8)), groups, 16)
    x = b.node("Add", x, b.constant("bias", normal(16)))
    x = b.node("Mul", x, b.constant("scale", normal(1)))
    x = b.node("Add", b.input("residual", (1, 5, 5, 16)), x)
    graph = apply(b.graph(b.node("Relu", x, name="y")), SplitGroups())
    ops = ops_of(graph)
    assert ops.count("Conv") == ops.count("Relu") == groups
    assert ops.count("Split") == 2
    assert ops[-1] == "Concat"
    assert all(n.attrs.get("group", 1) == 1 for n in graph.nodes)


def test_groups_of_integers_share_what_lies_around():
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    w = b.constant("w", rng.integers(-128, 128, (3, 3, 4, 16)).astype(np.int8))
    fill = b.constant("fill", np.uint8(7))
    x = b.input("x", (1, 5, 5, 8), "uint8")
    y = b.node("IntegerConv", x, w, fill, layout="NHWC", group=2, pads=(1, 1, 1, 1))
    graph = SplitGroups().apply(b.graph(b.node("Add", y, b.constant("c", np.arange(16, dtype=np.int32)))))
    parts = [n for n in graph.nodes if n.op == "IntegerConv"]
    assert [n.inputs[2] for n in parts] == ["fill", "fill"]
    inputs = {"x": rng.integers(0, 256, (1, 5, 5, 8)).astype(np.uint8)}
    (found,), (wanted,) = (evaluate.run(g, inputs).values() for g in (graph, b.graph(b.node("Add", y, "c"))))
    np.testing.assert_array_equal(found, wanted)


def test_a_shuffle_of_the_groups_vanishes():
    b = GraphBuilder()
    x = b.node("Relu", grouped(b, b.input("x", (1, 5, 5, 8)), 4, 24))
    x = b.node("ChannelShuffle", x, groups=4, layout="NHWC")
    graph = apply(b.graph(b.node("Exp", x, name="y")), SplitGroups())
    assert "ChannelShuffle" not in ops_of(graph)


def test_a_shuffle_of_other_groups_stays():
    b = GraphBuilder()
    x = grouped(b, b.input("x", (1, 5, 5, 8)), 4, 24)
    y = b.node("ChannelShuffle", x, groups=3, layout="NHWC", name="y")
    assert ops_of(apply(b.graph(y), SplitGroups()))[-2:] == ["Concat", "ChannelShuffle"]


def test_what_is_read_elsewhere_or_varies_otherwise_does_not_go_along():
    b = GraphBuilder()
    x = grouped(b, b.input("x", (1, 5, 5, 8)), 2, 16)
    x = b.node("Relu", x, name="r")
    gate = b.input("gate", (1, 5, 5, 1))
    y = b.node("Mul", x, gate, name="y")
    ops = ops_of(apply(b.graph(y, b.node("Exp", x, name="z")), SplitGroups()))
    assert ops.index("Concat") < ops.index("Mul")


@pytest.mark.parametrize("case", ["depthwise", "many", "channels_first"])
def test_other_convolutions_stay(case):
    b = GraphBuilder()
    if case == "channels_first":
        x = b.input("x", (1, 8, 5, 5))
        y = b.node("Conv", x, b.constant("w", normal(16, 4, 1, 1)), group=2, name="y")
    else:
        x, groups = b.input("x", (1, 5, 5, 32)), 32 if case == "depthwise" else 16
        y = grouped(b, x, groups, 32, "y")
    graph = b.graph(y)
    assert SplitGroups().apply(graph) is graph


# --- group_axis -----------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [2, 4, 12])
def test_groups_of_1x1_convolutions_become_an_axis(groups):
    b = GraphBuilder()
    x = grouped(b, b.input("x", (1, 5, 5, 24)), groups, 36, strides=(2, 2))
    x = b.node("Add", x, b.constant("bias", normal(36)))
    x = b.node("Mul", x, b.constant("scale", normal(1)))
    x = b.node("Add", b.input("residual", (1, 3, 3, 36)), x)
    x = b.node("Mul", x, b.constant("half", np.float32(0.5)))
    graph = apply(b.graph(b.node("Relu", x, name="y")), GroupAxis())
    assert ops_of(graph) == ["GroupedConv", "Add", "Mul", "Reshape", "Add", "Mul", "Relu", "Reshape"]
    assert len(partition(graph).dispatches) == 1


@pytest.mark.parametrize("shuffled", [False, True])
def test_many_groups_with_windows_become_an_axis(shuffled):
    b = GraphBuilder()
    x, w = b.input("x", (1, 6, 6, 36)), b.constant("w", normal(3, 3, 3, 24))
    y = b.node("Relu", b.node("Conv", x, w, layout="NHWC", group=12, pads=(1, 1, 1, 1), strides=(2, 2)))
    if shuffled:
        y = b.node("ChannelShuffle", y, groups=12, layout="NHWC")
    graph = apply(b.graph(b.node("Exp", y, name="y")), GroupAxis(), SplitGroups())
    assert ops_of(graph)[:2] == ["GroupedConv", "Relu"]
    assert "ChannelShuffle" in ops_of(graph) if shuffled else len(partition(graph).dispatches) == 1


@pytest.mark.parametrize("groups", [2, 8, 9, 18])
@pytest.mark.parametrize("kernel", [1, 3])
def test_no_grouped_convolution_is_left_to_the_plain_kernel(groups, kernel):
    b = GraphBuilder()
    w = b.constant("w", normal(144, 144 // groups, kernel, kernel))
    y = b.node("Conv", b.input("x", (1, 144, 5, 5)), w, group=groups, name="y")
    graph = apply(b.graph(y), *standard_passes())
    assert all(node.attrs["group"] == 1 for node in graph.nodes if node.op == "Conv")


def test_few_groups_with_windows_or_a_shuffle_to_write_get_no_axis():
    b = GraphBuilder()
    x = b.input("x", (1, 5, 5, 8))
    window = b.node("Conv", x, b.constant("w", normal(3, 3, 4, 8)), layout="NHWC", group=2, pads=(1, 1, 1, 1))
    shuffled = b.node("ChannelShuffle", grouped(b, window, 2, 8), groups=2, layout="NHWC")
    graph = b.graph(b.node("Exp", shuffled, name="y"))
    assert GroupAxis().apply(graph) is graph


# --- sink_shuffles --------------------------------------------------------------------------------


def depthwise(b, x, name="d", multiplier=1):
    channels = b.type_of(x).shape[-1]
    w = b.constant(f"{name}.w", normal(3, 3, 1, channels * multiplier))
    return b.node("Conv", x, w, layout="NHWC", group=channels, pads=(1, 1, 1, 1), name=name)


def between(b, groups=3):
    """A grouped convolution and a shuffle of its channels."""
    x = b.node("Relu", grouped(b, b.input("x", (1, 5, 5, 12)), groups, 24))
    return b.node("ChannelShuffle", x, groups=groups, layout="NHWC")


@pytest.mark.parametrize("groups", [2, 3, 4])
def test_shuffles_move_to_the_grouped_convolution_that_reads_them(groups):
    b = GraphBuilder()
    x = b.node("Add", depthwise(b, between(b, groups)), b.constant("bias", normal(24)))
    x = b.node("Mul", x, b.constant("half", np.float32(0.5)))
    graph = b.graph(grouped(b, x, groups, 12, "y"))
    sunk = apply(graph, SinkShuffles())
    assert ops_of(sunk)[-5:] == ["Conv", "Add", "Mul", "ChannelShuffle", "Conv"]
    parts = partition(apply(sunk, GroupAxis()))
    assert [d.name for d in parts.dispatches] == [
        "000_groupedconv_relu",
        "001_conv_add_mul",
        "002_channelshuffle_groupedconv",
    ]


def test_a_shuffle_right_before_a_grouped_convolution_stays_for_it_to_read():
    b = GraphBuilder()
    graph = b.graph(grouped(b, between(b), 3, 12, "y"))
    assert SinkShuffles().apply(graph) is graph
    assert len(partition(apply(graph, GroupAxis(), SplitGroups())).dispatches) == 2


@pytest.mark.parametrize("case", ["multiplier", "residual", "two_readers", "softmax", "another_convolution"])
def test_shuffles_stay_where_nothing_reads_channels_in_any_order(case):
    b = GraphBuilder()
    x = between(b)
    others = []
    if case == "multiplier":
        x = depthwise(b, x, multiplier=2)
    elif case == "residual":
        x = b.node("Add", x, b.input("residual", (1, 5, 5, 24)))
    elif case == "two_readers":
        others = [b.node("Exp", x)]
        x = depthwise(b, x)
    elif case == "softmax":
        x = b.node("Softmax", x)
    else:
        x = depthwise(b, x)
    groups = 1 if case == "another_convolution" else 3
    graph = b.graph(grouped(b, x, groups, 12, "y"), *others)
    assert SinkShuffles().apply(graph) is graph


# --- winograd -------------------------------------------------------------------------------------


@pytest.mark.parametrize("tile", [2, 4, 6])
@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (0, 0, 0, 0), (2, 0, 1, 3)])
@pytest.mark.parametrize("size", [(7, 6), (8, 9), (4, 4)])
def test_winograd_computes_the_convolution(tile, pads, size):
    b = GraphBuilder()
    x, w = b.input("x", (2, *size, 5)), b.constant("w", normal(3, 3, 5, 6) / 10)
    y = b.node("Conv", x, w, layout="NHWC", pads=pads, name="y")
    graph = apply(b.graph(y), Winograd(tile))
    assert "Conv" not in ops_of(graph)
    assert graph.types["y"] == b.type_of("y")


@pytest.mark.parametrize(("tile", "growth"), [(2, 4.0), (4, 100.0), (6, 225.0)])
def test_winograd_declares_how_far_its_inputs_may_go(tile, growth):
    assert Winograd(tile).growth == growth
    b = GraphBuilder()
    x, w = b.input("x", (1, 12, 12, 1)), b.constant("w", np.full((3, 3, 1, 1), 1e-3, np.float32))
    graph = b.graph(b.node("Conv", x, w, layout="NHWC", pads=(1, 1, 1, 1), name="y"))
    signs = np.sign(np.random.default_rng(0).standard_normal((1, 12, 12, 1))).astype(np.float32)
    most = np.float32(np.finfo(np.float32).max / growth * 0.9)
    found = evaluate.run(Winograd(tile).apply(graph), {"x": signs * most})["y"]
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    "attrs", [{"strides": (2, 2)}, {"strides": (1, 2)}, {"layout": "NCHW"}, {"kernel": 5}]
)
def test_other_convolutions_stay_direct(attrs):
    attrs = {"layout": "NHWC", **attrs}
    k = attrs.pop("kernel", 3)
    b = GraphBuilder()
    w = b.constant("w", normal(k, k, 9, 4) if attrs["layout"] == "NHWC" else normal(4, 9, k, k))
    graph = b.graph(b.node("Conv", b.input("x", (1, 9, 9, 9)), w, **attrs))
    assert Winograd().apply(graph) is graph


@pytest.mark.parametrize(
    ("shapes", "expanded", "left"),
    [
        (((3, 1), (3, 4)), (0,), ["Add"]),
        (((4,), (3, 4)), (0,), ["Add"]),
        (((3, 1), (1, 4)), (0, 1), ["Add"]),  # each broadcasts the other
        (((3, 1), (3, 1)), (0, 1), ["Expand", "Add"]),  # one of them says how large the result is
        (((3, 1), (3, 1)), (0,), ["Expand", "Add"]),
    ],
)
def test_operands_that_broadcast_are_read_before_they_are_expanded(shapes, expanded, left):
    b = GraphBuilder()
    values = [b.input(f"x{i}", shape) for i, shape in enumerate(shapes)]
    for i in expanded:
        values[i] = b.node("Expand", values[i], shape=(3, 4))
    graph = b.graph(b.node("Add", *values))
    result = apply(graph, Simplify())
    assert ops_of(result) == left
