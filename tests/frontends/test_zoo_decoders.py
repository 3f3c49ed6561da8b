"""Language models with a cache: words one by one give what all at once give, and the example writes them in place."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.frontends.zoo_decoders import STYLES, Decoder, Style, decoder

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "generate.py"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE))


@pytest.mark.parametrize("style", STYLES)
def test_words_one_by_one_are_those_of_all_at_once(example: dict[str, Any], style: Style) -> None:
    sizes = Decoder(style, layers=1, groups=4 if style == "gpt" else 2, places=16, bits=4)
    proto, words = decoder(sizes), [5, 70, 2, 31, 8, 8, 90]
    whole = autotune.compile(proto, shapes={"sequence_length": len(words)}, threads=1)
    given = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in whole.inputs}
    given["input_ids"][0] = words
    given["attention_mask"][0, : len(words)] = 1
    wanted = whole.run(given)
    model = example["Generator"](proto, prompt=4, threads=1)
    held = {name: array.ctypes.data for name, array in model.cache.items()}
    first, second = model.read(words[:3]), model.read(words[3:])
    np.testing.assert_allclose(first, wanted["logits"][0, 2], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(second, wanted["logits"][0, -1], rtol=1e-4, atol=1e-4)
    for name, array in model.cache.items():
        assert array.ctypes.data == held[name]
        present = wanted[name.replace("past_key_values", "present")]
        np.testing.assert_allclose(
            array[:, :, : len(words)], present[:, :, : len(words)], rtol=1e-4, atol=1e-4
        )
    assert all(image.in_place for image in model.model._model.images)


def test_the_example_chooses_words(example: dict[str, Any]) -> None:
    scores = np.array([0.0, 5.0, 4.0, -1.0], np.float32)
    assert example["greedy"](scores) == 1
    choose = example["sampled"](np.random.default_rng(0), 1.0, 2)
    assert {choose(scores) for _ in range(50)} == {1, 2}
