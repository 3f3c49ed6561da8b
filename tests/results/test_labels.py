"""Labels of trained networks within a budget: how texts are read, and the table."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from autotune.bench.experiment import frame_of
from autotune.frontends.model_builder import ModelBuilder
from results.bench import labels
from results.bench.quantised.recogniser import SHAPE, Recogniser, words


def test_repeated_classes_are_one_and_class_0_is_none(tmp_path: Path) -> None:
    m = ModelBuilder("reader")
    model = m.finish([m.node("Relu", [m.input("x", SHAPE)], "y")])
    model.metadata_props.add(key="character", value="a\nb\nc")
    onnx.save(model, str(tmp_path / "reader.onnx"))
    found = Recogniser(tmp_path / "reader.onnx")
    assert found.input == "x"
    assert found.read({"y": np.eye(5, dtype=np.float32)[None, [1, 1, 0, 1, 2, 4, 3, 3, 0, 4]]}) == "aab c"


def test_words_are_drawn_alike_on_every_call() -> None:
    pytest.importorskip("PIL", reason="words are drawn by Pillow")
    (first, images), (again, others) = words(3, 0), words(3, 0)
    assert first == again
    assert images.shape == (3, *SHAPE[1:])
    np.testing.assert_array_equal(images, others)


def test_digits_keep_their_labels_within_a_budget() -> None:
    pytest.importorskip("sklearn", reason="digits come with scikit-learn")
    (records,) = labels.measure(lambda text: None, ["digits"], 1, 172, 40, ["5%"], 1, 1e-3)
    plain, within, eight = records
    assert (plain["setting"], plain["changed"]) == ("float32", 0.0)
    assert within["setting"] == "within 5%"
    assert within["lost"] <= within["changed"] <= 0.25
    assert eight["right"] >= 0.8
    (table,) = labels.EXPERIMENT.tables(frame_of(records))
    assert table.title == "Labels, 1 thread"
