"""Artifacts: a compiled model in one file, ``.atm``.

The file is a ZIP archive without compression (any unzip program lists it)::

    manifest.json        format, version, target, inputs, outputs, commands, dispatches, arena size,
                         metadata, library kernels called, and the path, size and SHA-256 of every other member
    executors/<n>.o      the runtime's own machine code, which it would have to compile otherwise
    objects/<n>.o        relocatable object code of a dispatch
    constants/<n>.bin    a constant tensor: dense, row-major, little-endian

Equal images make equal bytes. Nothing is pickled, nothing is extracted to disk.

Loading checks, in this order and before machine code is mapped: the archive (names, sizes that add up
to no more than the file, no compression), the manifest's version and types, the target against this
machine, sizes and hashes of the members, that this process has all library kernels that are called,
and that every memory range a command binds lies inside its tensor or arena. Hashes detect damage, they
are no signature: object code runs with the rights of the process, so load artifacts only from where
you would run programs from.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from autotune import library
from autotune.codegen.symbols import object_symbols
from autotune.errors import ArtifactError, BuildError
from autotune.hardware import architecture, device_name, usable_cores
from autotune.runtime import native
from autotune.runtime.archive import Member, map_file, padding, read_bytes, read_into, read_members, writing
from autotune.runtime.device import allocate, constant_places
from autotune.runtime.image import DTYPES, ModuleImage
from autotune.runtime.manifest import FORMAT, VERSION, Blob, ConstantBlob, ExecutorBlob, Manifest
from autotune.runtime.verify import verify

MANIFEST = "manifest.json"
T = TypeVar("T")
_MAX_MANIFEST_BYTES = 256 << 20
_LARGE = 1 << 18
"""Bytes that are worth another core."""
_DATE = (1980, 1, 1, 0, 0, 0)

_MATH = """
    acos asin atan atan2 ceil cos cosh erf exp exp2 expm1 floor fma fmax fmin fmod ldexp log log10
    log1p log2 nearbyint pow rint round roundeven sin sinh sqrt tan tanh trunc
""".split()  # noqa: SIM905
EXTERNAL_SYMBOLS = frozenset(
    [
        *("memcpy", "memmove", "memset"),
        *_MATH,
        *(name + "f" for name in _MATH),
        *("__extendhfsf2", "__truncsfhf2", "__truncdfhf2"),
    ]
)
"""Functions of the process that the object code of an artifact may call."""


def save(image: ModuleImage, path: str | os.PathLike[str]) -> None:
    """Write an image to a file, all or nothing; raises ArtifactError."""
    manifest, contents = packed(image)
    write_archive(path, manifest.to_json(), contents)


def load(path: str | os.PathLike[str], *, mapped: bool = False) -> ModuleImage:
    """Read and check an artifact; raises ArtifactError with the reason and the path. See :func:`unpacked`."""
    return opened(path, partial(_load, mapped=mapped))


def packed(image: ModuleImage, folder: str = "") -> tuple[Manifest, dict[str, Any]]:
    """The manifest of an image and the contents of its members, in a folder of the archive; raises ArtifactError."""
    verify(image)
    _check_externals(image.objects)
    constants = [little_endian(constant) for constant in image.constants]
    objects = {f"{folder}objects/{i}.o": data for i, data in enumerate(image.objects)}
    data = {f"{folder}constants/{i}.bin": a.reshape(-1).view(np.uint8) for i, a in enumerate(constants)}
    executors = _executors(image, folder)
    own = [ExecutorBlob(native.fingerprint(), blob) for blob in _blobs(executors)]
    contents: dict[str, Any] = {**executors, **objects, **data}
    return manifest_of(image, _blobs(objects), _blobs(data), own), contents


def _executors(image: ModuleImage, folder: str) -> dict[str, bytes]:
    """The executor that runs an image, where it runs on machines like this one."""
    if image.target.arch != architecture():
        return {}
    return {f"{folder}executors/0.o": native.machine_code()}


def write_archive(path: str | os.PathLike[str], manifest: str, contents: Mapping[str, Any]) -> None:
    """Write an archive, all or nothing; raises ArtifactError."""
    with writing(Path(path)) as file, zipfile.ZipFile(file, "w") as archive:
        for name, data in {MANIFEST: manifest.encode(), **contents}.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.extra = padding(file.tell(), name)
            archive.writestr(entry, bytes(data))


def opened(path: str | os.PathLike[str], read: Callable[[BinaryIO], T]) -> T:
    """What is read from a file; raises ArtifactError with the reason and the path."""
    try:
        with open(path, "rb") as file:
            return read(file)
    except OSError as error:
        raise ArtifactError(f"cannot read artifact {path}: {error.strerror or error}") from error
    except ArtifactError as error:
        raise ArtifactError(f"artifact {path}: {error}") from error


def _load(file: BinaryIO, *, mapped: bool) -> ModuleImage:
    data, members = manifest_and_members(file)
    return unpacked(Manifest.from_json(data), file, members, mapped=mapped)


def manifest_and_members(file: BinaryIO) -> tuple[bytes, dict[str, Member]]:
    """The manifest of an archive, as it stands there, and the other members; raises ArtifactError."""
    members = read_members(file)
    if MANIFEST not in members:
        raise ArtifactError(f"no {MANIFEST} inside")
    return _manifest_bytes(file, members.pop(MANIFEST)), members


def unpacked(
    manifest: Manifest, file: BinaryIO, members: dict[str, Member], *, mapped: bool = False
) -> ModuleImage:
    """The image of a manifest, whose members are exactly these, with everything checked; raises ArtifactError.

    Large constants are read into memory, or ``mapped`` from the file.
    """
    _check_target(manifest)
    code = [*(each.blob for each in manifest.executors), *manifest.objects]
    stored = [constant.blob for constant in manifest.constants]
    _check_sizes([*code, *stored], members)
    read = [read_bytes(file, members[blob.path]) for blob in code]
    arrays: list[NDArray[np.uint8]] = []

    def contents() -> Iterator[bytes | memoryview]:
        yield from read
        for array in _constants(file, [members[blob.path] for blob in stored], mapped=mapped):
            arrays.append(array)
            yield array.data

    _check_hashes([*code, *stored], contents())
    executors, objects = read[: len(manifest.executors)], tuple(read[len(manifest.executors) :])
    _check_externals(objects)
    _check_libraries(objects, manifest.libraries)
    image = image_of(manifest, objects, arrays)
    verify(image)
    _take_executor(manifest, executors)
    return image


def _take_executor(manifest: Manifest, executors: list[bytes]) -> None:
    """Let this process run on an executor that is made for it, where there is one."""
    for each, code in zip(manifest.executors, executors, strict=True):
        if each.fingerprint == native.fingerprint():
            unknown = _undefined(code, each.blob.path) - native.SYMBOLS
            if unknown:
                raise ArtifactError(f"{each.blob.path} calls {min(unknown)[:80]}, which an executor may not")
            if native.ENTRY_SYMBOLS - object_symbols(code).defined:
                raise ArtifactError(f"{each.blob.path} is no executor: entry points are missing")
            native.give(code)


def _manifest_bytes(file: BinaryIO, member: Member) -> bytes:
    """The manifest; the hashes in it cover the rest, its own check is the archive's CRC-32."""
    if member.nbytes > _MAX_MANIFEST_BYTES:
        raise ArtifactError(f"the manifest has {member.nbytes} bytes")
    data = read_bytes(file, member)
    if zlib.crc32(data) != member.crc:
        raise ArtifactError(f"{MANIFEST} is damaged: its CRC-32 is not the archive's")
    return data


def _check_target(manifest: Manifest) -> None:
    if manifest.target.group_items:
        return  # a device beside it, which is looked for where the model is to run
    missing = manifest.target.lacking_here()
    if missing:
        raise ArtifactError(
            f"compiled for {manifest.target.arch} {manifest.target.cpu}; this machine "
            f"({architecture()}, {device_name()}) has no {', '.join(missing)}: "
            "compile the model for this machine"
        )


def _check_sizes(blobs: list[Blob], members: dict[str, Member]) -> None:
    """The manifest lists exactly the members of the archive, with their sizes."""
    listed = [blob.path for blob in blobs]
    if sorted(listed) != sorted(members):
        different = sorted(set(listed) ^ set(members)) or ["a member listed twice"]
        raise ArtifactError(f"manifest and archive differ: {different[0][:80]}")
    for blob in blobs:
        if members[blob.path].nbytes != blob.nbytes:
            raise ArtifactError(f"{blob.path} has another size than the manifest says")


def _constants(file: BinaryIO, members: Sequence[Member], *, mapped: bool) -> Iterator[NDArray[np.uint8]]:
    """Constants where they stay: small ones side by side on huge pages, large ones there too or ``mapped``."""
    whole = map_file(file) if mapped and members else None
    for member, place in zip(members, constant_places([each.nbytes for each in members]), strict=True):
        if whole is not None and place is None:
            yield whole[member.start : member.start + member.nbytes]
        else:
            yield read_into(file, member, allocate(member.nbytes) if place is None else place)


def _check_hashes(blobs: Sequence[Blob], contents: Iterable[bytes | memoryview]) -> None:
    """The contents are what the manifest says."""
    for blob, digest in zip(blobs, _digests(contents), strict=True):
        if digest != blob.sha256:
            raise ArtifactError(f"{blob.path} is damaged: its SHA-256 is not the manifest's")


def _digests(contents: Iterable[bytes | memoryview]) -> list[str]:
    """SHA-256 of each in hex; while one is read, large ones before it are hashed on other cores."""
    with ThreadPoolExecutor(usable_cores()) as hashing:
        found = [
            hashing.submit(_digest, data).result
            if memoryview(data).nbytes >= _LARGE
            else partial(_digest, data)
            for data in contents
        ]
        return [digest() for digest in found]


def _digest(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def _check_externals(objects: tuple[bytes, ...]) -> None:
    """Object code calls only the functions that an artifact may call."""
    for index, data in enumerate(objects):
        needed = _undefined(data, f"object {index}")
        unknown = needed - EXTERNAL_SYMBOLS - set(library.library_symbols(needed))
        if unknown:
            raise ArtifactError(
                f"object {index} calls {', '.join(sorted(unknown))}, "
                "which an artifact may not: only mathematical and memory functions of C"
            )


def _libraries(objects: tuple[bytes, ...]) -> tuple[str, ...]:
    """Symbols of the library kernels that object code calls."""
    return library.library_symbols({name for data in objects for name in object_symbols(data).undefined})


def _undefined(data: bytes, where: str) -> frozenset[str]:
    try:
        return object_symbols(data).undefined
    except BuildError as error:
        raise ArtifactError(f"{where}: {error}") from error


def _check_libraries(objects: tuple[bytes, ...], listed: tuple[str, ...]) -> None:
    """The manifest lists exactly the library kernels that are called, and this process has them all."""
    if listed != _libraries(objects):
        raise ArtifactError("the object code calls other library kernels than the manifest lists")
    for symbol in listed:
        try:
            library.address(symbol)
        except BuildError as error:
            raise ArtifactError(str(error)) from error


def image_of(manifest: Manifest, objects: tuple[bytes, ...], arrays: list[NDArray[np.uint8]]) -> ModuleImage:
    """The image of a manifest and the contents of its members; raises ArtifactError where they do not fit."""
    constants = tuple(
        _constant(constant, array) for constant, array in zip(manifest.constants, arrays, strict=True)
    )
    return ModuleImage(
        name=manifest.name,
        target=manifest.target,
        inputs=manifest.inputs,
        outputs=manifest.outputs,
        objects=objects,
        constants=constants,
        commands=manifest.commands,
        dispatches=manifest.dispatches,
        arena_bytes=manifest.arena_bytes,
        metadata=manifest.metadata,
        checks=manifest.checks,
    )


def _constant(constant: ConstantBlob, data: NDArray[np.uint8]) -> NDArray[Any]:
    if constant.dtype not in DTYPES:
        raise ArtifactError(f"{constant.blob.path} has dtype {constant.dtype[:40]!r}")
    dtype = np.dtype(constant.dtype).newbyteorder("<")
    try:
        array = data.view(dtype).reshape(constant.shape)
    except (ValueError, TypeError, OverflowError) as error:
        raise ArtifactError(f"{constant.blob.path} does not fit its shape") from error
    if array.shape != constant.shape:  # -1 is a shape to NumPy
        raise ArtifactError(f"{constant.blob.path} does not fit its shape")
    return array


def manifest_of(
    image: ModuleImage,
    objects: Sequence[Blob],
    constants: Sequence[Blob],
    executors: Sequence[ExecutorBlob] = (),
) -> Manifest:
    """What an image is but for the contents of its members; raises BuildError for damaged object code."""
    return Manifest(
        format=FORMAT,
        version=VERSION,
        name=image.name,
        target=image.target,
        inputs=image.inputs,
        outputs=image.outputs,
        commands=image.commands,
        dispatches=image.dispatches,
        arena_bytes=image.arena_bytes,
        libraries=_libraries(image.objects),
        metadata=dict(image.metadata),
        checks=image.checks,
        objects=tuple(objects),
        constants=tuple(
            ConstantBlob(array.shape, array.dtype.name, blob)
            for array, blob in zip(image.constants, constants, strict=True)
        ),
        executors=tuple(executors),
    )


def _blobs(contents: Mapping[str, Any]) -> list[Blob]:
    digests = _digests([memoryview(data) for data in contents.values()])
    return [
        Blob(name, len(data), digest) for (name, data), digest in zip(contents.items(), digests, strict=True)
    ]


def little_endian(array: NDArray[Any]) -> NDArray[Any]:
    """The same values, dense and little-endian (``ascontiguousarray`` makes scalars vectors)."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)


__all__ = [
    "EXTERNAL_SYMBOLS",
    "image_of",
    "little_endian",
    "load",
    "manifest_and_members",
    "manifest_of",
    "opened",
    "packed",
    "save",
    "unpacked",
    "write_archive",
]
