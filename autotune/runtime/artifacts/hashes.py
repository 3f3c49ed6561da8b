"""Hashes that find damage of machine code and of constants, as they stand in manifests.

Code is covered by SHA-256. Constants, of which there may be gigabytes, are covered by XXH3 with 128 bits (Y. Collet,
xxHash), which takes no longer than reading memory: it finds damage as surely, and is no match for a forger. Neither is
a signature.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import xxhash

CODE: Final = "sha256"
DATA: Final = "xxh3_128"


class Hash(Protocol):
    """A hash that takes its text piece by piece."""

    def update(self, data: Any, /) -> None:
        """Take more."""

    def hexdigest(self) -> str:
        """Return the hash of all that was taken."""


KINDS: Mapping[str, Callable[[], Hash]] = {CODE: hashlib.sha256, DATA: xxhash.xxh3_128}


def hash_of(kind: str, data: Any) -> str:
    """Return the hash of bytes with its kind.

    >>> hash_of(DATA, b"weights")
    'xxh3_128:bdbda1eb6e05adc4800d98e5524fefbc'
    """
    made = KINDS[kind]()
    made.update(data)
    return named(kind, made)


def named(kind: str, made: Hash) -> str:
    """Return a hash as manifests have it."""
    return f"{kind}:{made.hexdigest()}"


__all__ = ["CODE", "DATA", "KINDS", "Hash", "hash_of", "named"]
