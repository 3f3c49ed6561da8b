"""Models with dynamic shapes: at every size the answer of the model compiled for exactly that size, or a refusal."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.cli import main as cli
from autotune.compiler.dynamic.axes import coordinates, regrouped
from autotune.compiler.dynamic.buckets import SizeRange, buckets
from autotune.compiler.dynamic.grown import GrownExtents
from autotune.errors import ArtifactError, InputError, PaddingError, UsageError
from autotune.frontends.models import load, open_shapes, read_model
from autotune.graph import evaluate
from autotune.graph.text_file import file_text
from autotune.runtime.axes import axis, axis_text, extents, parse_axis, real_part

RNG = np.random.default_rng(0)


def model(nodes, inputs, outputs, **constants):
    """A model of ``inputs`` (name -> dims), with constants."""
    given = [
        helper.make_tensor_value_info(n, TensorProto.INT64 if n == "ids" else TensorProto.FLOAT, d)
        for n, d in inputs.items()
    ]
    made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    arrays = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "open", given, made, arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def node(op, inputs, outputs, **attrs):
    return helper.make_node(op, inputs.split(), outputs.split(), name=outputs.split()[0], **attrs)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@cache
def encoder():
    """Embeddings, positions, two heads of attention, a pooled and a per-position answer."""
    return model(
        [
            node("Gather", "table ids", "e"),
            node("Shape", "ids", "dims"),
            node("Gather", "dims one", "seq"),
            node("Range", "zero seq one", "at"),
            node("Gather", "positions at", "p"),
            node("Add", "e p", "x"),
            node("Reshape", "x rows", "flat"),
            node("MatMul", "flat w", "q_flat"),
            node("Concat", "dims heads", "split", axis=0),
            node("Reshape", "q_flat split", "q4"),
            node("Transpose", "q4", "q", perm=[0, 2, 1, 3]),
            node("Transpose", "q4", "k", perm=[0, 2, 3, 1]),
            node("MatMul", "q k", "scores"),
            node("Softmax", "scores", "weights", axis=-1),
            node("MatMul", "weights q", "mixed"),
            node("Transpose", "mixed", "back", perm=[0, 2, 1, 3]),
            node("Reshape", "back joined", "y"),
            node("ReduceMean", "y middle", "pooled", keepdims=0),
            node("ReduceMax", "y middle", "most", keepdims=1),
        ],
        {"ids": ["batch", "seq"]},
        ["y", "pooled", "most"],
        table=normal(9, 8),
        positions=normal(40, 8),
        w=normal(8, 8),
        rows=np.array([-1, 8]),
        heads=np.array([2, 4]),
        joined=np.array([0, 0, 8]),
        middle=np.array([1]),
        zero=np.array(0),
        one=np.array(1),
    )


@cache
def images():
    return model(
        [
            node("Conv", "x k", "c", pads=[1, 1, 1, 1]),
            node("Relu", "c", "r"),
            node("MaxPool", "r", "m", kernel_shape=[2, 2], strides=[2, 2]),
            node("GlobalAveragePool", "m", "g"),
            node("Flatten", "g", "f"),
            node("Gemm", "f w b", "y", transB=1),
        ],
        {"x": ["n", 3, 8, 8]},
        ["y"],
        k=normal(4, 3, 3, 3),
        w=normal(5, 4),
        b=normal(5),
    )


def feeds(source, shapes):
    graph = load(source, shapes=shapes)
    return graph, {
        name: RNG.integers(0, 9, graph.type_of(name).shape)
        if name == "ids"
        else normal(*graph.type_of(name).shape)
        for name in graph.inputs
    }


def check(module, source, shapes):
    graph, inputs = feeds(source, shapes)
    wanted, found = evaluate.run(graph, inputs), module.run(inputs)
    for name, array in wanted.items():
        assert found[name].shape == array.shape
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-4 * max(1, np.abs(array).max()))


@pytest.fixture(scope="module")
def compiled():
    with autotune.compile_for_sizes(encoder(), {"batch": "1..4:4", "seq": "1..20:6,20"}, threads=2) as module:
        yield module


@pytest.mark.parametrize(("batch", "seq"), [(1, 1), (1, 6), (1, 7), (2, 3), (4, 20), (3, 19), (4, 6)])
def test_sequences_of_any_size(compiled, batch, seq):
    check(compiled, encoder(), {"ids": (batch, seq)})


def test_padding_is_nowhere_to_be_seen():
    """Not even where it is infinite: logarithms and reciprocals of zeros."""
    source = model(
        [
            node("Log", "x", "l"),
            node("ReduceSum", "l axes", "sum"),
            node("Reciprocal", "x", "r"),
            node("Transpose", "r", "t", perm=[1, 0]),
            node("MatMul", "r w", "part"),
            node("MatMul", "t x", "product"),
            node("ReduceProd", "r axes", "all"),
        ],
        {"x": ["n", 4]},
        ["sum", "part", "product", "all"],
        axes=np.array([0, 1]),
        w=normal(4, 3),
    )
    with autotune.compile_for_sizes(source, {"n": "1..8:8"}) as module:
        for n in (1, 5, 8):
            x = RNG.uniform(0.5, 2, (n, 4)).astype(np.float32)
            wanted, found = evaluate.run(load(source, shapes={"x": (n, 4)}), {"x": x}), module.run({"x": x})
            for name, array in wanted.items():
                np.testing.assert_allclose(found[name], array, rtol=1e-4, err_msg=name)


def test_batches_of_images_and_an_artifact(tmp_path):
    with autotune.compile_for_sizes(images(), {"n": "1..3:1,3"}) as module:
        assert module.sizes == {"n": [1, 3]}
        assert module.inputs[0].axes == ("n", "3", "8", "8")
        module.save(tmp_path / "images.atm")
        constants = {id(a) for image in module.compiled.images for a in image.constants}
        assert len(constants) < sum(len(image.constants) for image in module.compiled.images)
    with autotune.load(tmp_path / "images.atm") as module:
        for n in range(1, 4):
            check(module, images(), {"x": (n, 3, 8, 8)})


def test_requests_out_of_range_and_of_other_types(compiled):
    with pytest.raises(
        InputError, match=r"takes seq from 1 to 20, got 21; compile it for more: --shape seq=1\.\.21"
    ):
        compiled(np.zeros((1, 21), np.int64))
    with pytest.raises(InputError, match=r"input ids: int64\[batch, seq\] got int32\[1, 2\]"):
        compiled(np.zeros((1, 2), np.int32))
    with pytest.raises(InputError, match=r"input ids: int64\[batch, seq\] got int64\[3\]"):
        compiled(np.zeros(3, np.int64))
    with pytest.raises(InputError, match="takes 1 inputs, got 2"):
        compiled(np.zeros((1, 2), np.int64), 1)
    with pytest.raises(InputError, match=r"missing ids; unknown idx; .*; did you mean 'ids'"):
        compiled.run({"idx": 1})
    with pytest.raises(InputError, match=r"missing ids; expected ids: int64\[batch, seq\]"):
        compiled.run({})


def test_sizes_out_of_range_may_be_compiled_when_they_come(caplog):
    with autotune.compile_for_sizes(
        images(), {"n": "1..2:2"}, threads=1, on_miss="compile", kept=2
    ) as module:
        for n in (1, 3, 4, 3, 5):
            check(module, images(), {"x": (n, 3, 8, 8)})
        assert [key for (key,) in module.loaded._missed] == [3, 5]
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == 3
        assert said[0].startswith("'open' was compiled for n = 3, out of its ranges, in ")
        with pytest.raises(InputError, match=r"input x: .* got float32\[3, 3, 8, 9\]"):
            module(np.zeros((3, 3, 8, 9), np.float32))
    with autotune.compile(images(), shapes={"n": "1..2:2"}) as module:
        check(module, images(), {"x": (2, 3, 8, 8)})
    for wrong, why in (({"on_miss": "skip"}, "error or compile, not 'skip'"), ({"kept": 0}, "at least 1")):
        with pytest.raises(UsageError, match=why):
            autotune.compile_for_sizes(images(), {"n": "1..2:2"}, **wrong)


def test_requests_at_once_and_ever_smaller(compiled):
    """Nothing of an earlier request is left in the arrays that later ones are copied into."""
    from concurrent.futures import ThreadPoolExecutor

    shapes = [(4, 19), (2, 3), (3, 17), (1, 2), (4, 5), (1, 20)] * 4
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(check, compiled, encoder(), {"ids": shape}) for shape in shapes]:
            done.result()


def test_inputs_must_agree():
    source = model([node("Add", "a b", "y")], {"a": ["n"], "b": ["n"]}, ["y"])
    with (
        autotune.compile_for_sizes(source, {"n": "1..4:4"}) as module,
        pytest.raises(InputError, match=r"input b: float32\[n\] got float32\[3\] with n = 2"),
    ):
        module(np.zeros(2, np.float32), np.zeros(3, np.float32))


@pytest.mark.parametrize(
    ("nodes", "constants", "why"),
    [
        ([node("LayerNormalization", "x x x", "y", axis=0)], {}, "has a scale along n"),
        ([node("Reshape", "x four", "y")], {"four": np.array([2, -1])}, "a reshape to .* divides"),
        ([node("SpaceToDepth", "i", "y", blocksize=2)], {}, "the model is none with n = 7"),
        ([node("Pad", "x pads", "y", mode="wrap")], {"pads": np.array([1, 0, 1, 0])}, "pads by mode wrap"),
    ],
)
def test_what_would_look_at_padding_is_refused(nodes, constants, why):
    before = [
        node("Transpose", "x", "t", perm=[1, 0]),
        node("Reshape", "x image", "i"),
    ]
    source = model(
        [*before, *nodes],
        {"x": ["n", 4]},
        ["y"],
        image=np.array([1, 1, -1, 4]),
        **{name: np.asarray(value) for name, value in constants.items()},
    )
    with pytest.raises(PaddingError, match=why):
        list(buckets(source, {"n": SizeRange.parse("1..8:8")}))
    list(buckets(source, {"n": SizeRange.parse("4")}))  # exactly one size: nothing is padded


def test_ranges():
    assert SizeRange.parse("3..3").buckets == (3,)
    assert SizeRange.parse("3..20").buckets == (3, 4, 8, 16, 20)
    assert [SizeRange.parse("1..9:4,9").below(b) for b in (4, 9)] == [1, 5]
    assert SizeRange.parse("0..64:+32").buckets == (32, 64)
    assert SizeRange.parse("32..96:+32:64,96").below(96) == 96
    wrong_ones = {
        "x": "is no range",
        "0..0": "go up",
        "4..2": "go up",
        "1..9:4,8": "buckets",
        "0..9:1,9": "is for 2 or more",
        "1..9:9,4": "buckets",
        "32..100:+32": "lead to 96 and 128, not to 100",
        "32..96:+32:48,96": "sizes of the range, from 32 in steps of 32",
    }
    for wrong, why in wrong_ones.items():
        with pytest.raises(UsageError, match=why):
            SizeRange.parse(wrong)


def test_other_names_than_the_models():
    with pytest.raises(UsageError, match="leaves no size 'm' open\n  it leaves open: n"):
        list(buckets(images(), {"m": SizeRange.parse("1..2")}))
    with pytest.raises(UsageError, match="leaves more dimensions open: seq"):
        list(buckets(encoder(), {"batch": SizeRange.parse("1..2")}))
    unnamed = model([node("Relu", "x", "y")], {"x": [None, 4]}, ["y"])
    assert [b.sizes for b in buckets(unnamed, {"x.0": SizeRange.parse("1..2")})] == [{"x.0": 1}, {"x.0": 2}]


def test_axes():
    sizes = {"b": 4, "s": 6}
    grown = GrownExtents(sizes, {"b": 1, "s": 2}, {"s": 2})
    joined = (axis("b", "s"), axis(8))
    assert regrouped((("b",), ("s",), (8,)), (24, 8), grown) == joined
    assert regrouped(joined, (4, 6, 2, 4), grown) == (("b",), ("s",), (2,), (4,))
    assert regrouped(joined, (4, 48), grown) == (("b",), ("s", 8))
    assert regrouped(joined, (4, 3, 2, 8), grown) == (("b",), ("(s)/2",), (2,), (8,))
    mixed = axis("(2*((s+1)/2))", 3, "b")
    assert [parse_axis(axis_text(a)) for a in (*joined, (), mixed)] == [*joined, (), mixed]
    assert coordinates(("b", "s"), "s", sizes).tolist() == list(range(6)) * 4
    shape, slices, real = real_part(joined, sizes, {"b": 2, "s": 5})
    assert (shape, extents(joined, sizes), real) == ((4, 6, 8), (24, 8), (10, 8))
    assert np.zeros(shape)[slices].size == 80


def test_damaged_sizes_of_an_artifact(tmp_path, monkeypatch):
    from dataclasses import replace

    with autotune.compile_for_sizes(images(), {"n": "1..2"}) as module:
        good = module.compiled
    for bad in (
        replace(good, least={}),
        replace(good, cases=()),
        replace(good, cases=good.cases[::-1]),
        replace(good, outputs=("z",)),
        replace(good, cases=(good.cases[0], replace(good.cases[1], outputs=(("n", "7"),)))),
        replace(good, cases=(good.cases[0], replace(good.cases[1], given=("m",)))),
    ):
        with pytest.raises(ArtifactError):
            bad.verify()


def test_the_command_line(tmp_path, capsys):
    path, artifact = tmp_path / "images.onnx", str(tmp_path / "images.atm")
    path.write_bytes(images().SerializeToString())
    assert cli.run(["compile", str(path), "-o", artifact, "--shape", "n=1..3:3"]) == 0
    assert "for n = 3" in capsys.readouterr().out
    assert cli.run(["run", artifact, "--random", "--shape", "n=2"]) == 0
    assert "y: float32 2×5" in capsys.readouterr().out
    assert cli.run(["explain", artifact]) == 0
    assert "for requests of 1 bucket of sizes, n from 1" in capsys.readouterr().out
    assert cli.run(["run", artifact, "--random", "--shape", "m=2"]) == 2
    assert "this artifact has sizes such as n=3" in capsys.readouterr().err
    traced = ["--trace", str(tmp_path / "t.json"), "--profile", "--repeat", "2"]
    assert cli.run(["run", artifact, "--random", "--shape", "n=2", *traced]) == 0
    assert "Conv" in capsys.readouterr().out or (tmp_path / "t.json").stat().st_size
    twice = ["--target", "x86-64", "--target", "x86-64-v2"]
    assert cli.run(["compile", str(path), "-o", artifact, "--shape", "n=1..3:3", *twice]) == 0
    assert "for x86-64-v2, n = 3" in capsys.readouterr().out
    assert cli.run(["explain", artifact]) == 0
    assert "for requests of 1 bucket of sizes, n from 1\nn = 3: x86-64, " in capsys.readouterr().out
    for more, why in (
        (["--shape", "x=2x3"], "does not fit input 'x'"),
        (["--shape", "x=2x3x8x8"], "the size 'n' of"),
    ):
        assert cli.run(["tune", str(path), "--shape", "n=1..3", *more]) == 2
        assert why in capsys.readouterr().err
    for command in (["tune", str(path)], ["compile", str(path), "-o", artifact]):
        assert cli.run([*command, "--shape", "x=1x3x8x8", "--traffic", str(path)]) == 2
        assert "without a range of sizes" in capsys.readouterr().err


def written(tmp_path, source, *options):
    onnx.save(source, tmp_path / "open.onnx")
    arguments = ["explain", str(tmp_path / "open.onnx"), "--text", str(tmp_path / "open.txt"), *options]
    return cli.run(arguments)


@pytest.mark.parametrize("make", [encoder, images])
def test_a_text_leaves_sizes_open_and_is_the_model_at_each(tmp_path, make):
    source = make()
    assert written(tmp_path, source) == 0
    symbols = [
        name for shape in open_shapes(read_model(source)).values() for name in shape if isinstance(name, str)
    ]
    for sizes in ((1, 2), (2, 1), (3, 9)):
        shapes = dict(zip(symbols, sizes, strict=False))
        found, wanted = load(tmp_path / "open.txt", shapes=shapes), load(source, shapes=shapes)
        given = {v: found.type_of(v) for v in wanted.inputs}
        inputs = {
            v: np.ones(t.shape, t.dtype) if t.dtype == "int64" else normal(*t.shape) for v, t in given.items()
        }
        computed, expected = evaluate.run(found, inputs), evaluate.run(wanted, inputs)
        for name, array in expected.items():
            np.testing.assert_array_equal(computed[name], array)
        assert make is encoder or file_text(found, "c") == file_text(wanted, "c")


def test_a_text_has_the_sizes_that_were_given(tmp_path, capsys):
    flat = model(
        [node("Reshape", "x rows", "y")], {"x": ["b", "s", 4]}, ["y"], rows=np.array([-1, 4], np.int64)
    )
    assert written(tmp_path, flat, "--shape", "b=1..4") == 0
    assert "float32[b*s, 4]" in (tmp_path / "open.txt").read_text()
    assert written(tmp_path, flat, "--shape", "s=3", "--shape", "b=1..4") == 0
    text = (tmp_path / "open.txt").read_text()
    assert "input x: float32[b, 3, 4]" in text
    assert "float32[3*b, 4]" in text
    assert written(tmp_path, flat, "--shape", "s=3", "--shape", "b=2") == 0
    assert "input x: float32[2, 3, 4]" in (tmp_path / "open.txt").read_text()


def test_a_model_that_has_no_one_text_is_refused(tmp_path, capsys):
    squares = model(
        [node("Shape", "x", "dims"), node("Mul", "dims dims", "more"), node("Expand", "one more", "y")],
        {"x": ["n"]},
        ["y"],
        one=np.ones(1, np.float32),
    )
    assert written(tmp_path, squares) == 2
    assert "which is no sum and no product of them" in capsys.readouterr().err
    assert not (tmp_path / "open.txt").exists()


def test_what_is_dumped_for_each_size_compiles_again(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOTUNE_DUMP", str(tmp_path))
    autotune.compile_for_sizes(images(), {"n": "1..3:1,3"}, threads=1).close()
    monkeypatch.delenv("AUTOTUNE_DUMP")
    for n in (1, 3):
        texts = sorted((tmp_path / "open" / f"n_{n}").glob("[0-9]*.txt"))
        assert len(texts) > 10
        x = normal(n, 3, 8, 8)
        first, *_, last = (
            evaluate.run(load(path), {"x": x} | {s: np.array(n) for s in load(path).inputs if s != "x"})
            for path in (texts[0], texts[-1])
        )
        for name, array in first.items():
            np.testing.assert_allclose(array, last[name], 1e-4, 1e-5)
