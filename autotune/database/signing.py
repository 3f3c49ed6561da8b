"""Signatures of packs: ed25519 by the package ``cryptography``, with key files of the user's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune.distribution import install
from autotune.errors import MissingExtraError, PackError, UsageError

MAKE_KEYS = (
    "`openssl genpkey -algorithm ed25519 -out key.pem` makes a key, "
    "`openssl pkey -in key.pem -pubout -out key.pub` the public one that goes with it"
)


def sign(data: bytes, key: Path) -> bytes:
    """Return the signature of data by a private key in a PEM file; raises UsageError for a file that has none."""
    ed25519, serialization = _library()
    try:
        found = serialization.load_pem_private_key(_content(key), password=None)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{key} is no private key without a password ({error}); {MAKE_KEYS}") from error
    if not isinstance(found, ed25519.Ed25519PrivateKey):
        raise UsageError(f"{key} is no ed25519 key; {MAKE_KEYS}")
    signature: bytes = found.sign(data)
    return signature


def check(data: bytes, signature: bytes | None, key: Path) -> None:
    """Raise PackError unless data was signed by the owner of a public key in a PEM file."""
    from importlib import import_module

    ed25519, serialization = _library()
    try:
        found = serialization.load_pem_public_key(_content(key))
    except ValueError as error:
        raise UsageError(f"{key} is no public key ({error}); {MAKE_KEYS}") from error
    if not isinstance(found, ed25519.Ed25519PublicKey):
        raise UsageError(f"{key} is no ed25519 key; {MAKE_KEYS}")
    if signature is None:
        raise PackError(f"it is not signed, and was to be signed by the owner of {key}")
    invalid = import_module("cryptography.exceptions").InvalidSignature
    try:
        found.verify(signature, data)
    except invalid as error:
        raise PackError(f"it was not signed by the owner of {key}, or was altered since") from error


def _library() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"signatures take the package cryptography, which is not installed: {install('sign')}"
        ) from error
    return ed25519, serialization


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the key {path}: {error.strerror or error}") from error


__all__ = ["check", "sign"]
