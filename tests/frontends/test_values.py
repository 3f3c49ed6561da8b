"""Inputs that are constant from here on: in Python, on the command line, and for every command that reads a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import autotune
from autotune.cli.options import parse_values
from autotune.compiler.request import CompileRequest
from autotune.errors import UnknownParameterError, UsageError
from autotune.frontends import models
from autotune.frontends.models import with_values
from tests.graph.graphs import small_convnet

X = np.arange(12, dtype=np.float32).reshape(2, 6)


def largest() -> Any:
    """Return a model of the ``k`` largest elements of each row."""
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("TopK", ["x", "k"], ["top", "places"]), helper.make_node("Neg", ["top"], ["y"])]
    inputs = [info("x", 1, [2, 6]), info("k", 7, [1])]
    graph = helper.make_graph(nodes, "largest", inputs, [info("y", 1, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@pytest.mark.parametrize("k", [2, [2], np.array([2])], ids=["number", "list", "array"])
def test_a_value_makes_an_input_constant(k: Any) -> None:
    with autotune.compile(largest(), values={"k": k}, threads=1) as module:
        assert [spec.name for spec in module.inputs] == ["x"]
        np.testing.assert_array_equal(module.run({"x": X})["y"], -X[:, :3:-1])


def test_the_error_says_how_to_give_it() -> None:
    with pytest.raises(UnknownParameterError, match=r"give values=\{'k': ...\} \(--value k=...\)"):
        autotune.compile(largest())


@pytest.mark.parametrize("function", [autotune.predict, autotune.compile], ids=["predict", "compile"])
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"n": 2}, "has no input 'n'\n  inputs: x, k"),
        ({"k": 2.5}, r"value float64\[1\] does not fit input 'k'"),
        ({"k": np.array([2, 3])}, r"value int64\[2\] does not fit input 'k'"),
        ({"k": np.array([2], np.int32)}, r"value int32\[1\] does not fit input 'k'"),
    ],
)
def test_what_does_not_fit(function: Any, values: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        function(largest(), values=values)


def test_graphs_have_no_values() -> None:
    (problem,) = CompileRequest(small_convnet(), values={"x": 1}).problems()
    assert problem == "values were given for a graph; they are for models, whose inputs they make constant"


def test_sizes_may_be_open_beside_a_value() -> None:
    info = helper.make_tensor_value_info
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"])
    inputs = [info("x", 1, ["rows", 6]), info("axes", 7, ["number"])]
    graph = helper.make_graph([node], "sums", inputs, [info("y", 1, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    module = autotune.compile(model, values={"axes": [1]}, shapes={"rows": "1..4"}, threads=1)
    for rows in (1, 2, 3):
        x = np.random.default_rng(rows).standard_normal((rows, 6)).astype(np.float32)
        np.testing.assert_allclose(module.run({"x": x})["y"], x.sum(1, keepdims=True), rtol=1e-5, atol=1e-5)


def test_models_as_text_have_values() -> None:
    text = b"""\
graph "g" {
  input x: float32[2, 3]
  input b: float32[3]
  y = Add(x, b) : float32[2, 3]
  output y
}
"""
    model = with_values(text, {"b": np.arange(3, dtype=np.float32)})
    assert [*models.declared_shapes(model)] == ["x"]
    assert [*models.load(model).inputs] == ["x"]
    with pytest.raises(UsageError, match="has no input 'c'"):
        models.load(with_values(text, {"c": np.zeros(3)}))


def test_commands_take_values(tmp_path: Path, run: Any) -> None:
    path = tmp_path / "largest.onnx"
    onnx.save(largest(), path)
    code, out, _ = run("run", path, "--random", "--value", "k=2", "--threads", "1")
    assert code == 0
    assert "y: float32 2×2" in out
    lock = tmp_path / "largest.lock"
    assert run("lock", path, "-o", lock, "--value", "k=2", "--threads", "1")[0] == 0
    artifact = tmp_path / "largest.atm"
    assert run("compile", path, "-o", artifact, "--lock", lock, "--value", "k=2")[0] == 0
    code, _, err = run("run", artifact, "--random", "--value", "k=2")
    assert code == 2
    assert "values given for" in err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    from autotune.cli import main as cli

    def called(*arguments: object) -> tuple[int, str, str]:
        code = cli.run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return called


def test_values_on_the_command_line() -> None:
    assert parse_values(["k=5", "a.b=-1,0.5", "c=1e3"]) == {"k": 5, "a.b": [-1, 0.5], "c": 1000.0}
    assert parse_values([]) is None
    for texts, words in (
        (["k"], "--value 'k' is not NAME=NUMBER"),
        (["k=x"], "--value 'k=x' is not NAME=NUMBER"),
        (["k="], "--value 'k=' is not NAME=NUMBER"),
        (["k=1", "k=2"], "--value k is given twice"),
    ):
        with pytest.raises(UsageError, match=words):
            parse_values(texts)
