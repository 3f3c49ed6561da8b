"""Float models become QDQ models that give nearly the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from autotune.cli import main
from autotune.errors import InputError, UsageError
from autotune.frontends import zoo
from autotune.frontends.model_builder import ModelBuilder
from autotune.frontends.onnx import importer as frontend
from autotune.graph import evaluate
from autotune.passes.pipeline import run_passes, standard_passes
from autotune.quantization.quantize import quantize
from autotune.quantization.ranges import Histogram, QuantizedRange, chosen
from autotune.tuning.measure.samples import batches


def seen(values: np.ndarray) -> Histogram:
    found = Histogram(float(values.min()), float(values.max()))
    found.add(values)
    return found


def test_ranges_by_each_method() -> None:
    values = np.append(np.random.default_rng(0).standard_normal(100_000), 40.0)
    whole, most, best = (chosen(seen(values), method, 99.9) for method in ("minmax", "percentile", "mse"))
    assert whole == QuantizedRange(float(values.min()), 40.0)
    assert 2.9 < most.high < 3.4
    assert -3.4 < most.low < -2.9
    assert best.high < 40
    assert chosen(seen(np.array([2.0, 3.0])), "minmax", 99).low == 0
    assert QuantizedRange(0.0, 0.0).steps == (1, 0)


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse"])
def test_a_zoo_model_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "x.npz", x=rng.standard_normal((4, 3, 16, 16), dtype=np.float32))
    arguments = [
        "quantize",
        "zoo:tiny_cnn",
        "--calibrate",
        str(tmp_path / "x.npz"),
        "-o",
        str(tmp_path / "q.onnx"),
    ]
    assert main.run([*arguments, "--method", method, "--json", "--threads", "1"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["relative_error"] < 0.1
    assert facts["products"] >= 3
    onnx.checker.check_model(str(tmp_path / "q.onnx"), full_check=True)


def test_norms_are_folded_and_biases_are_of_the_steps_of_products() -> None:
    b = ModelBuilder("norms")
    x = b.input("x", (1, 3, 8, 8))
    one = b.node("Conv", [x, b.normal("w", (4, 3, 3, 3), 0.3)], "one")
    norm = [
        b.constant(n, b.rng.uniform(0.5, 2, 4).astype(np.float32))
        for n in ("gain", "shift", "mean", "variance")
    ]
    y = b.node("Relu", [b.node("BatchNormalization", [one, *norm], "normed")], "y")
    proto = b.finish([b.node("Conv", [y, b.normal("v", (4, 4, 1, 1), 0.3)], "z")])
    samples = {"x": b.rng.standard_normal((6, 3, 8, 8), dtype=np.float32)}
    made = quantize(proto, samples, method="minmax", threads=1)
    assert made.products == 2
    assert "BatchNormalization" not in {node.op_type for node in made.model.graph.node}
    feed = {"x": samples["x"][:1]}
    wanted = evaluate.run(frontend.load(proto), feed)["z"]
    graph = run_passes(frontend.load(made.model), standard_passes())
    assert sum(node.op == "IntegerConv" for node in graph.nodes) == 2
    np.testing.assert_allclose(evaluate.run(graph, feed)["z"], wanted, atol=0.03 * np.abs(wanted).max())


def test_what_is_left_out_stays() -> None:
    samples = {"x": np.zeros((1, 3, 16, 16), np.float32)}
    with pytest.raises(UsageError, match="nothing to quantise: no Conv, MatMul or Gemm"):
        quantize(zoo.load("tiny_cnn"), samples, leave_out=("Conv", "Gemm", "MatMul"), threads=1)


def test_unknown_methods_and_percentiles_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown method 'entropy'\n  one of minmax, percentile, mse"):
        quantize("zoo:tiny_cnn", {}, method="entropy")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="percentile 3 is not above 50 and at most 100"):
        quantize("zoo:tiny_cnn", {}, percentile=3)


def test_samples_that_do_not_fit_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shapes = {"x": (2, 3), "n": ()}
    arrays = {"x": np.zeros((4, 3)), "n": np.zeros(())}
    assert [feed["x"].shape for feed in batches(arrays, shapes)] == [(2, 3), (2, 3)]
    with pytest.raises(InputError, match="calibration has no input 'n'\n  the file has: x"):
        batches({"x": np.zeros((2, 3))}, shapes)
    with pytest.raises(InputError, match=r"input 'x' has shape \(3, 3\), not \(2, 3\), or a multiple of 2"):
        batches(arrays | {"x": np.zeros((3, 3))}, shapes)
    (tmp_path / "x.npz").write_bytes(b"nothing")
    arguments = [
        "quantize",
        "zoo:tiny_cnn",
        "--calibrate",
        str(tmp_path / "x.npz"),
        "-o",
        str(tmp_path / "q.onnx"),
    ]
    assert main.run(arguments) == 2
    assert "x.npz is not an .npz file of arrays" in capsys.readouterr().err
    np.save(tmp_path / "x.npy", np.zeros(3))
    arguments[3] = str(tmp_path / "x.npy")
    assert main.run(arguments) == 2
    assert "x.npy is a single array\n  write one with numpy.savez" in capsys.readouterr().err


def layer(op: str) -> tuple[ModelBuilder, str, tuple[int, ...]]:
    """A product of 8 outputs of inputs that are not centred, with a bias or none."""
    b = ModelBuilder(op)
    bias = b.constant("bias", b.rng.standard_normal((1, 8)).astype(np.float32))
    if op == "Conv":
        x = b.input("x", (1, 6, 5, 7))
        return b, b.node("Conv", [x, b.normal("w", (8, 3, 1, 1), 0.5)], "y", group=2), (1, 6, 5, 7)
    if op == "Gemm":
        x = b.input("x", (20, 6))
        return b, b.node("Gemm", [x, b.normal("w", (8, 6), 0.5), bias], "y", transB=1), (20, 6)
    x = b.input("x", (20, 6))
    return b, b.node("Add", [bias, b.node("MatMul", [x, b.normal("w", (6, 8), 0.5)], "sums")], "y"), (20, 6)


@pytest.mark.parametrize("op", ["Conv", "Gemm", "MatMul"])
def test_means_that_rounded_weights_move_are_taken_off_biases(op: str) -> None:
    b, y, shape = layer(op)
    proto = b.finish([y])
    rng = np.random.default_rng(0)
    samples = {"x": rng.uniform(5, 6, (4 * shape[0], *shape[1:])).astype(np.float32)}

    def moved(correct: bool) -> float:
        made = quantize(proto, samples, method="minmax", correct_biases=correct, threads=1).model
        both = [frontend.load(each) for each in (proto, made)]
        runs = [{"x": part} for part in np.split(samples["x"], 4)]
        means = [np.mean([evaluate.run(g, run)["y"] for run in runs], axis=(0, 1)) for g in both]
        means = [each.reshape(8, -1).mean(1) if op == "Conv" else each for each in means]
        return float(np.abs(means[0] - means[1]).max())

    assert moved(True) < 0.3 * moved(False)


def test_biases_that_are_no_constants_stay() -> None:
    b = ModelBuilder("computed")
    x, bias = b.input("x", (4, 6)), b.input("bias", (8,))
    one = b.node("Gemm", [x, b.normal("w", (6, 8), 0.5), bias], "one")
    two = b.node("MatMul", [one, b.normal("v", (8, 3), 0.5)], "two")
    proto = b.finish([b.node("Add", [two, two], "y")])
    samples = {"x": np.ones((4, 6), np.float32), "bias": np.ones(8, np.float32)}
    made = quantize(proto, samples, threads=1)
    assert made.products == 2
    wanted, found = (evaluate.run(frontend.load(each), samples)["y"] for each in (proto, made.model))
    np.testing.assert_allclose(found, wanted, atol=0.1)


def test_sizes_that_a_model_leaves_open_are_those_of_samples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    b = ModelBuilder("open")
    x = b.input("x", ("batch", 3, "side", 8))
    y = b.node("Relu", [b.node("Conv", [x, b.normal("w", (4, 3, 3, 3), 0.3)], "conv")], "relu")
    mean = b.node("Flatten", [b.node("GlobalAveragePool", [y], "mean")], "flat")
    onnx.save(
        b.finish([b.node("Gemm", [mean, b.normal("v", (4, 5), 0.5)], "y")]), str(tmp_path / "open.onnx")
    )
    np.savez(tmp_path / "x.npz", x=b.rng.standard_normal((3, 3, 10, 8), dtype=np.float32))
    arguments = [
        "quantize",
        str(tmp_path / "open.onnx"),
        "--calibrate",
        str(tmp_path / "x.npz"),
        "--threads",
        "1",
    ]
    assert main.run([*arguments, "-o", str(tmp_path / "q.onnx"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["relative_error"] < 0.05
    (given,) = onnx.load(str(tmp_path / "q.onnx")).graph.input
    assert [d.dim_param or d.dim_value for d in given.type.tensor_type.shape.dim] == ["batch", 3, "side", 8]
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 10, 8), np.float32))
    assert main.run([*arguments, "-o", str(tmp_path / "q.onnx")]) == 2
    assert "calibration: input 'x' has shape (3, 10, 8), not 4 dimensions" in capsys.readouterr().err
    np.savez(tmp_path / "x.npz", y=np.zeros((3, 10, 8), np.float32))
    assert main.run([*arguments, "-o", str(tmp_path / "q.onnx")]) == 2
    assert "calibration has no input 'x'\n  the file has: y" in capsys.readouterr().err
