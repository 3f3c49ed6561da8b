"""Artifacts of programs for several devices: one file that holds the image of every part, and the steps between them.

The file is an archive as :mod:`autotune.runtime.artifact` describes it, of the members of all parts, equal ones once.
Its manifest has the steps of the program and the manifest of each part. The same is checked of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from autotune.errors import ArtifactError
from autotune.runtime.artifact import packed, unpacked, write_archive
from autotune.runtime.contents import ContentsReader, ContentsWriter
from autotune.runtime.device_program import DeviceProgram, DeviceValue, ProgramInput, Step
from autotune.runtime.image import TensorSpec
from autotune.runtime.manifest import Manifest, decode
from autotune.runtime.verify_program import verify_program

PROGRAM_FORMAT = "autotune-program"
PROGRAM_VERSION = 2


@dataclass(frozen=True)
class ProgramManifest:
    """Everything of a program but the bytes of object code and constants."""

    format: str
    version: int
    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    values: tuple[DeviceValue, ...]
    arguments: tuple[ProgramInput, ...]
    results: tuple[int, ...]
    steps: tuple[Step, ...]
    images: tuple[Manifest, ...]
    metadata: Mapping[str, str]

    def to_json(self) -> str:
        """Return the canonical JSON, parsed back by :meth:`from_json`."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> ProgramManifest:
        """Check what was parsed; raises ArtifactError that says where it is wrong."""
        if raw.get("version") != PROGRAM_VERSION:
            raise ArtifactError(
                f"format version {raw.get('version')!r} of a program; this release reads version "
                f"{PROGRAM_VERSION}: compile the model again"
            )
        return decode(ProgramManifest, raw, "manifest")


def save(program: DeviceProgram, path: str | os.PathLike[str]) -> None:
    """Write a program to a file, all or nothing; raises ArtifactError."""
    verify_program(program)
    contents = ContentsWriter()
    parts = [packed(image, contents) for image in program.images]
    manifest = ProgramManifest(
        format=PROGRAM_FORMAT,
        version=PROGRAM_VERSION,
        name=program.name,
        inputs=program.inputs,
        outputs=program.outputs,
        values=program.values,
        arguments=program.arguments,
        results=program.results,
        steps=program.steps,
        images=tuple(parts),
        metadata=dict(program.metadata),
    )
    write_archive(path, manifest.to_json(), contents.members)


def unpacked_program(manifest: ProgramManifest, contents: ContentsReader) -> DeviceProgram:
    """Return the program of a manifest, with everything checked that is read; raises ArtifactError."""
    program = DeviceProgram(
        name=manifest.name,
        inputs=manifest.inputs,
        outputs=manifest.outputs,
        values=manifest.values,
        arguments=manifest.arguments,
        results=manifest.results,
        steps=manifest.steps,
        images=tuple(unpacked(part, contents) for part in manifest.images),
        metadata=manifest.metadata,
    )
    verify_program(program)
    return program


__all__ = ["PROGRAM_FORMAT", "PROGRAM_VERSION", "ProgramManifest", "save", "unpacked_program"]
