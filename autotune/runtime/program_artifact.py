"""Artifacts of programs for several devices: one file that holds the image of every part, and the steps between them.

The file is an archive as :mod:`autotune.runtime.artifact` describes it, with the members of part *n* in the folder
``images/<n>``. Its manifest has the steps of the program and the manifest of each part. The same is checked of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, BinaryIO

from autotune.errors import ArtifactError
from autotune.runtime.archive import Member
from autotune.runtime.artifact import manifest_and_members, opened, packed, unpacked, write_archive
from autotune.runtime.device_program import DeviceProgram, DeviceValue, ProgramInput, Step
from autotune.runtime.image import ModuleImage, TensorSpec
from autotune.runtime.manifest import Manifest, decode
from autotune.runtime.verify_program import verify_program

PROGRAM_FORMAT = "autotune-program"
PROGRAM_VERSION = 1


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
        """Canonical JSON, parsed back by :meth:`from_json`."""
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
    parts = [packed(image, _folder(number)) for number, image in enumerate(program.images)]
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
        images=tuple(manifest for manifest, _ in parts),
        metadata=dict(program.metadata),
    )
    contents = {name: data for _, each in parts for name, data in each.items()}
    write_archive(path, manifest.to_json(), contents)


def load_either(path: str | os.PathLike[str], *, mapped: bool = False) -> ModuleImage | DeviceProgram:
    """Read and check an artifact of either kind; raises ArtifactError with the reason and the path.

    Large constants are read into memory, or ``mapped`` from the file.
    """
    return opened(path, partial(_load_either, mapped=mapped))


def _load_either(file: BinaryIO, *, mapped: bool) -> ModuleImage | DeviceProgram:
    data, members = manifest_and_members(file)
    raw = _parsed(data)
    if raw is not None and raw.get("format") == PROGRAM_FORMAT:
        return _program(ProgramManifest.from_json(raw), file, members, mapped=mapped)
    return unpacked(Manifest.from_json(data), file, members, mapped=mapped)


def _parsed(data: bytes) -> dict[str, Any] | None:
    """A manifest as JSON; None for what is no object, of which :class:`Manifest` says what is wrong."""
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return raw if isinstance(raw, dict) else None


def _program(
    manifest: ProgramManifest, file: BinaryIO, members: dict[str, Member], *, mapped: bool
) -> DeviceProgram:
    images = []
    for number, part in enumerate(manifest.images):
        own = {name: member for name, member in members.items() if name.startswith(_folder(number))}
        images.append(unpacked(part, file, own, mapped=mapped))
        members = {name: member for name, member in members.items() if name not in own}
    if members:
        raise ArtifactError(f"manifest and archive differ: {min(members)[:80]}")
    program = DeviceProgram(
        name=manifest.name,
        inputs=manifest.inputs,
        outputs=manifest.outputs,
        values=manifest.values,
        arguments=manifest.arguments,
        results=manifest.results,
        steps=manifest.steps,
        images=tuple(images),
        metadata=manifest.metadata,
    )
    verify_program(program)
    return program


def _folder(number: int) -> str:
    return f"images/{number}/"


__all__ = ["PROGRAM_FORMAT", "PROGRAM_VERSION", "ProgramManifest", "load_either", "save"]
