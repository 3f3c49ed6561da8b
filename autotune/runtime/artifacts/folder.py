"""Images of a folder: object code and constants that several of them have in common are there once.

Interleaved versions of a model differ in a few kernels. Contents lie in files named by their hash; an image is
a manifest that names them. Both sides are processes of one job: contents are not checked when they are read.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotune.errors import ArtifactError
from autotune.runtime.artifacts.contents import little_endian
from autotune.runtime.artifacts.hashes import DATA, hash_of
from autotune.runtime.artifacts.manifest import Blob, Manifest
from autotune.runtime.artifacts.packing import image_of, manifest_of
from autotune.runtime.cpu.device import address_of, allocate
from autotune.runtime.image import ModuleImage


class FolderWriter:
    """Puts images into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._objects: dict[bytes, Blob] = {}
        self._constants: dict[tuple[int, int], tuple[NDArray[np.uint8], Blob]] = {}
        """By address and size; as long as the array is here, nothing else lies there."""
        self._count = 0

    def add(self, image: ModuleImage) -> Path:
        """Return the manifest of an image, in the folder with everything that it names; raises OSError."""
        objects = [self._object(data) for data in image.objects]
        constants = [
            self._constant(little_endian(array).reshape(-1).view(np.uint8)) for array in image.constants
        ]
        path = self._folder / f"{self._count}.json"
        path.write_text(manifest_of(image, objects, constants).to_json(), encoding="utf-8")
        self._count += 1
        return path

    def _object(self, data: bytes) -> Blob:
        if data not in self._objects:
            self._objects[data] = self._written(np.frombuffer(data, np.uint8))
        return self._objects[data]

    def _constant(self, array: NDArray[np.uint8]) -> Blob:
        key = address_of(array), array.nbytes
        if key not in self._constants:
            self._constants[key] = array, self._written(array)
        return self._constants[key][1]

    def _written(self, data: NDArray[np.uint8]) -> Blob:
        digest = hash_of(DATA, data.data)
        name = digest.replace(":", "-")
        path = self._folder / name
        if not path.exists():
            path.write_bytes(data.data)
        return Blob(name, data.nbytes, digest)


class FolderReader:
    """Reads images of folders; what they have in common is the same array."""

    def __init__(self) -> None:
        self._contents: dict[Path, NDArray[np.uint8]] = {}

    def image(self, path: Path) -> ModuleImage:
        """Return the image of a manifest; raises OSError and ArtifactError."""
        manifest = Manifest.from_json(path.read_bytes())
        objects = tuple(self._data(path.parent, blob).tobytes() for blob in manifest.objects)
        return image_of(manifest, objects, [self._data(path.parent, c.blob) for c in manifest.constants])

    def _data(self, folder: Path, blob: Blob) -> NDArray[np.uint8]:
        path = folder / blob.path
        if path not in self._contents:
            memory = allocate(blob.nbytes)
            with path.open("rb", buffering=0) as file:
                if file.readinto(memory.data) != blob.nbytes:
                    raise ArtifactError(f"{path} is truncated")
            self._contents[path] = memory
        return self._contents[path]


__all__ = ["FolderReader", "FolderWriter"]
