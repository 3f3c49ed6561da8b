"""Comparisons of models that packages ship: what they are asked, and what is made of the answers."""

from __future__ import annotations

import wave
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.bench.experiment import FrameRows
from autotune.errors import MeasureError, UsageError
from results.bench.wheels import experiment
from results.bench.wheels.media import Media
from results.bench.wheels.models import Both, difference
from results.bench.wheels.reading import characters_of, decoded, parts_of
from results.bench.wheels.shipped import SHIPPED, Shipped


def folder_of(path: Path) -> Media:
    """A folder with a wheel of a model and a picture that is none, and a recording."""
    with zipfile.ZipFile(path / "shipped-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("shipped/model.onnx", doubling())
        wheel.writestr("shipped/small.txt", b"  one line  ")
    with wave.open(str(path / "tone.wav"), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(32_000)
        tone = (np.sin(np.arange(64_000) / 10) * 20_000).astype(np.int16)
        file.writeframes(np.stack([tone, 0 * tone], 1).tobytes())
    return Media(path)


def doubling() -> bytes:
    """A model of one open axis, with the characters of a recogniser."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "double", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    helper.set_model_props(model, {"character": "a\nb"})
    return model.SerializeToString()


def test_models_are_in_the_wheels_of_a_folder(tmp_path: Path) -> None:
    media = folder_of(tmp_path)
    assert media.model("shipped", "model.onnx") == "shipped/model.onnx"
    assert characters_of(media.read("shipped/model.onnx")) == ["", "a", "b", " "]
    assert b"  one line  " in [*media.files()]
    with pytest.raises(UsageError, match=r"has no wheel of other with model\.onnx\n  pip download"):
        media.model("other", "model.onnx")


def test_recordings_have_another_rate(tmp_path: Path) -> None:
    sound = folder_of(tmp_path).sound
    assert sound.dtype == np.float32
    assert abs(len(sound) - 32_000) < 2
    assert 0.55 < np.abs(sound).max() < 0.65
    with pytest.raises(UsageError, match="no recordings"):
        Media(tmp_path / "none").sound  # noqa: B018


def test_texts_are_words_of_the_pages(tmp_path: Path) -> None:
    texts = Media(tmp_path).texts(np.random.default_rng(0))
    for _, text in zip(range(50), texts, strict=False):
        assert text.isascii()
        assert len(text) < 40


def test_ten_sizes_of_each_model_go_from_end_to_end() -> None:
    for shipped in SHIPPED:
        tried = shipped.tried(10, np.random.default_rng(0))
        assert len(tried) == 10
        for symbol, text in shipped.ranges.items():
            if ".." in text:
                low, high = (int(bound) for bound in text.split(":")[0].split(".."))
                assert {low, high} <= {sizes[symbol] for sizes in tried}


def test_requests_take_what_the_peer_remembered(tmp_path: Path) -> None:
    given = []

    def run(inputs):  # type: ignore[no-untyped-def]
        given.append(inputs["x"].copy())
        return {"y": inputs["x"] * 2}

    shipped = Shipped(
        "model.onnx", "shipped", lambda m, r, s: {"x": np.ones(s["n"])}, {"n": "1..4"}, {"y": "x"}
    )
    found = experiment.compared(shipped, folder_of(tmp_path), Both(SimpleNamespace(run=run), 1.0, run), 2)
    assert [array.max() for array in given] == [1, 1, 2, 2, 4, 4] * 2
    assert (found["requests"], found["right"], found["error"]) == (6, 6, 0.0)


def test_differences_are_relative_and_whole_numbers_are_equal() -> None:
    wanted = {"y": np.array([1.0, 4.0])}
    assert difference({"y": np.array([1.0, 3.0])}, wanted) == 0.25
    assert difference({"y": np.ones(3)}, wanted) == np.inf
    assert difference({"y": np.array([1, 2])}, {"y": np.array([1, 3])}) == np.inf


def test_neighbours_of_the_same_character_are_one() -> None:
    scores = np.eye(4)[[1, 1, 0, 1, 2, 2, 3, 0]]
    assert decoded(scores, ["", "a", "b", " "]) == "aab "


def test_lines_of_a_page_are_bands_of_rows() -> None:
    page, is_text = np.zeros((40, 30, 3), np.uint8), np.zeros((40, 30), bool)
    is_text[4:10, 5:20] = is_text[20:28, 8:30] = True
    is_text[33, 2] = True  # too small
    assert [part.shape for part in parts_of(page, is_text)] == [(12, 21, 3), (16, 26, 3)]


def test_what_is_wrong_or_reads_otherwise_is_named() -> None:
    right = {"of": "models", "file": "a", "requests": 10, "right": 10}
    text = {"of": "text", "reader": "r", "what": "lines", "lines": 3, "same": 3}
    experiment.check(FrameRows([right, text]))
    wrong = {**right, "file": "b", "right": 9}
    failed = {"of": "models", "file": "c", "failure": "why"}
    with pytest.raises(MeasureError, match="not as ONNX Runtime: b, c, r, lines"):
        experiment.check(FrameRows([right, wrong, failed, {**text, "same": 2}]))
