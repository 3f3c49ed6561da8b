"""Text of lines and pages, by a detector of lines, a classifier of their direction, and a recogniser of characters.

These are the steps that PP-OCR's packages take, for pages whose lines stand below one another.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.graph.ir import Array
from results.bench.wheels.models import Run
from results.bench.wheels.shipped import normalised, resized

_HEIGHT = 48
_WIDTHS = (40, 640)
"""Pixels of a line, as recognisers take it."""
_DIRECTION = (48, 192)
_IS_TEXT = 0.3
"""A place is of text from this probability on."""
_IS_TURNED = 0.9
"""A line is turned from this probability on."""
_LEAST = 3
"""Rows of a line, at least."""


def characters_of(model: bytes) -> list[str]:
    """Return the characters of a recogniser by their numbers; 0 is none."""
    import onnx

    found = {each.key: each.value for each in onnx.load(io.BytesIO(model)).metadata_props}
    return ["", *found["character"].splitlines(), " "]


def decoded(scores: Array, characters: Sequence[str]) -> str:
    """Return the text of scores, float32 [places, characters]: of neighbours with the same character one stays."""
    best = scores.argmax(-1)
    kept = best[np.insert(best[1:] != best[:-1], 0, True)]
    return "".join(characters[i] for i in kept)


@dataclass(frozen=True)
class Reader:
    """Models that read, as one system runs them."""

    recognise: Run
    characters: Sequence[str]

    def line(self, picture: Array) -> str:
        """Return the text of a line's picture, uint8 [height, width, 3]."""
        width = int(np.clip(round(picture.shape[1] * _HEIGHT / picture.shape[0]), *_WIDTHS))
        (scores,) = self.recognise({"x": normalised([resized(picture, _HEIGHT, width)])}).values()
        return decoded(scores[0], self.characters)


@dataclass(frozen=True)
class PageReader:
    """The same for pages."""

    detect: Run
    classify: Run
    reader: Reader

    def page(self, picture: Array) -> list[str]:
        """Return the text of each line that is found in a page, from the top."""
        (found,) = self.detect({"x": normalised([picture])}).values()
        return [self.reader.line(self._upright(part)) for part in parts_of(picture, found[0, 0] > _IS_TEXT)]

    def _upright(self, picture: Array) -> Array:
        (found,) = self.classify({"x": normalised([resized(picture, *_DIRECTION)])}).values()
        return picture[::-1, ::-1] if found[0, 1] > _IS_TURNED else picture


def parts_of(picture: Array, is_text: Array) -> Iterator[Array]:
    """Yield the parts of a page that have text, a band of rows each, as much larger as detectors leave lines small."""
    rows = np.flatnonzero(np.diff(is_text.any(1).astype(np.int8), prepend=0, append=0))
    for top, bottom in rows.reshape(-1, 2):
        if bottom - top < _LEAST:
            continue
        columns = np.flatnonzero(is_text[top:bottom].any(0))
        more = (bottom - top) // 2
        yield picture[max(0, top - more) : bottom + more, max(0, columns[0] - more) : columns[-1] + 1 + more]


__all__ = ["PageReader", "Reader", "characters_of", "decoded", "parts_of"]
