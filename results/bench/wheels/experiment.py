"""Models of packages as an experiment: each at sizes of its ranges, then text of lines and pages."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView
from autotune.bench.options import check_known
from autotune.bench.systems import find_peers
from autotune.bench.tables import number, scientific
from autotune.errors import AutotuneError, MeasureError
from results.bench.wheels.media import Line, Media, page
from results.bench.wheels.models import Both, both, difference, peer
from results.bench.wheels.reading import PageReader, Reader, characters_of
from results.bench.wheels.shipped import SHIPPED, Shipped

TOLERANCE = 1e-4
"""The largest difference to ONNX Runtime that counts as right, relative to the largest value of a result."""
_SHOWN = 300
"""Characters of a failure."""
_LINES = 10
"""Lines of a page."""
_PAGE = (640, 640)
_CLASSIFIER = "ch_ppocr_mobile_v2.0_cls_mobile.onnx"
READERS = {
    "PP-OCRv6": ("PP-OCRv6_det_small.onnx", _CLASSIFIER, "PP-OCRv6_rec_small.onnx"),
    "PP-OCRv4": ("ch_PP-OCRv4_det_infer.onnx", _CLASSIFIER, "ch_PP-OCRv4_rec_infer.onnx"),
}
"""Detector, classifier and recogniser."""


def measure(
    say: Say,
    names: Sequence[str],
    folder: Path,
    threads: int,
    requests: int,
    lines: int,
    peer_pythons: Sequence[str],
) -> Iterator[Sequence[Record]]:
    """Yield a record for each model, then one for each of :data:`READERS` whose models are there.

    Raises UsageError where the folder lacks a wheel, a recording or a picture.
    """
    check_known(names, [each.file for each in SHIPPED], "model")
    chosen = [each for each in SHIPPED if not names or each.file in names]
    media = Media(folder)
    for each in chosen:
        media.model(each.package, each.file)
    (system,) = find_peers(["onnxruntime"], peer_pythons)
    with ExitStack() as kept, tempfile.TemporaryDirectory() as place:
        other = kept.enter_context(peer(system.command[0], Path(place)))
        compiled: dict[str, Both] = {}
        for shipped in chosen:
            say(f"{shipped.file} of {shipped.package}: {_ranges(shipped) or 'one size'}")
            about = {
                "of": "models",
                "file": shipped.file,
                "package": shipped.package,
                "ranges": _ranges(shipped),
            }
            try:
                with ExitStack() as own:
                    pair = own.enter_context(both(shipped, media, other, threads))
                    yield [{**about, **compared(shipped, media, pair, requests)}]
                    if any(shipped.file in files for files in READERS.values()):
                        compiled[shipped.file] = pair
                        kept.push(own.pop_all())
            except AutotuneError as error:
                yield [{**about, "failure": str(error)}]
        for name, files in READERS.items():
            if all(file in compiled for file in files):
                say(f"{name}: text of {lines} lines, and of the same on pages")
                recogniser = next(each for each in SHIPPED if each.file == files[-1])
                content = media.read(media.model(recogniser.package, recogniser.file))
                models = [compiled[file] for file in files]
                yield _read(name, models, characters_of(content), media, lines)


def _ranges(shipped: Shipped) -> str:
    return ", ".join(f"{name}={text}" for name, text in shipped.ranges.items())


def compared(shipped: Shipped, media: Media, pair: Both, requests: int) -> Record:
    """Return the differences of requests; what a model remembers is taken from ONNX Runtime's results."""
    rng, errors = np.random.default_rng(0), list[float]()
    for sizes in shipped.tried(requests, rng):
        inputs = dict(shipped.make(media, rng, sizes))
        for _ in range(3 if shipped.carries else 1):
            wanted = pair.peer(inputs)
            errors.append(difference(pair.run(inputs), wanted))
            following = shipped.make(media, rng, sizes)
            inputs = {**following, **{into: wanted[name] for name, into in shipped.carries.items()}}
    right = sum(error <= TOLERANCE for error in errors)
    return {"seconds": pair.seconds, "requests": len(errors), "right": right, "error": max(errors)}


def _read(
    name: str, models: Sequence[Both], characters: Sequence[str], media: Media, count: int
) -> list[Record]:
    """Return what both systems read of the same lines, alone and on pages."""
    rng = np.random.default_rng(1)
    lines = [*media.lines(rng, count)]
    detect, classify, recognise = models
    ours, theirs = Reader(recognise.run, characters), Reader(recognise.peer, characters)
    texts, others = ([reader.line(each.picture) for each in lines] for reader in (ours, theirs))
    drawn = [each.text for each in lines]
    readers = (
        PageReader(detect.run, classify.run, ours),
        PageReader(detect.peer, classify.peer, theirs),
    )
    pages = [page(rng, some, *_PAGE) for some in _parts(lines)]
    read, other = ([text for each in pages for text in reader.page(each)] for reader in readers)
    return [
        _agreement(name, "lines", texts, others, drawn),
        _agreement(name, "lines of pages", read, other, drawn),
    ]


def _parts(lines: Sequence[Line]) -> Iterator[list[Line]]:
    for first in range(0, len(lines), _LINES):
        yield [*lines[first : first + _LINES]]


def _agreement(
    name: str, what: str, ours: Sequence[str], theirs: Sequence[str], drawn: Sequence[str]
) -> Record:
    """Return how many texts are the same; of pages of which other lines were found none is."""
    same = sum(a == b for a, b in zip(ours, theirs, strict=True)) if len(ours) == len(theirs) else 0
    right = sum(a.replace(" ", "") == b.replace(" ", "") for a, b in zip(ours, drawn, strict=False))
    return {"of": "text", "reader": name, "what": what, "lines": len(theirs), "same": same, "as_drawn": right}


def check(rows: FrameRows) -> None:
    """Raise MeasureError where a model fails or is wrong, or reads another text."""
    models = rows.where(of="models")
    bad = [row["file"] for row in models if row.get("failure") or row["right"] < row["requests"]]
    bad += [f"{row['reader']}, {row['what']}" for row in rows.where(of="text") if row["same"] < row["lines"]]
    if bad:
        raise MeasureError(f"not as ONNX Runtime: {', '.join(bad)}")


def _failure(rows: FrameRows) -> str:
    text = " ".join(rows.get("failure").split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."


EXPERIMENT = Experiment(
    title="Trained models of packages",
    about=(
        "Trained models as packages on PyPI ship them, compiled as they are for ranges of sizes, untuned, asked "
        "for sizes spread over these ranges: pictures, drawn pages and lines of text, recordings, and files of "
        "many types. ONNX Runtime is asked the same. Then text is read from drawn lines and pages by the steps of "
        "PP-OCR, once with our models and once with ONNX Runtime's."
    ),
    summary="Compare trained models that packages ship with ONNX Runtime; NAMES are files among those of the page.",
    example="silero_vad.onnx --folder wheels --peer-python peers/bin/python",
    options=(
        options.words(),
        options.folder(
            "--folder",
            "Wheels of the models' packages and of scikit-image (pictures), and recordings (.wav).",
            Path("wheels"),
        ),
        options.workers(),
        options.number("--requests", 10, "Sizes of each model."),
        options.number("--lines", 100, "Lines of text."),
        options.peer_python(),
    ),
    measure=measure,
    views=(
        TableView(
            "Models",
            ("file",),
            (
                Column("model", "file"),
                Column("package", "package"),
                Column("sizes", lambda rows: rows.get("ranges") or "as it is"),
                Column("compile", "seconds", number(1, " s")),
                Column("requests", "requests"),
                Column("right", "right"),
                Column("max. error", "error", scientific),
            ),
            of="models",
            notes=(
                f"right: at most {TOLERANCE:g} from ONNX Runtime, relative to the largest value of a result",
                "models that remember get three requests a size, with what they remembered",
            ),
        ),
        TableView(
            "Text",
            ("reader", "what"),
            (
                Column("models", "reader"),
                Column("of", "what"),
                Column("lines", "lines"),
                Column("as ONNX Runtime", "same"),
                Column("as drawn", "as_drawn"),
            ),
            of="text",
            notes=("as drawn: spaces left out",),
        ),
        TableView(
            "Not compared",
            ("file",),
            (Column("model", "file"), Column("why", _failure)),
            where=lambda rows: rows.get("failure"),
        ),
    ),
    check=check,
)

__all__ = ["EXPERIMENT", "READERS", "measure"]
