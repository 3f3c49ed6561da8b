"""Quantised models beside float32: logits, what is said of outputs, and a quantiser elsewhere that fails."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune.bench.experiment import frame_of
from autotune.bench.systems import System
from autotune.errors import MeasureError
from autotune.frontends.model_builder import ModelBuilder
from results.bench import int8
from results.bench.quantised import accuracy, cases, sources
from results.bench.quantised.quantisers import OnnxRuntime
from results.bench.quantised.sources import Source


def test_logits_are_what_the_last_softmax_reads() -> None:
    b = ModelBuilder("net")
    shape = b.node("Shape", [b.input("x", (1, 6))], "shape")
    mixed = b.node("Softmax", [b.node("MatMul", ["x", b.normal("w", (6, 6), 1)], "first")], "mixed")
    logits = b.node("MatMul", [mixed, b.normal("v", (6, 6), 1)], "logits")
    soft = b.node("Softmax", [b.node("Flatten", [logits], "flat")], "soft")
    whole = b.finish([b.node("Reshape", [soft, shape], "y")])
    cut = sources.without_softmax(whole)
    assert [node.op_type for node in cut.graph.node] == ["MatMul", "Softmax", "MatMul", "Flatten"]
    feed = {"x": b.rng.standard_normal((1, 6), dtype=np.float32)}
    found = np.exp(autotune.compile(cut, threads=1).run(feed)["flat"])
    np.testing.assert_allclose(
        found / found.sum(), autotune.compile(whole, threads=1).run(feed)["y"], rtol=1e-5
    )
    assert len(sources.without_softmax(cut).graph.node) == 4


def test_images_have_the_power_spectrum_of_photographs() -> None:
    found = sources.images(np.random.default_rng(0), 2, (1, 3, 64, 64))
    assert (found.shape, found.dtype) == ((2, 1, 3, 64, 64), np.float32)
    power = np.abs(np.fft.rfft2(found[:, 0, 0])) ** 2
    assert power[:, 2, :4].mean() > 20 * power[:, 20, :4].mean()


def test_what_is_said_of_outputs() -> None:
    # Three runs of a row with three classes; the mean is (4, 1, 0).
    wanted = np.float32([[[4, 1, 0]], [[5, 0, 0]], [[3, 2, 0]]])
    found = np.float32([[[4, 1, 0]], [[4, 0, 0.1]], [[1, 2, 0]]])
    source = Source("net", None, wanted, wanted, np.array([0, 0, 1]))  # type: ignore[arg-type]
    said = accuracy.compared(source, "one", "autotune", wanted, found)
    assert said["error"] == pytest.approx(np.sqrt((1 + 0.01 + 4) / (17 + 25 + 13)), rel=1e-5)
    assert (said["first"], said["varying"]) == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert (said["right"], said["right_before"]) == (1, pytest.approx(2 / 3))
    (table, *_) = int8.EXPERIMENT.tables(frame_of([{"family": int8.ACCURACY, **said}]))
    assert table.rows == (("net", "one", "autotune", "0.3018", "66.7 %", "66.7 %", "100.0 % (66.7 %)"),)


def test_channels_of_one_pixel_are_classes() -> None:
    wanted = np.zeros((2, 1, 5, 1, 1), np.float32)
    wanted[:, :, 3] = 1
    found = np.roll(wanted, 1, axis=2)
    assert accuracy.compared(Source("net", None, wanted, wanted), "", "", wanted, found)["first"] == 0  # type: ignore[arg-type]


def test_a_quantiser_that_fails_says_why(tmp_path: Path) -> None:
    b = ModelBuilder("net")
    model = b.finish([b.node("Relu", [b.input("x", (1, 4))], "y")])
    given = np.ones((1, 1, 4), np.float32)
    nowhere = System("onnxruntime", "ONNX Runtime", "onnx", (sys.executable,))
    peer = OnnxRuntime(nowhere, tmp_path / "nowhere")
    (tmp_path / "nowhere").mkdir()
    with pytest.raises(MeasureError, match="ONNX Runtime: nothing failed: KeyError: 'nothing'"):
        peer._ask(do="nothing")
    pytest.importorskip("onnxruntime", reason="its quantiser is what is called")
    assert peer.quantised(Source("net", model, given, given)).graph.node


def test_words_choose_models() -> None:
    assert cases.chosen(["mobile", "enc"]) == ["mobilenetv2", "encoder"]
    assert cases.chosen([]) == list(cases.NAMES)
    assert cases.model_of(cases.label("encoder", cases.THEIRS)) == "encoder"
