"""Writing files whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write a file that becomes ``path`` when the block ends well, and vanishes when it does not.

    An older file stays until then. Raises OSError where it cannot be written.
    """
    temporary = path.with_name(f".{path.name[:40]}.{secrets.token_hex(6)}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):  # where nothing can be made, there is nothing to remove
            temporary.unlink()
        raise


__all__ = ["replacing"]
