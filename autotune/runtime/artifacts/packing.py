"""An image in an archive and back: its manifest, with code and constants among the archive's members.

Everything is checked on the way in, before machine code is mapped: the target against this machine, sizes and hashes of
the members, that this process has all library kernels that are called, and that every memory range a command binds lies
inside its tensor or arena.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune import library
from autotune.codegen.process_symbols import TILE_CONFIGURATION
from autotune.codegen.symbols import object_symbols
from autotune.errors import ArtifactError, BuildError
from autotune.hardware import architecture, device_name
from autotune.runtime.artifacts.contents import ContentsReader, ContentsWriter
from autotune.runtime.artifacts.manifest import (
    FORMAT,
    VERSION,
    Blob,
    ConstantBlob,
    ExecutorBlob,
    Manifest,
    stored_dispatches,
)
from autotune.runtime.cpu import native
from autotune.runtime.image import DTYPES, ModuleImage
from autotune.runtime.verify import verify

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
        TILE_CONFIGURATION,
    ]
)
"""Functions of the process that the object code of an artifact may call, and the bytes that it may read."""


def packed(image: ModuleImage, contents: ContentsWriter) -> Manifest:
    """Return the manifest of an image, whose code and constants are added to those of the archive;
    raises ArtifactError."""
    verify(image)
    _check_externals(image.objects)
    executors = []
    if image.target.arch == architecture():
        code = contents.code("executors", native.machine_code())
        executors.append(ExecutorBlob(native.fingerprint(), code))
    objects = [contents.code("objects", data) for data in image.objects]
    constants = [contents.constant(constant) for constant in image.constants]
    return manifest_of(image, objects, constants, executors)


def unpacked(manifest: Manifest, contents: ContentsReader) -> ModuleImage:
    """Return the image of a manifest, with everything checked that is read; raises ArtifactError."""
    _check_target(manifest)
    executors = [contents.code(each.blob, "executors") for each in manifest.executors]
    objects = tuple(contents.code(blob, "objects") for blob in manifest.objects)
    _check_externals(objects)
    _check_libraries(objects, manifest.libraries)
    arrays = contents.constants([constant.blob for constant in manifest.constants])
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


def _check_externals(objects: tuple[bytes, ...]) -> None:
    """Check that object code calls only the functions that an artifact may call."""
    for index, data in enumerate(objects):
        needed = _undefined(data, f"object {index}")
        unknown = needed - EXTERNAL_SYMBOLS - set(library.library_symbols(needed))
        if unknown:
            raise ArtifactError(
                f"object {index} calls {', '.join(sorted(unknown))}, "
                "which an artifact may not: only mathematical and memory functions of C"
            )


def _libraries(objects: tuple[bytes, ...]) -> tuple[str, ...]:
    """Return symbols of the library kernels that object code calls."""
    return library.library_symbols({name for data in objects for name in object_symbols(data).undefined})


def _undefined(data: bytes, where: str) -> frozenset[str]:
    try:
        return object_symbols(data).undefined
    except BuildError as error:
        raise ArtifactError(f"{where}: {error}") from error


def _check_libraries(objects: tuple[bytes, ...], listed: tuple[str, ...]) -> None:
    """Check that the manifest lists exactly the library kernels that are called, and that this process has them all."""
    if listed != _libraries(objects):
        raise ArtifactError("the object code calls other library kernels than the manifest lists")
    for symbol in listed:
        try:
            library.address(symbol)
        except BuildError as error:
            raise ArtifactError(str(error)) from error


def image_of(manifest: Manifest, objects: tuple[bytes, ...], arrays: list[NDArray[np.uint8]]) -> ModuleImage:
    """Return the image of a manifest and the contents of its members; raises ArtifactError where they do not fit."""
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
        dispatches=tuple(each.info(manifest.traces) for each in manifest.dispatches),
        arena_bytes=manifest.arena_bytes,
        metadata=manifest.metadata,
        checks=manifest.checks,
        repeats=manifest.repeats,
        in_place=manifest.in_place,
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
    """Return the manifest of an image: all but the contents of its members; raises BuildError for damaged
    object code."""
    dispatches, traces = stored_dispatches(image.dispatches)
    return Manifest(
        format=FORMAT,
        version=VERSION,
        name=image.name,
        target=image.target,
        inputs=image.inputs,
        outputs=image.outputs,
        commands=image.commands,
        dispatches=dispatches,
        traces=traces,
        arena_bytes=image.arena_bytes,
        libraries=_libraries(image.objects),
        metadata=dict(image.metadata),
        checks=image.checks,
        repeats=image.repeats,
        in_place=image.in_place,
        objects=tuple(objects),
        constants=tuple(
            ConstantBlob(array.shape, array.dtype.name, blob)
            for array, blob in zip(image.constants, constants, strict=True)
        ),
        executors=tuple(executors),
    )


__all__ = ["EXTERNAL_SYMBOLS", "image_of", "manifest_of", "packed", "unpacked"]
