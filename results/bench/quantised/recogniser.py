"""A trained recogniser of text lines in an ONNX file, with drawn words of which it is known what they say.

The wheels of RapidOCR ship such files (``pip download rapidocr --no-deps``): images of 48 rows become classes of
characters a step, which are read as in connectionist temporal classification (Graves et al., 2006): repeated classes
are one, and class 0 is none. The characters are in the metadata of the file, one a line.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.errors import MissingExtraError
from autotune.graph.ir import Array

if TYPE_CHECKING:
    import onnx

SHAPE = (1, 3, 48, 160)
_LETTERS = (4, 10)


class Recogniser:
    """A model of one image a run, and how its outputs are read."""

    def __init__(self, path: Path) -> None:
        import onnx

        self.model: onnx.ModelProto = onnx.load(str(path))
        found = {each.key: each.value for each in self.model.metadata_props}
        self.characters = ["", *found["character"].splitlines(), " "]
        self.input = str(self.model.graph.input[0].name)

    def read(self, outputs: Mapping[str, Array]) -> str:
        """Return the text that the first output says."""
        first = next(iter(outputs.values()))
        classes = first.reshape(-1, first.shape[-1]).argmax(-1)
        new = np.concatenate([[True], classes[1:] != classes[:-1]]) & (classes > 0)
        return "".join(self.characters[each] for each in classes[new]).strip()


def words(count: int, seed: int) -> tuple[list[str], Array]:
    """Return words of random letters, and their images [count, *SHAPE[1:]], float32 from about -1 to 1: dark on light,
    somewhat turned, blurred and noisy, so that not all of them are read right.

    Raises MissingExtraError without Pillow.
    """
    rng = np.random.default_rng(seed)
    made = ["".join(rng.choice([*string.ascii_lowercase], rng.integers(*_LETTERS))) for _ in range(count)]
    return made, np.concatenate([_drawn(word, rng) for word in made])


def _drawn(word: str, rng: np.random.Generator) -> Array:
    try:
        from PIL import Image, ImageDraw, ImageFilter, ImageFont
    except ImportError as error:
        raise MissingExtraError("words are drawn by Pillow: pip install pillow") from error
    *_, height, width = SHAPE
    paper, ink = int(rng.integers(160, 255)), int(rng.integers(0, 90))
    image: Any = Image.new("L", (width, height), paper)
    corner = int(rng.integers(2, 12)), int(rng.integers(2, 10))
    font = ImageFont.load_default(int(rng.integers(22, 30)))
    ImageDraw.Draw(image).text(corner, word, font=font, fill=ink)
    turned = image.rotate(float(rng.uniform(-2, 2)), fillcolor=paper)
    blurred = turned.filter(ImageFilter.GaussianBlur(float(rng.uniform(0, 1.6))))
    grey = np.asarray(blurred, np.float32) / 127.5 - 1 + rng.normal(0, 0.12, (height, width))
    found: Array = np.repeat(grey[None, None], 3, 1).astype(np.float32)
    return found


__all__ = ["SHAPE", "Recogniser", "words"]
