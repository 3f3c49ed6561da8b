"""Small files that ask for any amount of work or memory at import: one error, at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.compiler.dividing import divide
from autotune.errors import ModelImportError
from autotune.frontends.models import load
from autotune.frontends.onnx.budget import MAX_EXPANDED
from autotune.passes.pipeline import run_passes, standard_passes

HUGE = 2**31
node = helper.make_node


def info(name: str, shape: Any, element: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, element, shape)


def model(nodes: Any, shape: Any, opset: int = 18, functions: Any = (), **constants: Any) -> onnx.ModelProto:
    """A model of one input ``x`` and one output ``y``; the output's type is left open."""
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    y = onnx.ValueInfoProto(name="y")
    graph = helper.make_graph(nodes, "g", [info("x", shape)], [y], stored)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=8)


def resized(shape: Any = (1, 1, 4, 4), last: int = HUGE, **attributes: Any) -> onnx.ModelProto:
    sizes, roi = np.array([1, 1, 4, last]), np.array([0, 0, 0, 0, 1, 1, 1, 1], np.float32)
    resize = node("Resize", ["x", "roi", "", "sizes"], ["y"], **attributes)
    return model([resize], shape, sizes=sizes, roi=roi)


def einsum(equation: str) -> onnx.ModelProto:
    return model([node("Einsum", ["x"], ["y"], equation=equation)], (2, 3))


def loop(trips: int, *body: Any, carried: str = "x") -> onnx.ModelProto:
    inputs = [info("i", (), TensorProto.INT64), info("c", (), TensorProto.BOOL), info("a", (2,))]
    outputs = [info("going", (), TensorProto.BOOL), info("b", (2,))]
    graph = helper.make_graph([node("Identity", ["c"], ["going"]), *body], "body", inputs, outputs)
    looped = node("Loop", ["trips", "", carried], ["z"], body=graph)
    ones = np.ones(2, np.float32)
    return model([looped, node("Add", ["x", "z"], ["y"])], (2,), trips=np.array(trips), ones=ones)


def call(name: str, given: str, result: str) -> Any:
    return node(name, [given], [result], domain="own")


def function(name: str, *nodes: Any) -> Any:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a"], ["b"], list(nodes), opsets)


def doubling(depth: int) -> onnx.ModelProto:
    """Functions of which each calls the next one twice."""
    made = [function(f"F{n}", call(f"F{n + 1}", "a", "t"), call(f"F{n + 1}", "t", "b")) for n in range(depth)]
    last = function(f"F{depth}", node("Relu", ["a"], ["b"]))
    return model([call("F0", "x", "y")], (2,), functions=[*made, last])


ITERATED = (node("Cast", ["i"], ["f"], to=TensorProto.FLOAT), node("Add", ["a", "f"], ["b"]))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (resized(mode="linear", antialias=1), "2147483648 elements along axis 3; at most 1048576"),
        (resized(mode="cubic", exclude_outside=1), "2147483648 elements along axis 3; at most 1048576"),
        (
            resized(mode="linear", coordinate_transformation_mode="tf_crop_and_resize"),
            "2147483648 elements along axis 3; at most 1048576",
        ),
        (resized((1, 1, 4, 2**28), 4, mode="linear", antialias=1), "the matrix of weights along axis 3"),
        (einsum("......->..."), "at most one ellipsis"),
        (einsum("i...j...->ij"), "at most one ellipsis"),
        (einsum("...->......"), "at most one ellipsis"),
        (einsum("i..->i"), "at most one ellipsis"),
        (
            model(
                [node("SplitToSequence", ["x", "one"], ["s"]), node("ConcatFromSequence", ["s"], ["y"], axis=0)],
                (2**30,),
                one=np.array(1),
            ),
            "1073741824 parts; at most 65536",
        ),
        (
            model([node("STFT", ["x", "step", "", "length"], ["y"])], (1, 2**20, 1), step=np.array(1),
                  length=np.array(2**18)),
            "the table of places of all frames has",
        ),
        (
            model([node("AffineGrid", ["x", "size"], ["y"])], (1, 2, 3), 20, size=np.array([1, 1, 2**15, 2**15])),
            "the grid of places has 3221225472 elements",
        ),
        (
            model([node("ConstantOfShape", ["s"], ["z"]), node("Add", ["x", "z"], ["y"])], (1,),
                  s=np.array([0, 2**62, 2**62])),
            "its result has 21267647932558653966460912964485513216 elements",
        ),
        (doubling(40), f"its functions expand to 1099511627776 nodes; at most {MAX_EXPANDED} more"),
        (
            model(
                [call("F0", "x", "y")],
                (2,),
                functions=[function(f"F{n}", call(f"F{n + 1}", "a", "b")) for n in range(5000)],
            ),
            "its functions call one another too deeply",
        ),
        (
            model([call("F", "x", "y")], (2,), functions=[function("F", call("F", "a", "b"))]),
            "its functions call one another without end: 'F' -> 'F'",
        ),
        (
            model(
                [call("F", "x", "y")],
                (2,),
                functions=[function("F", call("G", "a", "b")), function("G", call("F", "a", "b"))],
            ),
            "its functions call one another without end: 'F' -> 'G' -> 'F'",
        ),
    ],
)  # fmt: skip
def test_what_would_never_end_is_one_error(made: onnx.ModelProto, said: str) -> None:
    with pytest.raises(ModelImportError) as caught:
        load(made.SerializeToString())
    assert said in str(caught.value)


def test_the_numbers_of_many_steps_are_no_list() -> None:
    graph = load(loop(2**62, *ITERATED).SerializeToString())
    assert max(array.size for array in graph.constants.values()) <= 2
    assert {each.runs for each in divide(graph).dispatches} == {1, 2**39 - 1}


@pytest.mark.parametrize("carried", ["x", "ones"])
def test_a_long_loop_is_divided_into_a_few_dispatches(carried: str) -> None:
    """Of constants, too: neither the import nor a pass runs its steps."""
    graph = load(loop(10**9, node("Neg", ["a"], ["b"]), carried=carried).SerializeToString())
    assert "Loop" in {each.op for each in run_passes(graph, standard_passes()).nodes}
    assert [each.runs for each in divide(graph).dispatches] == [1, 499_999_999, 499_999_999, 1, 1]


def test_loops_in_loops_do_not_multiply() -> None:
    """A body that is small but for the loops in it is a loop itself, not a copy for each step."""
    body = helper.make_graph(
        [node("Identity", ["c"], ["g0"]), node("Add", ["a", "a"], ["r0"])],
        "b0",
        [info("i", (), TensorProto.INT64), info("c", (), TensorProto.BOOL), info("a", (2,))],
        [info("g0", (), TensorProto.BOOL), info("r0", (2,))],
    )
    for n in range(1, 12):
        nodes = [
            node("Loop", ["trips", "", f"q{n}"], [f"r{n}"], body=body),
            node("Identity", [f"c{n}"], [f"g{n}"]),
        ]
        inputs = [
            info(f"i{n}", (), TensorProto.INT64),
            info(f"c{n}", (), TensorProto.BOOL),
            info(f"q{n}", (2,)),
        ]
        body = helper.make_graph(
            nodes, f"b{n}", inputs, [info(f"g{n}", (), TensorProto.BOOL), info(f"r{n}", (2,))]
        )
    made = model([node("Loop", ["trips", "", "x"], ["y"], body=body)], (2,), trips=np.array(4))
    assert len(load(made.SerializeToString()).nodes) < 10


@pytest.mark.parametrize(
    ("location", "reason"), [("a\0b", "embedded null byte"), ("a" * 5000, "File name too long")]
)
def test_a_location_that_names_no_file_is_one_error(tmp_path: Any, location: str, reason: str) -> None:
    made = model([node("Add", ["x", "k"], ["y"])], (3,))
    tensor = made.graph.initializer.add(name="k", data_type=TensorProto.FLOAT, dims=[3])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    with pytest.raises(ModelImportError, match=f"which is no name of a file: {reason}"):
        load(path)


def test_declared_types_and_ranks_are_those_of_the_values(caplog: pytest.LogCaptureFixture) -> None:
    made = model([node("Relu", ["x"], ["y"])], (2, 3))
    made.graph.output[0].CopyFrom(info("y", (9, 9), TensorProto.INT64))
    with pytest.raises(
        ModelImportError, match=r"output 'y' is declared int64\[9, 9\], but it is float32\[2, 3\]"
    ):
        load(made.SerializeToString())
    made.graph.output[0].CopyFrom(info("y", (6,)))
    assert load(made.SerializeToString()).type_of("y").shape == (2, 3)
    assert "output 'y' is declared float32[6], but it is float32[2, 3]" in caplog.text
    made = model([node("Add", ["x", "k"], ["y"])], (2, 3), k=np.ones(3, np.float32))
    made.graph.input.append(info("k", (3,), TensorProto.INT32))
    with pytest.raises(ModelImportError, match=r"input 'k' is declared int32\[3\], but it is float32\[3\]"):
        load(made.SerializeToString())
