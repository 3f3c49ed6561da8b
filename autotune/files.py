"""Files that are there whole or not at all, and folders that do not stay."""

from __future__ import annotations

import glob
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


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


__all__ = ["replacing", "scratch_folder"]
