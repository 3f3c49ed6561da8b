"""Artifacts: a compiled model in one file, ``.atm``.

The file is a ZIP archive without compression (any unzip program lists it)::

    manifest.json        format, version, inputs, outputs, and two tables: the cases by sizes and target, each with the
                         steps of its program, and the images that they run (target, commands, dispatches, arena size,
                         library kernels called), with the path, size and hash of every other member
    executors/<n>.o      the runtime's own machine code, which it would have to compile otherwise
    objects/<n>.o        relocatable object code of a dispatch
    constants/<n>.bin    a constant tensor: dense, row-major, little-endian

Equal models make equal bytes, and equal members are there once. Nothing is pickled, nothing is extracted to disk.

Loading checks, in this order and before machine code is mapped: the archive (names, places inside of the file that do
not overlap, no compression), the manifest's version and types, and what :mod:`autotune.runtime.artifacts.packing` and
:meth:`autotune.runtime.compiled.Compiled.verify` check; of several targets only the one that is taken is read.
Constants that stay in the file are hashed on demand only: nothing reads them before a kernel does. Hashes detect
damage, they are no signature: object code runs with the rights of the process, so load artifacts only from where you
would run programs from.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from autotune.errors import ArtifactError, UsageError
from autotune.foreign import parse_json
from autotune.runtime.artifacts.archive import Member, padding, read_bytes, read_members, writing
from autotune.runtime.artifacts.contents import ContentsReader, ContentsWriter
from autotune.runtime.artifacts.manifest import Manifest, decode
from autotune.runtime.artifacts.packing import packed, unpacked
from autotune.runtime.compiled import Case, Compiled, SizedTensor
from autotune.runtime.image import ModuleImage
from autotune.runtime.programs.device_program import HERE, DeviceProgram, ProgramSteps
from autotune.runtime.targets import choose, label
from autotune.target import Target

FORMAT = "autotune-model"
VERSION = 2
MANIFEST = "manifest.json"
T = TypeVar("T")
_EARLIER = ("autotune-module", "autotune-program", "autotune-sizes", "autotune-variants")
_MAX_MANIFEST_BYTES = 256 << 20
_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Size:
    """A size of a symbol."""

    symbol: str
    size: int


@dataclass(frozen=True)
class OutputAxes:
    """Axes of an output of a case."""

    axes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class ProgramManifest(ProgramSteps):
    """A program; ``images`` are numbers in the table of the model."""

    images: tuple[int, ...]
    metadata: Mapping[str, str]


@dataclass(frozen=True)
class CaseManifest:
    """A case, with its program."""

    sizes: tuple[Size, ...]
    given: tuple[str, ...]
    outputs: tuple[OutputAxes, ...]
    program: ProgramManifest


@dataclass(frozen=True)
class ModelManifest:
    """Everything of a model but the bytes of object code and constants."""

    format: str
    version: int
    name: str
    inputs: tuple[SizedTensor, ...]
    outputs: tuple[str, ...]
    least: tuple[Size, ...]
    cases: tuple[CaseManifest, ...]
    images: tuple[Manifest, ...]
    steps: tuple[Size, ...] = ()
    """Not written where there are none."""

    def to_json(self) -> str:
        """Return the canonical JSON, parsed back by :meth:`from_json`."""
        facts = {name: value for name, value in asdict(self).items() if value or name != "steps"}
        return json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @staticmethod
    def from_json(data: bytes) -> ModelManifest:
        """Read and check a manifest; raises ArtifactError that says where it is wrong."""
        try:
            raw = parse_json(data)
        except ValueError as error:
            raise ArtifactError(f"the manifest is not JSON: {error}") from error
        kind = raw.get("format") if isinstance(raw, dict) else None
        if kind not in (FORMAT, *_EARLIER):
            raise ArtifactError(f"not an artifact: its format is not {FORMAT!r}")
        if kind in _EARLIER or raw.get("version") != VERSION:
            raise ArtifactError(
                f"format {kind!r} version {str(raw.get('version'))[:20]}; this release reads {FORMAT!r} version "
                f"{VERSION}: compile the model again"
            )
        found = decode(ModelManifest, {"steps": [], **raw}, "manifest")
        for number, case in enumerate(found.cases):
            if not case.program.images or not all(0 <= n < len(found.images) for n in case.program.images):
                raise ArtifactError(f"case {number} runs images {case.program.images} of {len(found.images)}")
        return found

    def target(self, case: CaseManifest) -> Target | None:
        """Return the machine that a case is for; None where its program names devices."""
        named = case.program.devices != (HERE,)
        return None if named else self.images[case.program.images[0]].target


@dataclass(frozen=True)
class ArtifactFile:
    """The contents of a file, every member of which was found to be whole."""

    manifest: ModelManifest
    nbytes: int


def save(model: Compiled | DeviceProgram | ModuleImage, path: str | os.PathLike[str]) -> None:
    """Write a model to a file, all or nothing; raises ArtifactError."""
    whole = model if isinstance(model, Compiled) else Compiled.of(model)
    whole.verify()
    contents = ContentsWriter()
    images = tuple(packed(image, contents) for image in whole.images)
    cases, count = list[CaseManifest](), 0
    for case in whole.cases:
        numbers = tuple(range(count, count + len(case.program.images)))
        count += len(numbers)
        cases.append(_case(case, numbers))
    least, steps = _sizes(whole.least), _sizes(whole.steps)
    manifest = ModelManifest(
        FORMAT, VERSION, whole.name, whole.inputs, whole.outputs, least, tuple(cases), images, steps
    )
    with writing(Path(path)) as file, zipfile.ZipFile(file, "w") as archive:
        members: dict[str, Any] = {MANIFEST: manifest.to_json().encode(), **contents.members}
        for name, data in members.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.extra = padding(file.tell(), name)
            archive.writestr(entry, data)


def load(
    path: str | os.PathLike[str], *, mapped: bool = False, check: bool = False, target: str | None = None
) -> Compiled:
    """Read and check an artifact; of several targets the best one that this machine can run, or ``target``.

    Constants are read into memory, or ``mapped`` from the file, where they are hashed only with ``check``. Raises
    ArtifactError with the reason and the path, UsageError for a target that it has not.
    """
    return _opened(path, partial(_load, mapped=mapped, check=check, target=target))


def load_image(path: str | os.PathLike[str], *, mapped: bool = False, check: bool = False) -> ModuleImage:
    """Read and check an artifact of one image; raises ArtifactError, also for dynamic shapes or named devices."""
    found = load(path, mapped=mapped, check=check)
    image = found.cases[0].program.image
    if image is None or found.least:
        raise ArtifactError(f"artifact {path}: it is not of one image")
    return image


def examine(path: str | os.PathLike[str]) -> ArtifactFile:
    """Check all of an artifact, whatever it was made for, and say what it holds; raises ArtifactError."""
    return _opened(path, _examined)


def _case(case: Case, images: tuple[int, ...]) -> CaseManifest:
    program = case.program
    made = ProgramManifest(**(vars(program) | {"images": images, "metadata": dict(program.metadata)}))
    return CaseManifest(_sizes(case.sizes), case.given, tuple(map(OutputAxes, case.outputs)), made)


def _opened(path: str | os.PathLike[str], read: Callable[[BinaryIO], T]) -> T:
    """Open a file and read from it; raises ArtifactError with the reason and the path."""
    try:
        with open(path, "rb") as file:
            return read(file)
    except OSError as error:
        raise ArtifactError(f"cannot read artifact {path}: {error.strerror or error}") from error
    except ArtifactError as error:
        raise ArtifactError(f"artifact {path}: {error}") from error


def _load(file: BinaryIO, *, mapped: bool, check: bool, target: str | None) -> Compiled:
    manifest, contents = _read(file, mapped=mapped, check=check)
    taken = _taken(manifest, target)
    cases = [case for case in manifest.cases if manifest.target(case) == taken]
    images = {
        number: unpacked(manifest.images[number], contents)
        for number in dict.fromkeys(n for case in cases for n in case.program.images)
    }
    found = Compiled(
        manifest.name,
        manifest.inputs,
        manifest.outputs,
        _mapping(manifest.least, 0),
        tuple(_unpacked_case(case, images) for case in cases),
        _mapping(manifest.steps),
    )
    found.verify()
    return found


def _taken(manifest: ModelManifest, wanted: str | None) -> Target | None:
    """Return the target whose cases are taken here; None for devices that are named."""
    targets = list(dict.fromkeys(map(manifest.target, manifest.cases)))
    known = [target for target in targets if target is not None]
    if len(known) < len(targets) or not targets:
        if wanted is not None:
            raise UsageError(
                "a program of several devices was compiled for those, not for a target to choose"
            )
        if len(targets) != 1:
            raise ArtifactError("it has no cases, or some for a target and some for devices that are named")
        return None
    if len({*map(label, known)}) < len(known):
        raise ArtifactError(f"a model of several targets has each once, not {', '.join(map(label, known))}")
    return known[0] if len(known) == 1 and wanted is None else known[choose(known, wanted)]


def _unpacked_case(case: CaseManifest, images: Mapping[int, ModuleImage]) -> Case:
    made = case.program
    program = DeviceProgram(**(vars(made) | {"images": tuple(images[number] for number in made.images)}))
    return Case(_mapping(case.sizes), case.given, tuple(output.axes for output in case.outputs), program)


def _examined(file: BinaryIO) -> ArtifactFile:
    manifest, contents = _read(file, mapped=True, check=True)
    for image in manifest.images:
        for blob in image.objects:
            contents.code(blob, "objects")
        for each in image.executors:
            contents.code(each.blob, "executors")
        contents.constants([constant.blob for constant in image.constants])
    return ArtifactFile(manifest, os.fstat(file.fileno()).st_size)


def _read(file: BinaryIO, *, mapped: bool, check: bool) -> tuple[ModelManifest, ContentsReader]:
    members = read_members(file)
    if MANIFEST not in members:
        raise ArtifactError(f"no {MANIFEST} inside")
    manifest = ModelManifest.from_json(_manifest_bytes(file, members.pop(MANIFEST)))
    contents = ContentsReader(file, members, mapped=mapped, check=check)
    contents.check_listed(blob for image in manifest.images for blob in image.blobs)
    return manifest, contents


def _manifest_bytes(file: BinaryIO, member: Member) -> bytes:
    """Return the manifest; the hashes in it cover the rest, its own check is the archive's CRC-32."""
    if member.nbytes > _MAX_MANIFEST_BYTES:
        raise ArtifactError(f"the manifest has {member.nbytes} bytes")
    data = read_bytes(file, member)
    if zlib.crc32(data) != member.crc:
        raise ArtifactError(f"{MANIFEST} is damaged: its CRC-32 is not the archive's")
    return data


def _sizes(sizes: Mapping[str, int]) -> tuple[Size, ...]:
    return tuple(Size(symbol, size) for symbol, size in sizes.items())


def _mapping(sizes: tuple[Size, ...], least: int = 1) -> dict[str, int]:
    found = {each.symbol: each.size for each in sizes}
    if len(found) != len(sizes) or any(size < least for size in found.values()):
        raise ArtifactError(f"these are no sizes: {found}")
    return found


__all__ = [
    "FORMAT",
    "VERSION",
    "ArtifactFile",
    "CaseManifest",
    "ModelManifest",
    "ProgramManifest",
    "examine",
    "load",
    "load_image",
    "save",
]
