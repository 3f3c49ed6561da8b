"""The members of an artifact by their contents: equal ones are stored once, read once, and then checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from autotune.errors import ArtifactError
from autotune.runtime.artifacts.archive import Member, map_file, read_bytes, read_pieces
from autotune.runtime.artifacts.hashes import CODE, DATA, KINDS, hash_of, named
from autotune.runtime.artifacts.manifest import Blob
from autotune.runtime.cpu.device import allocate, constant_places

Kind = Literal["executors", "objects", "constants"]
_SUFFIX: dict[Kind, str] = {"executors": "o", "objects": "o", "constants": "bin"}
_HASH: dict[Kind, str] = {"executors": CODE, "objects": CODE, "constants": DATA}


class ContentsWriter:
    """Collects what an archive will hold; its images name it by :class:`~autotune.runtime.artifacts.manifest.Blob`."""

    def __init__(self) -> None:
        self.members: dict[str, memoryview] = {}
        """Contents by path."""
        self._known: dict[tuple[Kind, str, int], Blob] = {}
        self._counts: dict[Kind, int] = dict.fromkeys(_SUFFIX, 0)

    def code(self, kind: Kind, data: bytes) -> Blob:
        """Return the machine code, or the source of a device's."""
        return self._blob(kind, memoryview(data))

    def constant(self, array: NDArray[Any]) -> Blob:
        """Return the elements of an array: dense, row-major and little-endian."""
        return self._blob("constants", little_endian(array).ravel().view(np.uint8).data)

    def _blob(self, kind: Kind, data: memoryview) -> Blob:
        key = kind, hash_of(_HASH[kind], data), data.nbytes
        if key not in self._known:
            path = f"{kind}/{self._counts[kind]}.{_SUFFIX[kind]}"
            self._counts[kind] += 1
            self._known[key] = Blob(path, data.nbytes, key[1])
            self.members[path] = data
        return self._known[key]


class ContentsReader:
    """Reads the members of an archive, each once whatever number of images name it; raises ArtifactError.

    Constants of 64 KiB and more may stay in the file, ``mapped``: they are then not read, hence checked only with
    ``check``.
    """

    def __init__(
        self, file: BinaryIO, members: dict[str, Member], *, mapped: bool = False, check: bool = False
    ) -> None:
        self._file = file
        self._members = members
        self._mapped = mapped
        self._check = check
        self._code: dict[str, bytes] = {}
        self._constants: dict[str, NDArray[np.uint8]] = {}
        self._pages: NDArray[np.uint8] | None = None

    def check_listed(self, blobs: Iterable[Blob]) -> None:
        """Check that all members are listed, each with its size and the kind of hash that it must have."""
        listed = set[str]()
        for blob in blobs:
            listed.add(blob.path)
            if blob.path not in self._members:
                raise ArtifactError(f"manifest and archive differ: {blob.path[:80]}")
            if self._members[blob.path].nbytes != blob.nbytes:
                raise ArtifactError(f"{blob.path} has another size than the manifest says")
            kind = blob.hash.partition(":")[0]
            if kind != _HASH[_kind(blob)]:
                raise ArtifactError(f"{blob.path} has no {_HASH[_kind(blob)]}, but {kind[:40]!r}")
        if self._members.keys() - listed:
            raise ArtifactError(f"manifest and archive differ: {min(self._members.keys() - listed)[:80]}")

    def code(self, blob: Blob, kind: Kind) -> bytes:
        """Return the bytes of an object or executor, hashed before anyone sees them."""
        _must_be(blob, kind)
        if blob.path not in self._code:
            self._code[blob.path] = read_bytes(self._file, self._members[blob.path])
        if hash_of(CODE, self._code[blob.path]) != blob.hash:
            raise _damaged(blob)
        return self._code[blob.path]

    def constants(self, blobs: Sequence[Blob]) -> list[NDArray[np.uint8]]:
        """Return bytes of constants where they stay: small ones side by side on huge pages, large ones
        there too or mapped."""
        for blob in blobs:
            _must_be(blob, "constants")
        unread = {blob.path: blob for blob in blobs if blob.path not in self._constants}
        moved = [blob for blob in unread.values() if not self._stays(blob)]
        for blob, place in zip(moved, constant_places([blob.nbytes for blob in moved]), strict=True):
            self._constants[blob.path] = self._read(blob, allocate(blob.nbytes) if place is None else place)
        for blob in unread.values():
            if self._stays(blob):
                self._constants[blob.path] = self._in_file(blob)
        return [self._constants[blob.path] for blob in blobs]

    def _stays(self, blob: Blob) -> bool:
        return self._mapped and blob.nbytes >= _MAPPED

    def _read(self, blob: Blob, memory: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Read a member, and hash each piece while it is in the cache."""
        found = KINDS[DATA]()
        for piece in read_pieces(self._file, self._members[blob.path], memory):
            found.update(piece)
        if named(DATA, found) != blob.hash:
            raise _damaged(blob)
        return memory

    def _in_file(self, blob: Blob) -> NDArray[np.uint8]:
        if self._pages is None:
            self._pages = map_file(self._file)
        member = self._members[blob.path]
        found = self._pages[member.start : member.start + member.nbytes]
        if self._check and hash_of(DATA, found.data) != blob.hash:
            raise _damaged(blob)
        return found


_MAPPED = 64 << 10
"""Bytes from which on a constant is worth pages of its own."""


def _kind(blob: Blob) -> Kind:
    """Return the kind of a member by its folder; the archive has no other ones."""
    for kind in _SUFFIX:
        if PurePosixPath(blob.path).parts[0] == kind:
            return kind
    raise ArtifactError(f"unexpected member {blob.path[:80]!r}")


def _must_be(blob: Blob, kind: Kind) -> None:
    if _kind(blob) != kind:
        raise ArtifactError(f"{blob.path} is listed among {kind}")


def _damaged(blob: Blob) -> ArtifactError:
    return ArtifactError(f"{blob.path} is damaged: its {blob.hash.partition(':')[0]} is not the manifest's")


def little_endian(array: NDArray[Any]) -> NDArray[Any]:
    """Return the same values, dense and little-endian (``ascontiguousarray`` makes scalars vectors)."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)


__all__ = ["ContentsReader", "ContentsWriter", "Kind", "little_endian"]
