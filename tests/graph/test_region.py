"""Regions, workloads, their programs and random inputs."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune import te
from autotune.errors import AutotuneError, GraphError, InputError
from autotune.graph import Graph, TensorType
from autotune.graph.build import GraphBuilder
from autotune.graph.ops.definition import WorkloadKind
from autotune.graph.region import Region, Workload
from tests.graph.graphs import conv_region

GOLDEN = """\
region workload {
  input i0: float32[1, 8, 8, 3]
  const i1: float32[3, 3, 3, 8]
  const i2: float32[8]
  input i3: float32[1, 4, 4, 8]
  v0 = Conv(i0, i1) {dilations=[1, 1], group=1, kernel_shape=[3, 3], layout="NHWC", \
pads=[1, 1, 1, 1], strides=[2, 2]} : float32[1, 4, 4, 8]
  v1 = Add(v0, i2) : float32[1, 4, 4, 8]
  v2 = Add(v1, i3) : float32[1, 4, 4, 8]
  v3 = Relu(v2) : float32[1, 4, 4, 8]
  output v3
}"""
KEY = "d7cf22f6e2f01be1dd0b67ad7e4c9293f11d047d97f3519b147494ab9f00b30e"  # databases store it: it must never change


def region(op: str, *inputs: Any, fixed: tuple[int, ...] = (), **attrs: Any) -> Region:
    """A region of one operator; inputs are shapes or (shape, dtype) pairs."""
    b = GraphBuilder("r")
    names = []
    for i, given_type in enumerate(inputs):
        typed = len(given_type) == 2 and isinstance(given_type[1], str)
        shape, dtype = given_type if typed else (given_type, "float32")
        names.append(b.input(f"in{i}", shape, dtype))
    y = b.node(op, *names, **attrs)
    return Region(b.graph(y), frozenset(names[i] for i in fixed))


def workload(op: str, *inputs: Any, **attrs: Any) -> Workload:
    return Workload.from_region(region(op, *inputs, **attrs))


def run_program(w: Workload, arrays: list[np.ndarray]) -> list[np.ndarray]:
    program = w.program()
    return te.evaluate(program.outputs, dict(zip(program.inputs, arrays, strict=True)))


def test_golden_text_and_key() -> None:
    w = Workload.from_region(conv_region())
    assert w.text == GOLDEN
    assert str(w) == GOLDEN
    assert w.key == KEY
    assert w.kind == "convolution"
    assert w.flops == 2 * 128 * 27 + 3 * 128
    assert w.bytes == 4 * (192 + 216 + 8 + 128 + 128)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("declared_last", [False, True])
def test_names_and_orders_do_not_matter(swapped: bool, declared_last: bool) -> None:
    other = conv_region("other/", swapped, declared_last)
    assert Workload.from_region(other) == Workload.from_region(conv_region())
    expected = ("x", "w", "bias", "skip", "y")
    assert other.arguments() == tuple(f"other/{v}" for v in expected)


def test_defaults_spelled_out_do_not_matter() -> None:
    plain = workload("Softmax", (2, 3))
    assert plain == workload("Softmax", (2, 3), axis=1)
    assert plain != workload("Softmax", (2, 3), axis=0)
    assert hash(plain) == hash(workload("Softmax", (2, 3), axis=-1))


def test_what_matters() -> None:
    seen = {
        workload("MatMul", (2, 3), (3, 4)).key,
        workload("MatMul", (2, 3), (3, 5)).key,
        workload("MatMul", (2, 3), (3, 4), fixed=(1,)).key,
        workload("MatMul", ((2, 3), "float64"), ((3, 4), "float64")).key,
        workload("Gemm", (2, 3), (3, 4)).key,
        workload("Gemm", (2, 3), (4, 3), transB=1).key,
    }
    assert len(seen) == 6


def test_text_round_trips() -> None:
    w = Workload.from_region(conv_region())
    parsed = Workload.parse(w.text)
    assert (parsed, parsed.text, parsed.kind) == (w, w.text, w.kind)
    assert (parsed.flops, parsed.bytes) == (w.flops, w.bytes)
    assert parsed.region.constant_inputs == {"i1", "i2"}


def test_other_names_in_a_text_become_canonical() -> None:
    text = GOLDEN.replace("i0", "image").replace("v2", "total")
    assert Workload.parse(text).text == GOLDEN


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: workload("MatMul", (2, 3), (3, 4)), "contraction"),
        (lambda: workload("Conv", (1, 4, 5, 5), (4, 4, 3, 3)), "convolution"),
        (lambda: workload("Conv", (1, 4, 5, 5), (4, 2, 3, 3), group=2), "convolution"),
        (lambda: workload("Conv", (1, 1, 5, 5), (4, 1, 3, 3)), "convolution"),
        (lambda: workload("Conv", (1, 4, 5, 5), (4, 1, 3, 3), group=4), "depthwise"),
        (
            lambda: workload("Conv", (1, 5, 5, 4), (3, 3, 1, 8), group=4, layout="NHWC"),
            "depthwise",
        ),
        (lambda: workload("ReduceSum", (2, 3)), "reduction"),
        (lambda: workload("Softmax", (2, 3)), "softmax"),
        (lambda: workload("Attention", (2, 3, 4), (2, 5, 4), (2, 5, 6)), "attention"),
        (lambda: workload("Attention", (3, 4), (5, 4), (5, 6), block=2), "attention"),
        (lambda: workload("LayerNormalization", (2, 3), (3,)), "normalization"),
        (lambda: workload("MaxPool", (1, 1, 4, 4), kernel_shape=(2, 2)), "pool"),
        (lambda: workload("BatchNormalization", (1, 2, 3), *[(2,)] * 4), "elementwise"),
        (lambda: workload("Add", (2, 3), (3,)), "elementwise"),
        (lambda: workload("Transpose", (2, 3)), "elementwise"),
    ],
)
def test_kinds(make: Any, kind: str) -> None:
    w = make()
    assert w.kind == kind
    assert kind in get_args(WorkloadKind)
    arrays = w.random_inputs(0)
    for found, wanted in zip(run_program(w, arrays), w.reference(arrays), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "anchor"),
    [
        (lambda: Workload.from_region(conv_region()), "v0"),
        (lambda: workload("Gemm", (2, 3), (3, 4), (4,)), "v0.acc"),
        (lambda: workload("Conv", (1, 4, 5, 5), (4, 4, 3, 3), (4,), pads=(1,) * 4), "v0.acc"),
        (lambda: workload("AveragePool", (1, 1, 4, 4), kernel_shape=(2, 2)), "v0.sum"),
        (lambda: workload("GlobalAveragePool", (1, 1, 4, 4)), "v0.sum"),
        (lambda: workload("ReduceMean", (2, 3)), "v0.sum"),
        (lambda: workload("Softmax", (2, 3)), "v0"),
        (lambda: workload("LayerNormalization", (2, 3), (3,)), "v0"),
        (lambda: workload("Relu", (2, 3)), None),
    ],
)
def test_anchor_tensor(make: Any, anchor: str | None) -> None:
    found = make().program().anchor
    assert (None if found is None else found.name) == anchor


def test_program() -> None:
    w = Workload.from_region(conv_region())
    program = w.program()
    assert [t.name for t in program.args] == ["i0", "i1", "i2", "i3", "v3"]
    assert program.constants == {"i1", "i2"}
    assert program.strides == {}
    arrays = w.random_inputs(3)
    found, expected = run_program(w, arrays)[0], w.reference(arrays)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_strides_pass_through() -> None:
    graph = region("Relu", (2, 3)).graph
    placed = TensorType((2, 3), "float32", (8, 1))
    strided = Region(graph.replace(types={**graph.types, "relu": placed}))
    w = Workload.from_region(strided)
    assert w.program().strides == {"v0": (8, 1)}
    assert "v0 = Relu(i0) : float32[2, 3] strides=(8, 1)" in w.text
    assert w != workload("Relu", (2, 3))
    assert Workload.parse(w.text) == w
    assert w.reference([np.ones((2, 3), np.float32)])[0].shape == (2, 3)


def test_several_outputs_keep_their_order() -> None:
    b = GraphBuilder("r")
    x = b.input("x", (4,))
    y = b.node("Exp", x)
    z = b.node("Neg", y)
    w = Workload.from_region(Region(b.graph(z, y)))
    assert w.region.graph.outputs == ("v1", "v0")
    assert Region(b.graph(z, y)).arguments() == ("x", "neg", "exp")
    x_value = np.ones(4, np.float32)
    np.testing.assert_allclose(w.reference([x_value]), [-np.exp(x_value), np.exp(x_value)])


def two_anchors() -> Graph:
    b = GraphBuilder("r")
    x = b.input("x", (2, 2))
    return b.graph(b.node("Add", b.node("MatMul", x, x), b.node("Softmax", x)))


def with_constant() -> Graph:
    b = GraphBuilder("r")
    return b.graph(b.node("Add", b.input("x", (2,)), b.constant("c", np.ones(2, np.float32))))


def unused_input() -> Graph:
    b = GraphBuilder("r")
    b.input("z", (2,))
    return b.graph(b.node("Relu", b.input("x", (2,))))


def passed_through() -> Graph:
    b = GraphBuilder("r")
    x = b.input("x", (2,))
    return b.graph(b.node("Relu", x), x)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (
            two_anchors(),
            "has 2 anchors, of which each must read what the one before makes: 'matmul' (MatMul), 'softmax' (Softmax)",
        ),
        (with_constant(), "has constants: they must be inputs"),
        (Graph("r", (), (), (), {}), "computes nothing"),
        (unused_input(), "input 'z' is not used"),
        (passed_through(), "output 'x' is not computed in it"),
    ],
)
def test_what_is_no_region(graph: Graph, message: str) -> None:
    with pytest.raises(GraphError) as caught:
        Region(graph)
    assert str(caught.value).removeprefix("region 'r'").lstrip(": ") == message


def test_constant_inputs_must_be_inputs() -> None:
    with pytest.raises(GraphError, match="region 'r': constant input 'q' is not an input"):
        Region(region("Relu", (2,)).graph, frozenset({"q"}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not a workload", "line 1, column 1: expected 'region', found 'not'"),
        (GOLDEN.replace("Conv", "Convolve"), "node 'v0' (Convolve): unknown"),
        (GOLDEN.replace("[1, 8, 8, 3]", "[1, 8, 8, 4]"), "node 'v0' (Conv): Conv"),
        (GOLDEN.replace("v3 = Relu(v2)", "v3 = Relu(v9)"), "node 'v3' (Relu): "),
        (GOLDEN.replace("group=1", 'group="x"'), "node 'v0' (Conv): Conv: attr"),
    ],
)
def test_bad_text(text: str, message: str) -> None:
    with pytest.raises(GraphError) as caught:
        Workload.parse(text)
    assert str(caught.value).startswith(message)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(GOLDEN.split(" ")),
    st.sampled_from([*GOLDEN.split(" "), "", "-1", "0", "[]", "1e999", '""', "99999999999999999999"]),
)
def test_damaged_text_is_a_graph_error_or_a_workload(old: str, new: str) -> None:
    try:
        w = Workload.parse(GOLDEN.replace(old, new) if old else GOLDEN)
    except GraphError:
        return
    assert Workload.parse(w.text) == w


def test_reference_checks_its_inputs() -> None:
    w = workload("Relu", (2, 3))
    with pytest.raises(InputError, match="the workload has 1 inputs, got 2"):
        w.reference([np.zeros((2, 3), np.float32)] * 2)
    with pytest.raises(AutotuneError, match=r"input 'i0' is float64\[2, 3\], expected float32"):
        w.reference([np.zeros((2, 3))])


def test_random_inputs_are_the_seeds() -> None:
    w = Workload.from_region(conv_region())
    first, again, other = w.random_inputs(1), w.random_inputs(1), w.random_inputs(2)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])
    assert not np.array_equal(first[0].ravel()[:8], first[1].ravel()[:8])


@pytest.mark.parametrize(
    "make",
    [
        lambda: workload("Conv", (1, 64, 9, 9), (64, 64, 3, 3), fixed=(1,)),
        lambda: workload("Conv", (1, 9, 9, 64), (3, 3, 1, 64), group=64, layout="NHWC"),
        lambda: workload("MatMul", (64, 512), (512, 64)),
        lambda: workload("MatMul", (64, 512), (512, 64), fixed=(0,)),
        lambda: workload("Gemm", (64, 512), (64, 512), (64,), transB=1, fixed=(1, 2)),
        lambda: workload("LayerNormalization", (8, 64), (64,)),
    ],
)
def test_random_inputs_keep_outputs_near_one(make: Any) -> None:
    w = make()
    spread = w.reference(w.random_inputs(0))[0].std()
    assert 0.3 < spread < 3


def test_random_weights_are_scaled_through_a_transpose() -> None:
    b = GraphBuilder("r")
    x, w = b.input("x", (32, 1024)), b.input("w", (32, 1024))
    y = b.node("MatMul", x, b.node("Transpose", w))
    made = Workload.from_region(Region(b.graph(y)))
    assert 0.5 < made.reference(made.random_inputs(0))[0].std() < 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: workload("Sqrt", (50,)),
        lambda: workload("Log", (50,)),
        lambda: workload("Div", (50,), (50,)),
        lambda: workload("Div", ((50,), "int64"), ((50,), "int64")),
        lambda: workload("Pow", (50,), (1,)),
        lambda: workload("BatchNormalization", (2, 9, 4), *[(9,)] * 4),
        lambda: workload("Gather", (7, 3), ((50,), "int64")),
        lambda: workload("Where", ((50,), "bool"), (50,), (50,)),
    ],
)
def test_random_inputs_suit_the_operator(make: Any) -> None:
    w = make()
    assert np.isfinite(w.reference(w.random_inputs(0))[0]).all()


def test_random_inputs_turn_positive_where_a_root_needs_it() -> None:
    b = GraphBuilder("r")
    x, y = b.input("x", (100,)), b.input("y", (100,))
    made = Workload.from_region(Region(b.graph(b.node("Sqrt", b.node("Mul", x, y)))))
    assert np.isfinite(made.reference(made.random_inputs(0))[0]).all()


def test_random_inputs_turn_positive_where_a_variance_is_computed() -> None:
    b = GraphBuilder("r")
    x, v, w = b.input("x", (2, 30, 4)), b.input("v", (30,)), b.input("w", (30,))
    parameters = [b.input(name, (30,)) for name in ("gain", "bias", "mean")]
    normed = b.node("BatchNormalization", x, *parameters, b.node("Mul", v, w))
    made = Workload.from_region(Region(b.graph(normed)))
    assert np.isfinite(made.reference(made.random_inputs(0))[0]).all()
