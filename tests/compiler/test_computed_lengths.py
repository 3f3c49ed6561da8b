"""Lengths that a model computes in the middle of its graph, beside ONNX's reference: nothing found, one, all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import autotune
from autotune.compiler.dynamic.grown import GrownExtents
from autotune.compiler.dynamic.load import load
from autotune.errors import InputError, ModelImportError
from autotune.graph import evaluate
from autotune.runtime.counted import CountedOutput, parts

RNG = np.random.default_rng(5)


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), **attrs)


def model(nodes: list[Any], shape: tuple[int, ...], outputs: str, **constants: Any) -> Any:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    made = [helper.make_empty_tensor_value_info(name) for name in outputs.split()]
    stored = [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()]
    graph = helper.make_graph(nodes, "g", [x], made, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def random(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def check(made: Any, inputs: list[Any], bounds: dict[str, int] | None = None) -> None:
    """Compare the graph by NumPy, and its machine code, with ONNX's reference."""
    graph, reference = load(made, shapes=bounds), ReferenceEvaluator(made)
    counted = [CountedOutput(*each) for each in graph.counted]
    module = autotune.compile(made, shapes=bounds, threads=1)
    for x in inputs:
        values = evaluate.run(graph, {"x": x})
        found = parts([values[name] for name in graph.outputs], counted)
        for wanted, one, other in zip(reference.run(None, {"x": x}), found, module(x), strict=False):
            np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(other, wanted, rtol=1e-5, atol=1e-6)


def test_rows_of_an_expert() -> None:
    """Rows that a condition chooses go through products, and back to where they came from."""
    nodes = [
        node("ReduceSum", "x columns", "sums", keepdims=0),
        node("Greater", "sums zero", "chosen"),
        node("NonZero", "chosen", "places"),
        node("Squeeze", "places rows", "index"),
        node("Gather", "x index", "own", axis=0),
        node("MatMul", "own weights", "scores"),
        node("Softmax", "scores", "over_rows", axis=0),
        node("ReduceSum", "scores rows", "total", keepdims=0),
        node("ReduceSum", "over_rows rows", "ones", keepdims=0),
        node("ReduceMean", "scores columns", "means", keepdims=0),
        node("Shape", "index", "count"),
        node("Concat", "count one", "shape", axis=0),
        node("Expand", "three shape", "threes"),
        node("Reshape", "own all", "flat"),
        node("Unsqueeze", "index columns", "coordinates"),
        node("ScatterND", "zeros coordinates scores", "back"),
        node("GatherND", "x coordinates", "again"),
    ]
    made = model(
        nodes,
        (6, 5),
        "back over_rows total ones means threes flat count again",
        columns=[1],
        rows=[0],
        one=[1],
        all=[-1],
        zero=np.float32(0),
        three=np.float32(3),
        weights=random(5, 3),
        zeros=np.zeros((6, 3), np.float32),
    )
    one = -np.ones((6, 5), np.float32)
    one[3] = 1
    check(made, [random(6, 5), random(6, 5), one, np.ones((6, 5), np.float32), -np.ones((6, 5), np.float32)])


def test_rows_of_no_expert() -> None:
    """Of nothing products are empty, sums zero, and nothing is written."""
    nodes = [
        node("Greater", "x zero", "chosen"),
        node("Compress", "x chosen", "own", axis=0),
        node("ReduceSum", "own", "total", keepdims=0),
        node("NonZero", "chosen", "places"),
        node("Squeeze", "places rows", "index"),
        node("ScatterElements", "x index own", "back", reduction="add"),
        node("Size", "own", "size"),
    ]
    made = model(nodes, (7,), "own total back size", zero=np.float32(0), rows=[0])
    check(made, [random(7), -np.ones(7, np.float32), np.ones(7, np.float32)])


def test_joined_again() -> None:
    """Two parts of a row are computed with apart, joined, and sorted back."""
    nodes = [
        node("Greater", "x zero", "above"),
        node("Not", "above", "below"),
        node("NonZero", "above", "above_places"),
        node("NonZero", "below", "below_places"),
        node("Squeeze", "above_places first", "a"),
        node("Squeeze", "below_places first", "b"),
        node("Gather", "x a", "own_a"),
        node("Gather", "x b", "own_b"),
        node("Mul", "own_a two", "doubled"),
        node("Neg", "own_b", "negated"),
        node("ScatterElements", "zeros a doubled", "written"),
        node("ScatterElements", "written b negated", "both"),
        node("Concat", "doubled negated", "joined", axis=0),
        node("Concat", "a b", "order", axis=0),
        node("Cast", "order", "keys", to=TensorProto.FLOAT),
        node("Shape", "joined", "count"),
        node("TopK", "keys count", "sorted index", largest=0),
        node("Gather", "joined index", "back"),
        node("Unique", "doubled", "distinct first_of number often"),
        node("GatherElements", "joined index", "same_back"),
        node("Slice", "joined first fifth", "five"),
        node("Shape", "five", "five_long"),
        node("Expand", "two five_long", "twos"),
    ]
    made = model(
        nodes,
        (9,),
        "both joined back distinct often same_back five twos",
        zero=np.float32(0),
        two=np.float32(2),
        first=[0],
        fifth=[5],
        zeros=np.zeros(9, np.float32),
    )
    mixed = [random(9).round(), np.array([0, 0, 0, 0, 1, 0, 0, 0, 0], np.float32)]
    check(made, [*mixed, -np.ones(9, np.float32), np.ones(9, np.float32)])


def test_lengths_that_stop_growing() -> None:
    """An extent that stops at a number is told apart from one that stops at another, and from a part of a length."""
    grown = GrownExtents({"n": 16, "m": 16}, {"n": 0, "m": 0}, {}, ("n", "m"))
    sizes = [{"n": 16, "m": 16}, {"n": 14, "m": 9}, {"n": 7, "m": 8}, {"n": 2, "m": 5}, {"n": 1, "m": 1}]
    sizes += [{"n": 0, "m": 1}, {"n": 1, "m": 0}, {"n": 0, "m": 0}]
    for most in (8, 3):
        assert grown.fitted([(at, min(at["n"], most)) for at in sizes], "") == (f"min(n,{most})",)
    grown.one("m+n")
    assert grown.fitted([(at, min(at["n"] + at["m"], 5)) for at in sizes], "") == ("min(m+n,5)",)
    assert grown.fitted([(at, 2 * at["m"] + 1) for at in sizes], "") == ("(2*m+1)",)
    assert grown.fitted([(at, at["m"] * at["n"]) for at in sizes], "") is None


def test_numbers_that_stop_at_one() -> None:
    """The size of the first of what is found is none where nothing is."""
    nodes = [
        node("NonZero", "x", "places"),
        node("Slice", "places zero one one", "first"),
        node("Size", "first", "many"),
    ]
    made = model(nodes, (6,), "many", zero=[0], one=[1])
    check(made, [np.zeros(6, np.float32), np.ones(6, np.float32)])


def boxes(count: int) -> Any:
    found = RNG.uniform(0, 1, (1, count, 7)).astype(np.float32)
    return found * np.array([8, 8, 3, 3, 1, 1, 1], np.float32)


def test_regions_of_a_detector() -> None:
    """Boxes that are left are pooled, classified, and the best of them are taken, as many as there are."""
    one = helper.make_tensor("zero", TensorProto.INT64, [1], [0])
    nodes = [
        node("Slice", "x from0 from4 last", "boxes"),
        node("Slice", "x from4 from7 last", "by_box"),
        node("Transpose", "by_box", "scores", perm=[0, 2, 1]),
        node("NonMaxSuppression", "boxes scores most iou least", "selected", center_point_box=1),
        node("Gather", "selected last", "columns", axis=1),
        node("Squeeze", "columns second", "index"),
        node("Squeeze", "boxes from0", "rows"),
        node("Gather", "rows index", "kept", axis=0),
        node("Shape", "index", "count"),
        node("ConstantOfShape", "count", "images", value=one),
        node("RoiAlign", "image kept images", "pooled", output_height=2, output_width=2, sampling_ratio=2),
        node("Reshape", "pooled flat", "features"),
        node("MatMul", "features weights", "logits"),
        node("Softmax", "logits", "classes", axis=1),
        node("ReduceMax", "classes second", "best", keepdims=0),
        node("Min", "count five", "few"),
        node("TopK", "best few", "values order"),
        node("Gather", "kept order", "taken", axis=0),
        node("Slice", "kept from0 from4 from0", "first_four"),
    ]
    made = model(
        nodes,
        (1, 20, 7),
        "kept classes values taken first_four",
        from0=[0],
        from4=[4],
        from7=[7],
        last=[2],
        second=[1],
        most=[8],
        iou=np.float32([0.3]),
        least=np.float32([0.5]),
        image=random(1, 3, 8, 8),
        flat=[-1, 12],
        weights=random(12, 3),
        five=[5],
    )
    check(made, [boxes(20), boxes(20), boxes(20) * np.float32(0.6), np.zeros((1, 20, 7), np.float32)])


def regulator() -> Any:
    """Rows repeated by durations: the length of the result is their sum."""
    nodes = [
        node("Ceil", "x", "whole"),
        node("Abs", "whole", "positive"),
        node("Cast", "positive", "durations", to=TensorProto.INT64),
        node("ReduceSum", "durations first", "total", keepdims=0),
        node("CumSum", "durations zero", "ends"),
        node("Range", "zero total one", "steps"),
        node("Unsqueeze", "steps second", "column"),
        node("Unsqueeze", "ends first", "row"),
        node("GreaterOrEqual", "column row", "past"),
        node("Cast", "past", "ones", to=TensorProto.INT64),
        node("ReduceSum", "ones second", "index", keepdims=0),
        node("Gather", "features index", "rows", axis=0),
        node("Transpose", "rows", "turned", perm=[1, 0]),
        node("Unsqueeze", "turned first", "image"),
        node("Conv", "image kernel", "filtered", pads=[1, 1]),
        node("ReduceMean", "filtered third", "mean", keepdims=0),
    ]
    return model(
        nodes,
        (7,),
        "rows filtered mean",
        first=[0],
        second=[1],
        third=[2],
        zero=np.int64(0),
        one=np.int64(1),
        features=random(7, 4),
        kernel=random(2, 4, 3),
    )


def test_durations_say_the_length() -> None:
    made = regulator()
    check(made, [RNG.uniform(-4, 4, 7).astype(np.float32) for _ in range(3)], {"total": 40})


def test_a_bound_that_is_missing_or_exceeded() -> None:
    made = regulator()
    with pytest.raises(ModelImportError, match=r"(?s)'total' is a length .* --shape total=1024"):
        load(made)
    module = autotune.compile(made, shapes={"total": 16}, threads=1)
    assert module(np.full(7, 2, np.float32))[0].shape == (14, 4)
    with pytest.raises(InputError):
        module(np.full(7, 3, np.float32))


def test_halves_of_a_length() -> None:
    nodes = [node("NonZero", "x", "places"), node("Split", "places", "a b", axis=1, num_outputs=2)]
    most = random(3, 4)
    check(model(nodes, (3, 4), "a b"), [np.where(most > at, most, 0) for at in (-9, -0.5, 0, 0.5, 1, 9)])


@pytest.mark.parametrize("by", [2, 3, 5, 7])
def test_parts_of_a_length_are_told_apart(by: int) -> None:
    """A third of a length and five sixteenths of it agree at most lengths."""
    nodes = [
        node("NonZero", "x", "places"),
        node("Shape", "places", "count", start=1),
        node("Div", "count by", "part"),
        node("Expand", "one part", "y"),
    ]
    graph = load(model(nodes, (12,), "y", by=[by], one=np.float32(1)))
    for count in range(13):
        values = evaluate.run(graph, {"x": (np.arange(12) < count).astype(np.float32)})
        assert values[graph.outputs[1]] == count // by


def test_what_still_cannot_be() -> None:
    nodes = [
        node("NonZero", "x", "places"),
        node("Size", "places", "size"),
        node("Mul", "size size", "square"),
        node("Unsqueeze", "square rows", "shape"),
        node("Expand", "one shape", "y"),
    ]
    with pytest.raises(ModelImportError, match="no one expression in these gives it") as error:
        load(model(nodes, (3, 4), "y", rows=[0], one=np.float32(1)))
    assert "step of the range" not in str(error.value)
    assert len(str(error.value).splitlines()) <= 4


def test_beside_open_sizes() -> None:
    """Of a request's rows those that a condition chooses: of as many as it has."""
    nodes = [
        node("ReduceSum", "x columns", "sums", keepdims=0),
        node("Greater", "sums zero", "chosen"),
        node("NonZero", "chosen", "places"),
        node("Transpose", "places", "coordinates", perm=[1, 0]),
        node("GatherND", "x coordinates", "own"),
        node("MatMul", "own weights", "scores"),
        node("Softmax", "scores", "over_rows", axis=0),
        node("ScatterND", "x coordinates scores", "back"),
        node("ReduceSum", "scores rows", "total", keepdims=0),
    ]
    made = model(
        nodes,
        ("rows", 3),  # type: ignore[arg-type]
        "over_rows back total",
        columns=[1],
        rows=[0],
        zero=np.float32(0),
        weights=random(3, 3),
    )
    reference, module = (
        ReferenceEvaluator(made),
        autotune.compile_for_sizes(made, {"rows": "1..40:8,40"}, threads=1),
    )
    for rows in (1, 5, 8, 23, 40):
        for x in (random(rows, 3), -np.ones((rows, 3), np.float32), np.ones((rows, 3), np.float32)):
            for found, wanted in zip(module(x), reference.run(None, {"x": x}), strict=False):
                np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
