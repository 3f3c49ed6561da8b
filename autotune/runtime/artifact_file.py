"""Artifacts of every kind: of one image, of a program for several devices, of a model for several targets or sizes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from autotune.errors import UsageError
from autotune.foreign import parse_json
from autotune.runtime.artifact import manifest_and_members, opened, unpacked
from autotune.runtime.contents import ContentsReader
from autotune.runtime.device_program import DeviceProgram
from autotune.runtime.image import ModuleImage
from autotune.runtime.manifest import Blob, Manifest
from autotune.runtime.program_artifact import PROGRAM_FORMAT, ProgramManifest, unpacked_program
from autotune.runtime.sized_artifact import SIZED_FORMAT, SizedManifest, unpacked_sizes
from autotune.runtime.sized_model import SizedModel
from autotune.runtime.variants import VARIANTS_FORMAT, VariantsManifest, choose, label

AnyManifest = Manifest | ProgramManifest | VariantsManifest | SizedManifest
AnyModel = ModuleImage | DeviceProgram | SizedModel


@dataclass(frozen=True)
class ArtifactFile:
    """The contents of a file, every member of which was found to be whole."""

    manifest: AnyManifest
    nbytes: int

    @property
    def images(self) -> tuple[Manifest, ...]:
        """Manifests of all images: parts of a program, or the model for each of its targets or sizes."""
        return _images(self.manifest)


def load_any(
    path: str | os.PathLike[str], *, mapped: bool = False, check: bool = False, target: str | None = None
) -> AnyModel:
    """Read and check an artifact; of several targets the best one that this machine can run, or ``target``.

    Constants are read into memory, or ``mapped`` from the file, where they are hashed only with ``check``. Raises
    ArtifactError with the reason and the path, UsageError for a target that it has not.
    """
    return opened(path, partial(_load, mapped=mapped, check=check, target=target))


def examine(path: str | os.PathLike[str]) -> ArtifactFile:
    """Check all of an artifact, whatever it was made for, and say what it holds; raises ArtifactError."""
    return opened(path, _examined)


def _load(file: BinaryIO, *, mapped: bool, check: bool, target: str | None) -> AnyModel:
    manifest, contents = _read(file, mapped=mapped, check=check)
    if isinstance(manifest, VariantsManifest):
        number = choose([variant.target for variant in manifest.variants], target)
        return unpacked(manifest.variants[number], contents)
    if isinstance(manifest, ProgramManifest):
        if target is not None:
            raise UsageError(
                "a program of several devices was compiled for those, not for a target to choose"
            )
        return unpacked_program(manifest, contents)
    if isinstance(manifest, SizedManifest):
        if target is not None:
            raise UsageError("a model of open sizes was compiled for one target: leave it out")
        return unpacked_sizes(manifest, contents)
    if target not in (None, label(manifest.target)):
        raise UsageError(f"the artifact has no target {target!r}; it has {label(manifest.target)}")
    return unpacked(manifest, contents)


def _examined(file: BinaryIO) -> ArtifactFile:
    manifest, contents = _read(file, mapped=True, check=True)
    for image in _images(manifest):
        for blob in image.objects:
            contents.code(blob, "objects")
        for each in image.executors:
            contents.code(each.blob, "executors")
        contents.constants([constant.blob for constant in image.constants])
    return ArtifactFile(manifest, os.fstat(file.fileno()).st_size)


def _read(file: BinaryIO, *, mapped: bool, check: bool) -> tuple[AnyManifest, ContentsReader]:
    data, members = manifest_and_members(file)
    manifest = _manifest(data)
    contents = ContentsReader(file, members, mapped=mapped, check=check)
    contents.check_listed(_blobs(manifest))
    return manifest, contents


def _manifest(data: bytes) -> AnyManifest:
    try:
        raw = parse_json(data)
    except ValueError:
        return Manifest.from_json(data)  # which says what is wrong
    kind = raw.get("format") if isinstance(raw, dict) else None
    if kind == PROGRAM_FORMAT:
        return ProgramManifest.from_json(raw)
    if kind == SIZED_FORMAT:
        return SizedManifest.from_json(raw)
    return VariantsManifest.from_json(raw) if kind == VARIANTS_FORMAT else Manifest.from_parsed(raw)


def _images(manifest: AnyManifest) -> tuple[Manifest, ...]:
    if isinstance(manifest, (ProgramManifest, SizedManifest)):
        return manifest.images
    return manifest.variants if isinstance(manifest, VariantsManifest) else (manifest,)


def _blobs(manifest: AnyManifest) -> list[Blob]:
    return [blob for image in _images(manifest) for blob in image.blobs]


__all__ = ["AnyManifest", "AnyModel", "ArtifactFile", "examine", "load_any"]
