"""Recurrences and Scans whose steps, or whose sequences, are open: at every size the answer of exactly that size."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.errors import InputError, PaddingError
from autotune.frontends.models import load
from autotune.graph import evaluate

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
IN, HIDDEN = 5, 4


def model(nodes, inputs, outputs, constants):
    graph = helper.make_graph(
        nodes,
        "open",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def recurrent(op, direction, rng, given=False, **attrs):
    """A recurrence, an activation of all of its steps, and its last states, squared."""
    ways = 2 if direction == "bidirectional" else 1
    number = lambda *shape: rng.standard_normal(shape).astype(np.float32) / 2  # noqa: E731
    gates = GATES[op] * HIDDEN
    constants = {"w": number(ways, gates, IN), "r": number(ways, gates, HIDDEN), "b": number(ways, 2 * gates)}
    states = ["", "h", *(["c"] if op == "LSTM" else [])] if given else []
    outputs = ["every", "last", *(["cell"] if op == "LSTM" else [])]
    nodes = [
        helper.make_node(
            op, ["x", "w", "r", "b", *states], outputs, hidden_size=HIDDEN, direction=direction, **attrs
        ),
        helper.make_node("Tanh", ["every"], ["y"]),
        helper.make_node("Mul", ["last", "last"], ["squares"]),
        *([helper.make_node("Exp", ["cell"], ["power"])] if op == "LSTM" else []),
    ]
    inputs = {"x": ["length", "batch", IN], **{each: [ways, "batch", HIDDEN] for each in states[1:]}}
    return model(nodes, inputs, ["y", "squares", *(["power"] if op == "LSTM" else [])], constants)


def check(proto, ranges, requests, seed=0):
    """Every request has the answer of the model of exactly its sizes."""
    module, rng = autotune.compile_for_sizes(proto, ranges), np.random.default_rng(seed)
    for sizes in requests:
        feed = {}
        for value in proto.graph.input:
            dims = value.type.tensor_type.shape.dim
            shape = [sizes[dim.dim_param] if dim.dim_param else dim.dim_value for dim in dims]
            feed[value.name] = rng.standard_normal(shape).astype(np.float32)
        wanted = evaluate.run(load(proto, shapes={n: a.shape for n, a in feed.items()}), feed)
        for name, array in module.run(feed).items():
            np.testing.assert_allclose(array, wanted[name], rtol=2e-5, atol=2e-5, err_msg=f"{name} {sizes}")


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", GATES)
def test_recurrences_of_open_length_and_batch(op, direction):
    proto = recurrent(op, direction, np.random.default_rng(1), given=direction == "bidirectional")
    requests = [{"length": n, "batch": b} for n, b in ((1, 1), (2, 3), (3, 2), (5, 3), (7, 1), (9, 2))]
    check(proto, {"length": "1..9:3,9", "batch": "1..3:3"}, requests)


def test_a_recurrence_whose_batch_alone_is_open():
    proto = recurrent("GRU", "forward", np.random.default_rng(2), linear_before_reset=1)
    check(proto, {"length": "4", "batch": "1..5:2,5"}, [{"length": 4, "batch": b} for b in (1, 2, 3, 5)])


def scan(directions, body_nodes, carried, **attrs):
    """A Scan over "x" and "z" [length, 3], which adds up in ``carried`` values and collects one."""
    number = helper.make_tensor_value_info
    body = helper.make_graph(
        body_nodes,
        "body",
        [number(f"s{n}", TensorProto.FLOAT, [3]) for n in range(carried)]
        + [number(n, TensorProto.FLOAT, [3]) for n in ("xt", "zt")],
        [number(f"t{n}", TensorProto.FLOAT, [3]) for n in range(carried)]
        + [number("o", TensorProto.FLOAT, [3])],
    )
    finals = [f"f{n}" for n in range(carried)]
    node = helper.make_node(
        "Scan",
        [*(f"i{n}" for n in range(carried)), "x", "z"],
        [*finals, "every"],
        num_scan_inputs=2,
        body=body,
        scan_input_directions=directions,
        **attrs,
    )
    constants = {f"i{n}": np.full(3, n + 0.5, np.float32) for n in range(carried)}
    inputs = {"x": ["length", 3], "z": ["length", 3]}
    ends = [
        helper.make_node("Exp", ["every"], ["y"]),
        *(helper.make_node("Neg", [f], [f"n{f}"]) for f in finals),
    ]
    return model([node, *ends], inputs, ["y", *(f"n{f}" for f in finals)], constants)


def _two_ways():
    add = helper.make_node
    return [
        add("Mul", ["s0", "xt"], ["p0"]),
        add("Tanh", ["p0"], ["t0"]),
        add("Sub", ["s1", "zt"], ["p1"]),
        add("Sigmoid", ["p1"], ["t1"]),
        add("Add", ["s0", "xt"], ["o"]),
    ]


@pytest.mark.parametrize("directions", [(0, 0), (1, 1), (0, 1), (1, 0)])
def test_values_that_go_from_an_end_each(directions):
    proto = scan(directions, _two_ways(), 2, scan_output_directions=[directions[0]])
    check(proto, {"length": "1..40:20,40"}, [{"length": n} for n in (1, 7, 20, 21, 33, 40)])


def test_values_from_both_ends_are_refused():
    proto = scan((0, 1), [helper.make_node("Add", ["s0", "xt"], ["a"]), helper.make_node("Add", ["a", "zt"], ["t0"]),
                          helper.make_node("Neg", ["a"], ["o"])], 1)  # fmt: skip
    with pytest.raises(PaddingError, match="goes from both ends of an axis that grows"):
        autotune.compile_for_sizes(proto, {"length": "1..40:40"})


def test_a_number_of_steps_is_that_of_the_request():
    one = numpy_helper.from_array(np.ones(3, np.float32), "one")
    nodes = [
        helper.make_node("Constant", [], ["one"], value=one),
        helper.make_node("Add", ["s0", "one"], ["t0"]),
        helper.make_node("Add", ["s1", "xt"], ["t1"]),
        helper.make_node("Mul", ["t0", "zt"], ["o"]),
    ]
    proto = scan((1, 1), nodes, 2, scan_output_directions=[1])
    check(proto, {"length": "1..40:40"}, [{"length": n} for n in (1, 17, 40)])


CHOOSING = """
    <ir_version: 10, opset_import: ["" : 17]>
    agraph (float[n, 4] x, int64 rate) => (float[n, 2] y) {
        high = Constant <value = int64 {16000}> ()
        w = Constant <value = float[4, 2] {1, 2, 3, 4, 5, 6, 7, 8}> ()
        narrow = Constant <value = float[3, 2] {1, 2, 3, 4, 5, 6}> ()
        is_high = Equal (rate, high)
        y = If (is_high) <
            then_branch = g () => (float[n, 2] a) { p = MatMul (x, w) a = Softmax <axis = 0> (p) },
            else_branch = h () => (float[n, 2] b) { b = MatMul (x, narrow) }
        >
    }
"""


def test_a_branch_that_does_not_fit_the_other_axes_is_refused_when_it_runs():
    """As voice detectors have it: each rate has a branch, which takes windows of its own length."""
    proto, rng = onnx.parser.parse_model(CHOOSING), np.random.default_rng(0)
    with autotune.compile_for_sizes(proto, {"n": "1..6:2,6"}, threads=1) as module:
        for n in (1, 2, 3, 5, 6):
            feed = {"x": rng.standard_normal((n, 4)).astype(np.float32), "rate": np.array(16000)}
            (wanted,) = evaluate.run(load(proto, shapes={"n": n}), feed).values()
            np.testing.assert_allclose(module.run(feed)["y"], wanted, rtol=2e-5, atol=2e-5)
            with pytest.raises(InputError, match="chooses the branch 'else', which does not fit the sizes"):
                module.run({**feed, "rate": np.array(8000)})


def test_a_convolution_within_a_loop_keeps_the_size_that_a_request_has():
    """Its padding follows from the size, which is even here and odd there."""
    kernel = numpy_helper.from_array(np.ones((1, 1, 3), np.float32) / 2, "kernel")
    body = helper.make_graph(
        [
            helper.make_node("Constant", [], ["kernel"], value=kernel),
            helper.make_node("Conv", ["xt", "kernel"], ["c"], strides=[2], auto_pad="SAME_UPPER"),
            helper.make_node("ReduceMax", ["c"], ["top"], axes=[2], keepdims=1),
            helper.make_node("Mul", ["s", "top"], ["t"]),
            helper.make_node("Add", ["c", "t"], ["o"]),
        ],
        "step",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("s", "xt")],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("t", "o")],
    )
    first = {"first": np.ones((1, 1, 1), np.float32)}
    nodes = [helper.make_node("Scan", ["first", "x"], ["last", "y"], body=body, num_scan_inputs=1)]
    proto = model(nodes, {"x": [70, 1, 1, "width"]}, ["y"], first)
    check(proto, {"width": "5..24:24"}, [{"width": n} for n in (5, 6, 11, 16, 23, 24)])


def test_an_extent_within_a_loop_is_told_apart_at_a_further_size():
    """A third and five sixteenths agree at the sizes that are looked at first."""
    constants = {"zero": np.array([0]), "three": np.array([3])}
    body = helper.make_graph(
        [
            *(
                helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, name))
                for name, array in constants.items()
            ),
            helper.make_node("Shape", ["xt"], ["all"]),
            helper.make_node("Div", ["all", "three"], ["third"]),
            helper.make_node("Slice", ["xt", "zero", "third"], ["few"]),
            helper.make_node("ReduceMax", ["few"], ["top"], axes=[0], keepdims=1),
            helper.make_node("Mul", ["s", "top"], ["t"]),
            helper.make_node("Exp", ["few"], ["o"]),
        ],
        "step",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("s", "xt")],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("t", "o")],
    )
    first = {"first": np.ones(1, np.float32)}
    nodes = [helper.make_node("Scan", ["first", "x"], ["last", "y"], body=body, num_scan_inputs=1)]
    proto = model(nodes, {"x": [70, "width"]}, ["last", "y"], first)
    check(proto, {"width": "3..90:90"}, [{"width": n} for n in (3, 4, 5, 16, 89, 90)])
