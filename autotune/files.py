"""Files that are there whole or not at all, and folders that do not stay."""

from __future__ import annotations

import glob
import mmap
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path to write a file to that becomes ``path`` when the block ends well, and vanishes when it does not.

    An older file stays until then. What processes left that were killed here more than an hour ago vanishes. Raises
    OSError where it cannot be written.
    """
    _remove_abandoned(path)
    temporary = path.with_name(f".{path.name[:40]}.{secrets.token_hex(6)}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):  # where nothing can be made, there is nothing to remove
            temporary.unlink()
        raise


_ABANDONED_S = 3600.0
"""Nothing takes so long to write."""


def _remove_abandoned(path: Path) -> None:
    for other in path.parent.glob(f".{glob.escape(path.name[:40])}.*.tmp"):
        with suppress(OSError):
            if time.time() - other.stat().st_mtime > _ABANDONED_S:
                other.unlink()


_YOUNG_S = 10.0
"""A folder of this age may be about to be locked."""


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """Yield a new folder for temporary files, removed at the end of the block.

    Those of this prefix that were left by processes which were killed are removed too: nobody has a lock on them.
    """
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError), locked(path):
            if time.time() - path.stat().st_mtime > _YOUNG_S:
                shutil.rmtree(path, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix) as folder, locked(Path(folder)):
        yield Path(folder)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Have the lock of a folder; raises OSError where another process has it."""
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


class FilePages(mmap.mmap):
    """Pages of a file that are read when they are used, and never written."""


def file_pages(path: Path, offset: int, nbytes: int) -> NDArray[np.uint8]:
    """Return bytes of a file, which are not there before they are used; raises OSError."""
    first = offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    with path.open("rb") as file:
        pages = FilePages(file.fileno(), offset - first + nbytes, access=mmap.ACCESS_READ, offset=first)
    return np.frombuffer(pages, np.uint8)[offset - first :]


def pages_of(array: NDArray[Any]) -> mmap.mmap | None:
    """Return the pages that an array's memory is, of a file or of none; None for any other memory."""
    base: Any = array
    while isinstance(base, (np.ndarray, memoryview)):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return base if isinstance(base, mmap.mmap) else None


def is_in_file(array: NDArray[Any]) -> bool:
    """Return whether an array is a part of :func:`file_pages`."""
    return isinstance(pages_of(array), FilePages)


def give_up_pages(array: NDArray[Any]) -> None:
    """Give memory back that holds a part of :func:`file_pages`: it is read again where it is used again. Nothing for
    any other array."""
    pages = pages_of(array)
    if not isinstance(pages, FilePages) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    start = np.frombuffer(pages, np.uint8).ctypes.data
    low, high = (end - start for end in np.lib.array_utils.byte_bounds(array))
    first, last = -(-low // mmap.PAGESIZE) * mmap.PAGESIZE, high // mmap.PAGESIZE * mmap.PAGESIZE
    if first < last:
        pages.madvise(mmap.MADV_DONTNEED, first, last - first)


__all__ = ["file_pages", "give_up_pages", "is_in_file", "pages_of", "replacing", "scratch_folder"]
