"""Caches that grow along an axis, and numbers that a model makes of its sizes: the answers of fixed sizes."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.cli import main as cli
from autotune.compiler.dynamic.buckets import SizeRange, buckets
from autotune.errors import PaddingError, UsageError
from autotune.frontends.onnx.importer import load
from autotune.graph import evaluate
from autotune.runtime.axes import size_of, sum_of, terms_of

RNG = np.random.default_rng(0)
INT64, FLOAT = TensorProto.INT64, TensorProto.FLOAT


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def node(op, inputs, outputs, **attrs):
    return helper.make_node(op, inputs.split(), outputs.split(), name=outputs.split()[0], **attrs)


def model(nodes, inputs, outputs, **constants):
    given = [
        helper.make_tensor_value_info(n, INT64 if n in ("ids", "mask") else FLOAT, d)
        for n, d in inputs.items()
    ]
    made = [helper.make_tensor_value_info(n, FLOAT, None) for n in outputs]
    arrays = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "open", given, made, arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


@cache
def decoder(mask="Less"):
    """One block: words and positions, keys and values behind those of the cache, attention to what was before."""
    masks = {
        "Less": [
            node("Unsqueeze", "at last", "rows"),
            node("GreaterOrEqual", "rows all_at", "seen"),
            node("Where", "seen none far", "bias"),
        ],
        "Trilu": [
            node("Unsqueeze", "seq zeros", "seq_1"),
            node("Unsqueeze", "total zeros", "total_1"),
            node("Concat", "seq_1 total_1", "square", axis=0),
            node(
                "ConstantOfShape", "square", "all_far", value=numpy_helper.from_array(np.full(1, -1e30, "f"))
            ),
            node("Add", "past one", "diagonal"),
            node("Trilu", "all_far diagonal", "bias", upper=1),
        ],
    }[mask]
    return model(
        [
            node("Shape", "ids", "ids_dims"),
            node("Gather", "ids_dims one", "seq"),
            node("Shape", "past_key", "past_dims", start=1, end=2),
            node("Squeeze", "past_dims zeros", "past"),
            node("Add", "past seq", "total"),
            node("Range", "past total one", "at"),
            node("Range", "zero total one", "all_at"),
            *masks,
            node("Gather", "table ids", "e"),
            node("Gather", "positions at", "p"),
            node("Add", "e p", "x"),
            node("MatMul", "x w_q", "q"),
            node("MatMul", "x w_k", "k"),
            node("MatMul", "x w_v", "v"),
            node("Concat", "past_key k", "key", axis=1),
            node("Concat", "past_value v", "value", axis=1),
            node("Transpose", "key", "turned", perm=[0, 2, 1]),
            node("MatMul", "q turned", "raw"),
            node("Add", "raw bias", "scores"),
            node("Softmax", "scores", "weights", axis=-1),
            node("MatMul", "weights value", "mixed"),
            node("Gather", "mixed minus_one", "y", axis=1),
        ],
        {"ids": ["batch", "seq"], "past_key": ["batch", "past", 8], "past_value": ["batch", "past", 8]},
        ["y", "key", "value"],
        table=normal(9, 8),
        positions=normal(64, 8),
        w_q=normal(8, 8),
        w_k=normal(8, 8),
        w_v=normal(8, 8),
        zeros=np.array([0]),
        last=np.array([-1]),
        minus_one=np.array(-1),
        zero=np.array(0),
        one=np.array(1),
        none=np.zeros((), np.float32),
        far=np.array(-1e30, np.float32),
    )


def request(batch, seq, past):
    return {
        "ids": RNG.integers(0, 9, (batch, seq)),
        "past_key": normal(batch, past, 8),
        "past_value": normal(batch, past, 8),
    }


def check(module, source, inputs):
    wanted = evaluate.run(load(source, shapes={n: a.shape for n, a in inputs.items()}), inputs)
    found = module.run(inputs)
    for name, array in wanted.items():
        assert found[name].shape == array.shape
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module", params=["Less", "Trilu"])
def decoding(request):
    sizes = {"batch": "1..2:2", "seq": "1..4:1,4", "past": "0..24:6,24"}
    with autotune.compile_for_sizes(decoder(request.param), sizes, threads=2) as module:
        yield request.param, module


@pytest.mark.parametrize(
    ("batch", "seq", "past"), [(2, 1, 6), (1, 1, 1), (1, 4, 5), (2, 3, 7), (1, 2, 23), (2, 4, 24)]
)
def test_keys_of_any_number(decoding, batch, seq, past):
    mask, module = decoding
    inputs = request(batch, seq, past)
    check(module, decoder(mask), inputs)
    key = module.run(inputs)["key"]
    np.testing.assert_array_equal(key[:, :past], inputs["past_key"])


def test_decoding_from_nothing_through_all_buckets(decoding):
    """Step by step is the same as all words at once; code is loaded once for a bucket."""
    _, module = decoding
    words = RNG.integers(0, 9, (2, 24))
    key, value = np.zeros((2, 0, 8), np.float32), np.zeros((2, 0, 8), np.float32)
    at_once = module(words[:, :4], key, value)
    for at in range(24):
        y, key, value = module(words[:, at : at + 1], key, value)
        if at == 3:
            for stepped, whole in zip((y, key, value), at_once, strict=True):
                np.testing.assert_allclose(stepped, whole, rtol=1e-4, atol=1e-4)
    assert key.shape == (2, 24, 8)
    assert len(module.loaded._places) <= len(module.compiled.cases)


def test_a_cache_that_is_bound_to_its_memory(decoding):
    """Keys and values are read from and written to views of the same memory, whatever bucket a step takes."""
    _, module = decoding
    words = RNG.integers(0, 9, (2, 26))
    key, value = np.zeros((2, 0, 8), np.float32), np.zeros((2, 0, 8), np.float32)
    bound = [np.full((2, 28, 8), np.nan, np.float32) for _ in range(2)]
    y = np.empty((2, 8), np.float32)
    for at in range(25):
        step = words[:, at : at + 1]
        wanted, key, value = module(step, key, value)
        old, new = [each[:, :at] for each in bound], [each[:, : at + 1] for each in bound]
        found = module(step, *old, out=[y, *new])
        assert all(a is b for a, b in zip(found, [y, *new], strict=True))
        for mine, other in zip((y, *new), (wanted, key, value), strict=True):
            np.testing.assert_array_equal(mine, other)
    # Requests of a bucket's sizes were among them, and of others.
    assert {plan.is_whole for plan in module.loaded._plans.values()} == {True, False}


def masked(nodes, **constants):
    """The beginning is a mask of past and new ones, under a name of its own or as a sum."""
    return model(
        [node("Concat", "past new", "x", axis=0), node("Cast", "mask", "m", to=FLOAT), *nodes],
        {"past": ["n", 4], "new": [1, 4], "mask": ["all"]},
        ["y"],
        **constants,
    )


def test_a_size_that_follows_from_another():
    source = masked([node("MatMul", "m x", "y")])
    with autotune.compile_for_sizes(source, {"n": "1..9:9", "all": "n+1"}) as module:
        assert [str(spec) for spec in module.inputs][2] == "mask: int64[n+1]"
        for n in (1, 4, 9):
            check(
                module, source, {"past": normal(n, 4), "new": normal(1, 4), "mask": RNG.integers(0, 2, n + 1)}
            )
        with pytest.raises(
            autotune.errors.InputError, match=r"mask: int64\[n\+1\] got int64\[3\] with n = 3"
        ):
            module(normal(3, 4), normal(1, 4), np.zeros(3, np.int64))
    with pytest.raises(UsageError, match="all=m-1 is no sum of dynamic dimensions"):
        autotune.compile_for_sizes(source, {"n": "1..9:9", "all": "m-1"})
    with pytest.raises(UsageError, match="leaves no size 'm' open"):
        autotune.compile_for_sizes(source, {"n": "1..9:9", "m": "n+1"})


def test_a_sum_that_the_exporter_wrote(tmp_path, capsys):
    source = masked([node("MatMul", "m x", "y")])
    source.graph.input[2].type.tensor_type.shape.dim[0].dim_param = "n + 1"
    path, artifact = tmp_path / "grows.onnx", str(tmp_path / "grows.atm")
    path.write_bytes(source.SerializeToString())
    assert cli.run(["compile", str(path), "-o", artifact, "--shape", "n=0..4:4"]) == 0
    with autotune.load(artifact) as module:
        check(module, source, {"past": normal(3, 4), "new": normal(1, 4), "mask": RNG.integers(0, 2, 4)})
        (y,) = module(normal(0, 4), new := normal(1, 4), np.ones(1, np.int64))
        np.testing.assert_allclose(y, new[0], rtol=1e-5)
    assert cli.run(["run", artifact, "--random", "--shape", "n=2"]) == 0


def test_places_that_depend_on_sizes():
    nodes = [
        node("Gather", "x last", "from_end"),
        node("Gather", "x first", "from_front"),
        node("Slice", "x m2 far", "last_two"),
        node("Slice", "x one far", "but_first"),
        node("Slice", "x zero m1", "but_last"),
        node("Slice", "x m1 back zero m1", "backwards"),
        node("Slice", "table size two_more", "of_a_table"),
        node("Concat", "x x", "twice", axis=0),
        node("Concat", "head x", "behind", axis=0),
        node("Concat", "x head x", "between", axis=0),
        node("Cast", "size", "c", to=FLOAT),
        node("Sqrt", "c", "root"),
        node("Div", "x root", "scaled"),
        node("Range", "nought n i", "r"),
        node("Cast", "r", "weights", to=FLOAT),
        node("MatMul", "weights x", "weighted"),
        node("Size", "x", "elements"),
        node("Cast", "elements", "number", to=FLOAT),
    ]
    outputs = (
        "from_end from_front last_two but_first but_last backwards of_a_table twice behind between scaled"
    )
    source = model(
        [
            node("Shape", "x", "size", end=1),
            node("Squeeze", "size zero", "n"),
            node("Add", "size two", "two_more"),
            *nodes,
        ],
        {"x": ["n", 4]},
        [*outputs.split(), "weighted", "number"],
        last=np.array([-1, -2]),
        first=np.array([0, 1]),
        m2=np.array([-2]),
        m1=np.array([-1]),
        zero=np.array([0]),
        one=np.array([1]),
        two=np.array([2]),
        nought=np.array(0),
        i=np.array(1),
        far=np.array([1 << 40]),
        back=np.array([-(1 << 40)]),
        table=normal(40, 3),
        head=normal(2, 4),
    )
    with autotune.compile_for_sizes(source, {"n": "2..9:9"}) as module:
        for n in (2, 5, 8, 9):
            check(module, source, {"x": normal(n, 4)})


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([node("Gather", "x ids", "y")], r"looks up 3 along n, of which 2 may be all"),
        (
            [node("Reshape", "x flat", "f"), node("Gather", "f nine", "y")],
            r"looks up 9 along n, of which 8 may be all",
        ),
        ([node("GatherND", "x ids", "y")], r"looks up 3 along n, of which 2 may be all"),
    ],
)
def test_what_is_not_there_at_the_least_size_is_refused(nodes, why):
    source = model(
        nodes,
        {"x": ["n", 4]},
        ["y"],
        ids=np.array([3]),
        nine=np.array([9]),
        flat=np.array([-1]),
    )
    with pytest.raises(PaddingError, match=why):
        list(buckets(source, {"n": SizeRange.parse("2..8:8")}))


def test_the_first_few_of_what_may_be_fewer():
    nodes = [node("Slice", "x zeros ids", "y")]
    source = model(nodes, {"x": ["n", 4]}, ["y"], ids=np.array([3]), zeros=np.array([0]))
    with autotune.compile_for_sizes(source, {"n": "2..90:20,90"}, threads=1) as module:
        for n in (2, 3, 4, 9, 20, 21, 90):
            check(module, source, {"x": normal(n, 4)})


def test_indices_of_places_in_joined_axes():
    """Row times length plus place, as exporters write a look-up by two indices."""
    source = model(
        [
            node("Shape", "mask", "dims"),
            node("Gather", "dims zero", "b"),
            node("Gather", "dims one", "s"),
            node("Range", "zero b one", "rows"),
            node("Range", "zero s one", "places"),
            node("Mul", "rows s", "begins"),
            node("Unsqueeze", "begins last", "column"),
            node("Add", "column places", "flat_ids"),
            node("Reshape", "mask minus", "flat"),
            node("Gather", "flat flat_ids", "found"),
            node("Cast", "found", "c", to=FLOAT),
            node("ReduceSum", "c last", "y", keepdims=0),
            node("Unsqueeze", "rows last", "row"),
            node("Expand", "row dims", "all_rows"),
            node("Expand", "places dims", "all_places"),
            node("Unsqueeze", "all_rows last", "r"),
            node("Unsqueeze", "all_places last", "p"),
            node("Concat", "r p", "coordinates", axis=-1),
            node("GatherND", "mask coordinates", "same"),
            node("Cast", "same", "z", to=FLOAT),
        ],
        {"mask": ["batch", "seq"]},
        ["y", "z"],
        zero=np.array(0),
        one=np.array(1),
        last=np.array([-1]),
        minus=np.array([-1]),
    )
    with autotune.compile_for_sizes(source, {"batch": "1..3:3", "seq": "1..7:7"}) as module:
        for batch, seq in ((1, 1), (2, 5), (3, 7), (3, 2)):
            check(module, source, {"mask": RNG.integers(0, 9, (batch, seq))})


def test_sums_of_sizes():
    assert sum_of(["seq", "past"], -1) == "past+seq+-1"
    assert terms_of("past+seq+-1") == (("past", "seq"), -1)
    assert size_of("past+seq+-1", {"past": 3, "seq": 4}) == 6
    assert [SizeRange.parse(text).buckets for text in ("0..5:5",)] == [(5,)]
    assert SizeRange.parse("0..5").buckets == (2, 4, 5)
    with pytest.raises(UsageError, match="takes a size of 0 is for 2 or more, got 1"):
        SizeRange.parse("0..5:1,5")
