"""Artifacts of models of open sizes: one file with the image of every bucket, equal constants once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from autotune.errors import ArtifactError
from autotune.runtime.artifact import packed, unpacked, write_archive
from autotune.runtime.contents import ContentsReader, ContentsWriter
from autotune.runtime.manifest import Manifest, decode
from autotune.runtime.sized_model import SizeBucket, SizedModel, SizedTensor

SIZED_FORMAT = "autotune-sizes"
SIZED_VERSION = 1


@dataclass(frozen=True)
class Size:
    """A size of a symbol."""

    symbol: str
    size: int


@dataclass(frozen=True)
class OutputAxes:
    """Axes of an output of a bucket."""

    axes: tuple[str, ...]


@dataclass(frozen=True)
class BucketManifest:
    """A bucket and its image."""

    sizes: tuple[Size, ...]
    given: tuple[str, ...]
    outputs: tuple[OutputAxes, ...]
    image: Manifest


@dataclass(frozen=True)
class SizedManifest:
    """Everything of a model of open sizes but the bytes of object code and constants."""

    format: str
    version: int
    name: str
    inputs: tuple[SizedTensor, ...]
    outputs: tuple[str, ...]
    least: tuple[Size, ...]
    buckets: tuple[BucketManifest, ...]

    @property
    def images(self) -> tuple[Manifest, ...]:
        """Manifests of all images."""
        return tuple(bucket.image for bucket in self.buckets)

    def to_json(self) -> str:
        """Return the canonical JSON, parsed back by :meth:`from_json`."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> SizedManifest:
        """Check what was parsed; raises ArtifactError that says where it is wrong."""
        if raw.get("version") != SIZED_VERSION:
            raise ArtifactError(
                f"format version {raw.get('version')!r} of a model of open sizes; this release reads version "
                f"{SIZED_VERSION}: compile the model again"
            )
        return decode(SizedManifest, raw, "manifest")


def save(model: SizedModel, path: str | os.PathLike[str]) -> None:
    """Write a model to a file, all or nothing; raises ArtifactError."""
    model.verify()
    contents = ContentsWriter()
    buckets = tuple(
        BucketManifest(
            _sizes(bucket.sizes),
            bucket.given,
            tuple(map(OutputAxes, bucket.outputs)),
            packed(image, contents),
        )
        for bucket, image in zip(model.buckets, model.images, strict=True)
    )
    manifest = SizedManifest(
        SIZED_FORMAT, SIZED_VERSION, model.name, model.inputs, model.outputs, _sizes(model.least), buckets
    )
    write_archive(path, manifest.to_json(), contents.members)


def unpacked_sizes(manifest: SizedManifest, contents: ContentsReader) -> SizedModel:
    """Return the model of a manifest, with everything checked that is read; raises ArtifactError."""
    buckets = tuple(
        SizeBucket(_mapping(each.sizes), each.given, tuple(output.axes for output in each.outputs))
        for each in manifest.buckets
    )
    images = tuple(unpacked(each.image, contents) for each in manifest.buckets)
    least = _mapping(manifest.least, 0)
    model = SizedModel(manifest.name, manifest.inputs, manifest.outputs, least, buckets, images)
    model.verify()
    return model


def _sizes(sizes: Mapping[str, int]) -> tuple[Size, ...]:
    return tuple(Size(symbol, size) for symbol, size in sizes.items())


def _mapping(sizes: tuple[Size, ...], least: int = 1) -> dict[str, int]:
    found = {each.symbol: each.size for each in sizes}
    if len(found) != len(sizes) or any(size < least for size in found.values()):
        raise ArtifactError(f"these are no sizes: {found}")
    return found


__all__ = ["SIZED_FORMAT", "SIZED_VERSION", "SizedManifest", "save", "unpacked_sizes"]
