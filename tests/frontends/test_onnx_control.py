"""If, Loop, Scan and sequences against ONNX's reference implementation, as graphs and as machine code."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import autotune
from autotune.errors import InputError, ModelImportError, UnknownParameterError, UnsupportedOpError
from autotune.frontends.onnx import importer as frontend
from autotune.graph import evaluate
from autotune.graph.ir import Array, Graph
from autotune.graph.verify import verify
from autotune.runtime.image import Command

Wanted: TypeAlias = Callable[[dict[str, Array]], Sequence[Array]]


def model(text: str, opset: int = 21) -> ModelProto:
    """A model of ONNX's text form, with float inputs."""
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {text}')


def check(proto: ModelProto, wanted: Wanted | None = None, **values: Array) -> Graph:
    """The graph of a model, once it computes what is wanted; ``values`` are inputs known when compiling.

    Without ``wanted`` that is what ONNX's reference gives, which joins what a loop collects along no new axis.
    """
    graph = frontend.load(proto, values=values)
    verify(graph)
    rng = np.random.default_rng(1)
    inputs = {v: rng.standard_normal(graph.types[v].shape).astype(graph.types[v].dtype) for v in graph.inputs}
    given = {**inputs, **values}
    results = ReferenceEvaluator(proto).run(None, given) if wanted is None else wanted(given)
    with autotune.compile(graph, threads=1) as module:
        for found in (evaluate.run(graph, inputs), module.run(inputs)):
            for name, want in zip(graph.outputs, results, strict=True):
                assert found[name].shape == want.shape
                np.testing.assert_allclose(found[name], want, rtol=1e-4, atol=1e-5, err_msg=name)
    return graph


BRANCHES = """
    y = If (c) <
        then_branch = g () => (float[2, 3] a) { t = Exp(x) a = Add(t, x) },
        else_branch = h () => (float[2, 3] b) { b = Neg(x) }
    >
"""


@pytest.mark.parametrize("chosen", [True, False])
def test_a_known_condition_chooses_a_branch(chosen: bool) -> None:
    proto = model(f"agraph (bool c, float[2, 3] x) => (float[2, 3] y) {{ {BRANCHES} }}")
    graph = check(proto, c=np.array(chosen))
    assert {node.op for node in graph.nodes} <= ({"Exp", "Add"} if chosen else {"Neg"}) | {"Identity"}


@pytest.mark.parametrize("shape", ["bool", "bool[1]"])
def test_of_another_condition_small_branches_are_both_computed(shape: str) -> None:
    graph = check(model(f"agraph ({shape} c, float[2, 3] x) => (float[2, 3] y) {{ {BRANCHES} }}"))
    assert [node.op for node in graph.nodes if node.op == "Where"] == ["Where"]


def test_branches_of_other_shapes_need_a_known_condition() -> None:
    text = BRANCHES.replace("b = Neg(x)", "b = ReduceSum(x)")
    with pytest.raises(UnknownParameterError) as caught:
        frontend.load(model(f"agraph (bool c, float[2, 3] x) => (float[n, m] y) {{ {text} }}"))
    assert str(caught.value) == (
        "node 'y' (If): its condition 'c', which decides the shape of 'y', is not a constant\n"
        "  it must be known when the model is compiled: give values={'c': ...} (--value c=...), what it depends on"
    )
    assert caught.value.inputs == ("c",)


LARGER = """
    agraph (bool c, int64[2] i, float[2, 3] x, float[3, 3] w) => (float[2, 3] y, float[2, 3] z) {
        y = If (c) <
            then_branch = g () => (float[2, 3] a) { t = MatMul(x, w) a = Tanh(t) },
            else_branch = h () => (float[2, 3] b) { u = Gather(x, i) b = Softmax(u) }
        >
        z = Neg(y)
    }
"""


@pytest.mark.parametrize("chosen", [True, False])
def test_of_larger_branches_the_chosen_one_runs(chosen: bool) -> None:
    proto = model(LARGER)
    graph = frontend.load(proto)
    assert [node.op for node in graph.nodes] == ["If", "Neg"]
    x, w = (np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32) for n in (2, 3))
    beyond = np.array([0, 9])  # read by the second branch alone
    with autotune.compile(proto, threads=1) as module:
        for indices in (np.array([1, 0]), beyond):
            inputs = {"c": np.array(chosen), "i": indices, "x": x, "w": w}
            if indices is beyond and not chosen:
                with pytest.raises(InputError, match="index 9 is out of range"):
                    module.run(inputs)
                continue
            found = module.run(inputs)
            for name, want in zip(("y", "z"), ReferenceEvaluator(proto).run(None, inputs), strict=True):
                np.testing.assert_allclose(found[name], want, rtol=1e-5)


VOICE = """
    agraph (float[1, samples] audio, float[1, 8] state, int64 rate) => (float[1, 1] speech, float[1, 8] next)
    <int64 wide = {16000}> {
        is_wide = Equal(rate, wide)
        speech, next = If (is_wide) <
            then_branch = g () => (float[1, 1] a, float[1, 8] b) <int64[3] s = {1, 8, 64}, int64[1] one = {2}> {
                f = Reshape(audio, s) m = ReduceMean<keepdims = 0>(f, one) p = Add(m, state) b = Tanh(p)
                q = ReduceSum(b, one_axis) a = Sigmoid(q)
            },
            else_branch = h () => (float[1, 1] c, float[1, 8] d) <int64[3] r = {1, 8, 32}, int64[1] two = {2}> {
                g = Reshape(audio, r) n = ReduceMax<keepdims = 0>(g, two) t = Mul(n, state) d = Tanh(t)
                v = ReduceSum(d, one_axis) c = Sigmoid(v)
            }
        >
    }
""".replace("<int64 wide", "<int64[1] one_axis = {1}, int64 wide")


@pytest.mark.parametrize(("samples", "rate"), [(512, 16000), (256, 8000)])
def test_a_branch_that_does_not_fit_the_sizes_is_refused_when_it_runs(
    samples: int, rate: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    proto = model(VOICE)
    autotune.compile(proto, shapes={"samples": samples}, threads=1).save(tmp_path / "voice.atm")
    refused = "else" if rate == 16000 else "then"
    assert f"it is an error if 'is_wide' chooses the branch '{refused}'" in caplog.text
    rng = np.random.default_rng(0)
    inputs = {"audio": rng.standard_normal((1, samples)).astype("f4"), "state": np.ones((1, 8), "f4")}
    with autotune.load(tmp_path / "voice.atm") as module:
        for _ in range(2):
            given = {**inputs, "rate": np.array(rate)}
            wanted = ReferenceEvaluator(proto).run(None, given)
            for found, want in zip(module.run(given).values(), wanted, strict=True):
                np.testing.assert_allclose(found, want, rtol=1e-5)
            with pytest.raises(InputError) as caught:
                module.run({**inputs, "rate": np.array(24000 - rate)})
            assert str(caught.value).startswith(
                f"node 'speech' (If): 'is_wide' chooses the branch '{refused}', which does not fit the sizes that the "
                f"model is compiled for\n  model 'agraph': node 'speech.{refused}."
            )


def test_a_model_of_which_no_branch_fits_is_refused() -> None:
    with pytest.raises(ModelImportError, match="Reshape"):
        frontend.load(model(VOICE), shapes={"samples": 100})


def test_unknown_operators_in_branches_are_listed() -> None:
    proto = model(f"agraph (bool c, float[2, 3] x) => (float[2, 3] y) {{ {BRANCHES} }}")
    proto.graph.node[0].attribute[0].g.node[0].op_type = "Wonder"
    with pytest.raises(UnsupportedOpError, match="Wonder: 1 node"):
        frontend.load(proto)


STEPS = """
    agraph (float[2, 3] x, float[3, 3] w) => (float[2, 3] y, float[n, 2, 3] all)
    <int64 m = {{{steps}}}, bool on = {{1}}> {{
        y, all = Loop (m, on, x) <body = step (int64 i, bool on_in, float[2, 3] s)
            => (bool on_out, float[2, 3] t, float[2, 3] u)
            {{ on_out = Identity(on_in) f = Cast<to = 1>(i) p = MatMul(s, w) q = Add(p, f) t = Tanh(q) u = Neg(t) }}>
    }}
"""


def stepped(steps: int) -> Wanted:
    """Return the results of the loop above."""

    def run(given: dict[str, Array]) -> list[Array]:
        state, found = given["x"], np.zeros((steps, 2, 3), np.float32)
        for step in range(steps):
            state = np.tanh(state @ given["w"] + np.float32(step))
            found[step] = -state
        return [state, found]

    return run


@pytest.mark.parametrize(("steps", "loops"), [(1, 0), (3, 0), (20, 1)])
def test_steps_stand_for_themselves_or_are_a_loop(steps: int, loops: int) -> None:
    graph = check(model(STEPS.format(steps=steps)), stepped(steps))
    assert sum(node.op == "Loop" for node in graph.nodes) == loops


def test_no_steps_give_what_came_in() -> None:
    check(model(STEPS.format(steps=0)), stepped(0))


def test_the_number_of_steps_must_be_known() -> None:
    text = STEPS.format(steps=3).replace("<int64 m = {3}, bool on = {1}>", "<bool on = {1}>")
    proto = model(text.replace("(float[2, 3] x,", "(int64 m, float[2, 3] x,"))
    with pytest.raises(UnknownParameterError, match="the number of steps \\('m'\\) is not a constant"):
        frontend.load(proto)
    check(proto, stepped(4), m=np.array(4))


@pytest.mark.parametrize(("body", "inside"), [("p = Add(s, s)", 1), ("p = Concat<axis = 0>(s, s)", 0)])
def test_what_grows_stands_for_itself(body: str, inside: int) -> None:
    rest = "q = Neg(p) r = Exp(q) a = Sin(r) b = Cos(a) c = Tanh(b) d = Neg(c) e = Abs(d) t = Sqrt(e)"
    text = f"""
        agraph (float[1, 3] x) => (float[n, 3] y) <int64 m = {{8}}> {{
            y = Loop (m, , x) <body = step (int64 i, bool on_in, float[k, 3] s) => (bool on_in, float[l, 3] t)
                {{ {body} {rest} }}>
        }}
    """
    graph = frontend.load(model(text))
    assert sum(node.op == "Loop" for node in graph.nodes) == inside


ENDING = """
    agraph (float x) => (float y{more}) <int64 m = {{{steps}}}, float limit = {{50.0}}, float two = {{2.0}}> {{
        y{names} = Loop (m, , x) <body = step (int64 i, bool on_in, float s) => (bool on_out, float t{inner})
            {{ a = Abs(s) b = Add(a, two) t = Mul(b, two) on_out = Less(t, limit) u = Neg(t) }}>
    }}
"""


@pytest.mark.parametrize("start", [0.0, 10.0, 100.0])
def test_a_condition_ends_a_loop(start: float) -> None:
    proto = model(ENDING.format(more="", names="", inner="", steps=30))
    graph = frontend.load(proto)
    x = np.array(start, np.float32)
    wanted = start
    for _ in range(30):
        wanted = 2 * (abs(wanted) + 2)
        if wanted >= 50:
            break
    with autotune.compile(graph, threads=1) as module:
        assert module(x)[0] == evaluate.run(graph, {"x": x})["y"] == wanted


def test_steps_behind_the_end_are_not_computed() -> None:
    text = """
        agraph (float[2, 3] x, float[3, 3] w) => (float[2, 3] y) <int64 m = {12}, float limit = {1.0}> {
            y = Loop (m, , x) <body = step (int64 i, bool on_in, float[2, 3] s) => (bool on_out, float[2, 3] t)
                { p = MatMul(s, w) t = Tanh(p) a = ReduceSum<keepdims = 0>(t) on_out = Less(a, limit) }>
        }
    """
    graph = frontend.load(model(text))
    assert graph.nodes[0].op == "Loop"
    w = np.full((3, 3), 0.4, np.float32)
    with autotune.compile(graph, threads=1) as module:
        for start in (0.01, 1.0, -1.0):
            x = np.full((2, 3), start, np.float32)
            wanted, steps = x, 0
            while steps < 12:
                wanted, steps = np.tanh(wanted @ w), steps + 1
                if wanted.sum() >= 1:
                    break
            np.testing.assert_allclose(module(x, w)[0], wanted, rtol=1e-5)
            np.testing.assert_allclose(evaluate.run(graph, {"x": x, "w": w})["y"], wanted, rtol=1e-5)
            names, (each,) = [d.name for d in module.dispatches], {c.tiles for c in products(module)}
            ran = sum(e.tiles for e in module.timeline([x, w]) if "matmul" in names[e.dispatch])
            assert ran == steps * each


def products(module: autotune.Module) -> list[Command]:
    return [c for c in module.image.commands if "matmul" in module.dispatches[c.dispatch].name]


@pytest.mark.parametrize("steps", [2, 30, 9000])
def test_as_much_is_collected_as_there_were_steps(steps: int) -> None:
    text = ENDING.format(more=", float[n] all", names=", all", inner=", float u", steps=steps)
    with autotune.compile(frontend.load(model(text)), threads=2) as module:
        for start in (0.0, 10.0, 100.0):
            wanted, found = [start], module(np.array(start, np.float32))
            while len(wanted) <= steps and (len(wanted) == 1 or wanted[-1] < 50):
                wanted.append(2 * (abs(wanted[-1]) + 2))
            assert found[0] == wanted[-1]
            np.testing.assert_array_equal(found[1], -np.array(wanted[1:], np.float32))


WHILE = """
    agraph (int64 m, bool on, float limit, float[2, 3] x, float[3, 3] w) => (float[2, 3] y)
    <float zero = {{0.0}}> {{
        y = Loop ({m}, on, x) <body = step (int64 i, bool on_in, float[2, 3] s) => (bool on_out, float[2, 3] t)
            {{ p = MatMul(s, w) f = Cast<to = 1>(i) q = Add(p, f) r = Tanh(q) {inside} on_out = Less(f, limit) }}>
    }}
"""
INSIDE = (
    "t = Neg(r)",
    """a = ReduceSum<keepdims = 0>(p) b = Less(a, zero)
    t = If (b) <then_branch = low () => (float[2, 3] c) { c = Softmax(r) },
                else_branch = high () => (float[2, 3] e) { d = Neg(r) e = Exp(d) }>""",
)


@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize(("m", "threads"), [("m", 1), ("m", 2), ("", 2)])
def test_a_loop_runs_as_often_as_is_known_when_it_runs(m: str, inside: str, threads: int) -> None:
    """Its number of steps is an input or none at all; so it may be none, one, or many."""
    w = np.full((3, 3), 0.4, np.float32)
    graph = frontend.load(model(WHILE.format(m=m, inside=inside)))
    with autotune.compile(graph, threads=threads) as module:
        assert len(module.image.commands) < 100
        for steps, on, limit in (
            (0, 1, 9.0),
            (1, 1, 9.0),
            (7, 0, 9.0),
            (8, 1, 2.0),
            (5000, 1, 2500.0),
            (12, 1, 40.0),
        ):
            x = np.full((2, 3), -0.3, np.float32)
            given = {
                "m": np.array(steps),
                "on": np.array(bool(on)),
                "limit": np.float32(limit),
                "x": x,
                "w": w,
            }
            wanted = running(x, w, steps if m else 1 << 40, bool(on), limit, "Softmax" in inside)
            np.testing.assert_allclose(module.run(given)["y"], wanted, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(evaluate.run(graph, given)["y"], wanted, rtol=1e-4, atol=1e-5)


def running(x: Array, w: Array, steps: int, on: bool, limit: float, chooses: bool) -> Array:
    step = 0
    while step < steps and on:
        product = x @ w
        x = np.tanh(product + np.float32(step))
        if not chooses:
            x = -x
        elif product.sum() < 0:
            x = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
        else:
            x = np.exp(-x)
        on, step = step < limit, step + 1
    return x


def test_the_number_of_steps_must_be_known_where_all_are_collected() -> None:
    text = ENDING.format(more=", float[n] all", names=", all", inner=", float u", steps=9000)
    with pytest.raises(UnknownParameterError) as caught:
        frontend.load(model(text.replace("Loop (m,", "Loop (,")))
    assert str(caught.value).startswith(
        "node 'y' (Loop): its condition after a step, which decides how many there are, is not a"
    )


def test_how_many_steps_of_other_places_there_are_must_be_known() -> None:
    """A slice from the number of the step on stands there for each step, of which inputs say how many there are."""
    proto = model("""
        agraph (int64 m, bool on, float[8] x) => (float[1] y) <int64[1] one = {1}, float[1] first = {0.5}> {
            y = Loop (m, on, first) <body = step (int64 i, bool on_in, float[1] s) => (bool on_in, float[1] t) {
                zero = Constant <value = int64[1] {0}> ()
                from = Unsqueeze (i, zero) to = Add (from, one) part = Slice (x, from, to) t = Mul (s, part)
            }>
        }
    """)
    with pytest.raises(UnknownParameterError, match=r"the number of its steps \('m'\)") as caught:
        frontend.load(proto)
    assert caught.value.inputs == ("m",)
    with pytest.raises(UnknownParameterError) as caught:
        frontend.load(proto, values={"m": np.array(3)})
    assert caught.value.inputs == ("on",)
    check(proto, m=np.array(3), on=np.array(True))


def test_steps_without_end_are_refused() -> None:
    text = STEPS.format(steps=3).replace("Loop (m, on, x)", "Loop (, on, x)")
    with pytest.raises(ModelImportError) as caught:
        frontend.load(model(text))
    assert str(caught.value) == (
        "node 'y' (Loop): its condition is still true after 256 steps\n"
        "  give it a number of steps, or a condition that is known when the model is compiled"
    )


@pytest.mark.parametrize("seed", range(8))
def test_scans_over_any_axis_from_any_end(seed: int) -> None:
    rng = random.Random(seed)
    steps = rng.choice((2, 40))
    inputs, given = list[Any](), list[Any]()
    axes, shapes = [rng.randrange(3) for _ in range(2)], list[list[int]]()
    for i, axis in enumerate(axes):
        shapes.append([2, 3])
        shapes[-1].insert(axis, steps)
        given.append(helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, shapes[-1]))
        inputs.append(helper.make_tensor_value_info(f"e{i}", TensorProto.FLOAT, [2, 3]))
    state = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in ("s", "t", "u", "s0", "y")]
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["e0", "s"], ["p"]),
            helper.make_node("Add", ["p", "e1"], ["q"]),
            helper.make_node("Tanh", ["q"], ["t"]),
            helper.make_node("Sub", ["t", "bias"], ["u"]),
        ],
        "body",
        [state[0], *inputs],
        state[1:3],
        [numpy_helper.from_array(np.float32([[0.5], [1.5]]), "bias")],
    )
    node = helper.make_node(
        "Scan",
        ["s0", "x0", "x1"],
        ["y", "all"],
        body=body,
        num_scan_inputs=2,
        scan_input_axes=axes,
        scan_input_directions=[rng.randint(0, 1) for _ in range(2)],
        scan_output_axes=[rng.randrange(-3, 3)],
        scan_output_directions=[rng.randint(0, 1)],
    )
    everything = helper.make_tensor_value_info("all", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [state[3], *given], [state[4], everything])
    found = frontend.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))
    arrays = {
        v: np.random.default_rng(seed).standard_normal(found.types[v].shape).astype(np.float32)
        for v in found.inputs
    }
    wanted = _scanned(node, [arrays["x0"], arrays["x1"]], arrays["s0"], np.float32([[0.5], [1.5]]))
    with autotune.compile(found, threads=1) as module:
        for results in (evaluate.run(found, arrays), module.run(arrays)):
            for name, want in zip(found.outputs, wanted, strict=True):
                np.testing.assert_allclose(results[name], want, rtol=1e-4, atol=1e-5)


def _scanned(node: Any, xs: Sequence[Array], state: Array, bias: Array) -> tuple[Array, Array]:
    """Return the results of the node above: ONNX's reference knows neither axes nor directions."""
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    taken = [np.moveaxis(x, axis, 0) for x, axis in zip(xs, attrs["scan_input_axes"], strict=True)]
    taken = [x[::-1] if end else x for x, end in zip(taken, attrs["scan_input_directions"], strict=True)]
    found = []
    for a, b in zip(*taken, strict=True):
        state = np.tanh(a * state + b)
        found.append(state - bias)
    collected = np.stack(found[::-1] if attrs["scan_output_directions"][0] else found)
    return state, np.moveaxis(collected, 0, attrs["scan_output_axes"][0])


def test_sequences_leave_nothing_of_themselves() -> None:
    graph = check(
        model(
            """
            agraph (float[5, 3] x) => (float[k, 3] y, int64 n) <int64 two = {2}, int64 last = {-1}> {
                parts = SplitToSequence<axis = 0>(x, two)
                one = SequenceAt(parts, last)
                more = SequenceInsert(parts, one)
                less = SequenceErase(more)
                again = SequenceInsert(less, one, last)
                n = SequenceLength(again)
                y = ConcatFromSequence<axis = 0>(again)
            }
            """
        )
    )
    assert not any("Sequence" in node.op for node in graph.nodes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "y = SequenceConstruct(x, x)",
            "output 'y' is a sequence or an optional, and modules give tensors\n",
        ),
        (
            "s = SequenceConstruct(x) y = SequenceAt(s, i)",
            "position 3 is out of range; it may be from -1 to 0",
        ),
        (
            "s = SequenceConstruct(x) y = Relu(s)",
            "node 'y' (Relu): its input 's' is a sequence, which it does not",
        ),
        ("o = Optional<type = float[1]>() y = OptionalGetElement(o)", "the optional 'o' is empty"),
    ],
)
def test_what_sequences_refuse(text: str, message: str) -> None:
    with pytest.raises(ModelImportError) as caught:
        frontend.load(model(f"agraph (float[2] x) => (float[n] y) <int64 i = {{3}}> {{ {text} }}"))
    assert message in str(caught.value)


def test_loops_within_loops() -> None:
    inner = """Loop (five, , s) <body = inner (int64 j, bool b, float[2, 3] v) => (bool b, float[2, 3] v4)
        { v1 = Add(v, x) v2 = Tanh(v1) v3 = Mul(v2, s) v4 = Sin(v3) }>"""

    def nested(given: dict[str, Array]) -> list[Array]:
        s = given["x"]
        for _ in range(30):
            v = s
            for _ in range(20):
                v = np.sin(np.tanh(v + given["x"]) * s)
            s = v
        return [s]

    check(
        model(
            f"""
            agraph (float[2, 3] x) => (float[2, 3] y) <int64 m = {{30}}, int64 five = {{20}}> {{
                y = Loop (m, , x) <body = step (int64 i, bool c, float[2, 3] s) => (bool c, float[2, 3] t)
                    {{ t = {inner} }}>
            }}
            """
        ),
        nested,
    )


def test_a_body_of_another_shape_is_refused() -> None:
    proto = model(STEPS.format(steps=3))
    graph: GraphProto = proto.graph.node[0].attribute[0].g
    del graph.input[2:]
    with pytest.raises(
        ModelImportError, match="its body takes 2 values and gives 3; it should take 3 and give"
    ):
        frontend.load(proto)
