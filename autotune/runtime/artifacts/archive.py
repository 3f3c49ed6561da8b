"""The container of an artifact: an uncompressed ZIP file, read without trusting it."""

from __future__ import annotations

import mmap
import os
import re
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from autotune.errors import ArtifactError
from autotune.files import replacing
from autotune.runtime.cpu.device import ALIGNMENT

_MEMBER = re.compile(
    r"manifest\.json|executors/[0-9]{1,3}\.o|objects/[0-9]{1,9}\.o|constants/[0-9]{1,9}\.bin"
)
_PIECE = 256 << 10
"""Bytes that are read at once, to be hashed while they are in a core's cache."""
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_ENCRYPTED = 1
_EXTRA = struct.Struct("<HH")
_PADDING = 0xD935
"""The kind of extra field that Android's zipalign fills."""


SUFFIX = ".atm"
MAGIC = b"PK\x03\x04"
"""The first bytes of a ZIP archive, and of each of its members."""


def is_archive(path: str | os.PathLike[str]) -> bool:
    """Return whether a path means an artifact: by its name, or by how the file begins."""
    if os.fspath(path).endswith(SUFFIX):
        return True
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


@dataclass(frozen=True)
class Member:
    """The place of a member's bytes in the file, and their CRC-32 by the directory."""

    start: int
    nbytes: int
    crc: int


def read_members(file: BinaryIO) -> dict[str, Member]:
    """Return the members of an archive, from a directory that is checked; raises ArtifactError."""
    total = os.fstat(file.fileno()).st_size
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error) as error:
        raise ArtifactError(
            f"not an archive, or damaged: {error}; an artifact is what `autotune compile` or Module.save wrote"
        ) from error
    if sum(entry.file_size for entry in entries) > total:
        raise ArtifactError("its members are larger than the file")
    found: dict[str, Member] = {}
    for entry in entries:
        name = entry.filename
        if not _MEMBER.fullmatch(name) or name in found:
            raise ArtifactError(f"unexpected member {name[:80]!r}")
        if (
            entry.compress_type != zipfile.ZIP_STORED
            or entry.compress_size != entry.file_size
            or entry.flag_bits & _ENCRYPTED
        ):
            raise ArtifactError(f"member {name} is compressed or encrypted")
        start = _data_start(file, entry.header_offset)
        if start + entry.file_size > total:
            raise ArtifactError(f"member {name} ends behind the end of the file")
        found[name] = Member(start, entry.file_size, entry.CRC)
    _check_apart(found)
    return found


def _check_apart(members: dict[str, Member]) -> None:
    """Check that no byte belongs to two members."""
    end, last = 0, ""
    for name, member in sorted(members.items(), key=lambda item: (item[1].start, item[1].nbytes)):
        if member.start < end:
            raise ArtifactError(f"members {last} and {name} overlap")
        end, last = member.start + member.nbytes, name


def _data_start(file: BinaryIO, header: int) -> int:
    """Return the begin of a member's data, behind its local header."""
    if header < 0:
        raise ArtifactError("a member begins before the file")
    file.seek(header)
    data = file.read(_LOCAL_HEADER.size)
    if len(data) < _LOCAL_HEADER.size or data[:4] != MAGIC:
        raise ArtifactError("a member has no header")
    _, name, extra = _LOCAL_HEADER.unpack(data)
    return header + _LOCAL_HEADER.size + int(name) + int(extra)


def map_file(file: BinaryIO) -> NDArray[np.uint8]:
    """Return the bytes of a file, not written to and not copied; those of an archive of ours are aligned."""
    try:
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # no file that can be mapped, or an empty one
        raise ArtifactError(f"it cannot be mapped into memory: {error}") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # where the page cache has huge pages: it then reads as much at once, too
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8)


def read_pieces(file: BinaryIO, member: Member, memory: NDArray[np.uint8]) -> Iterator[memoryview]:
    """Read a member's bytes into memory of their size; yields each piece when it is there."""
    file.seek(member.start)
    for begin in range(0, member.nbytes, _PIECE):
        piece = memory[begin : begin + _PIECE].data
        if file.readinto(piece) != piece.nbytes:  # type: ignore[attr-defined]
            raise ArtifactError("the file is truncated")
        yield piece


def read_bytes(file: BinaryIO, member: Member) -> bytes:
    """Return a member's bytes."""
    file.seek(member.start)
    data = file.read(member.nbytes)
    if len(data) != member.nbytes:
        raise ArtifactError("the file is truncated")
    return data


def padding(start: int, name: str) -> bytes:
    """Return the extra field of a member whose header begins at ``start``, so that its data begins aligned.

    >>> (100 + 30 + 5 + len(padding(100, "a.bin"))) % 64
    0
    """
    header = start + _LOCAL_HEADER.size + len(name.encode()) + _EXTRA.size
    fill = -header % ALIGNMENT
    return _EXTRA.pack(_PADDING, fill) + bytes(fill)


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that becomes ``path`` when the block ends well; raises ArtifactError where it cannot be written."""
    try:
        with replacing(path) as temporary, open(temporary, "xb") as file:
            yield file
    except OSError as error:
        raise ArtifactError(f"cannot write artifact {path}: {error.strerror or error}") from error


__all__ = [
    "MAGIC",
    "SUFFIX",
    "Member",
    "is_archive",
    "map_file",
    "padding",
    "read_bytes",
    "read_members",
    "read_pieces",
    "writing",
]
