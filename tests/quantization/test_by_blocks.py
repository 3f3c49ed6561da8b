"""Weights in blocks of few bits, rounded to the nearest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.cli import main
from autotune.errors import UsageError
from autotune.quantization.by_blocks import quantize_weights, rounded


def normal(*shape: int) -> Any:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def two_layers() -> Any:
    """A MatMul and a Gemm, whose weights are transposed and has a bias."""
    arrays = {"a": normal(70, 24), "b": normal(18, 24), "c": normal(18)}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], name="first"),
        helper.make_node("Gemm", ["h", "b", "c"], ["y"], name="second", transB=1),
    ]
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, size])]
        for name, size in (("x", 70), ("y", 18))
    )
    stored = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "two", inputs, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize(("dtype", "bits"), [("int4", 4), ("int8", 8)])
def test_each_weight_is_within_a_step(dtype: str, bits: int) -> None:
    w = normal(5, 50)
    q, scale = rounded(w, bits, 16)
    if bits == 4:
        q = np.stack([q & 15, q >> 4], -1).reshape(*q.shape[:2], -1)
    real = (q.astype(np.float32) - (1 << (bits - 1))) * scale.reshape(5, 4, 1)
    step = np.repeat(np.abs(scale).reshape(5, 4), 16, 1)[:, :50]
    off = np.abs(real.reshape(5, -1)[:, :50] - w)
    assert (off <= step * 1.001).all()
    assert np.mean(off <= step * 0.501) > 0.98  # the other end of a block has no step of its own


def test_products_of_a_model_become_those_of_few_bits() -> None:
    model = two_layers()
    made = quantize_weights(model, "int8", 16)
    assert (made.products, [node.op_type for node in made.model.graph.node]) == (2, ["MatMulNBits"] * 2)
    x = normal(3, 70)
    expected, found = (autotune.compile(each, threads=1)(x)[0] for each in (model, made.model))
    assert 0 < np.abs(found - expected).max() < 0.02 * np.abs(expected).max()
    assert quantize_weights(model, "int4", 16, ("first",)).model.graph.node[0].op_type == "MatMul"


def test_what_cannot_be_is_one_error() -> None:
    with pytest.raises(UsageError, match="weights are int4 or int8, blocks of 16, 32, 64, 128, 256"):
        quantize_weights(two_layers(), "int4", 48)
    with pytest.raises(UsageError, match="no MatMul or Gemm with a constant float32 matrix of 256 rows"):
        quantize_weights(two_layers(), "int4", 256)


def test_the_command_writes_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, output = tmp_path / "two.onnx", tmp_path / "two.int4.onnx"
    onnx.save(two_layers(), str(path))
    arguments = ["quantize", str(path), "--weights", "int4", "--block", "16", "-o", str(output)]
    assert main.run(arguments) == 0
    assert "weights of 2 products are int4, in blocks of 16" in capsys.readouterr().out
    assert onnx.load(str(output)).graph.node[0].op_type == "MatMulNBits"
    assert main.run([*arguments, "--accuracy", "1e-2"]) == 2
    assert "--weights needs no --data and has no --accuracy" in capsys.readouterr().err
