"""Messages of a job to its seats, signed with the job's key: a seat runs only what the searching process has built."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.errors import MeasureError


@dataclass(frozen=True)
class Signed:
    """A message as canonical JSON and its HMAC-SHA-256 (hex)."""

    text: str
    mac: str


@dataclass(frozen=True)
class Signer:
    """The key of a job, which the searching process draws and gives to its seats as it makes them."""

    key: bytes

    def sign(self, message: Mapping[str, Any]) -> Signed:
        """Return a message with its signature."""
        text = json.dumps(message, sort_keys=True)
        return Signed(text, self._mac(text))

    def opened(self, signed: Signed) -> dict[str, Any]:
        """Return the message; raises MeasureError where it was not signed with this key."""
        if not hmac.compare_digest(self._mac(signed.text), signed.mac):
            raise MeasureError(
                "a message is not signed by the job that this seat works for: nothing of it was run"
            )
        return dict(json.loads(signed.text))

    def _mac(self, text: str) -> str:
        return hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()


def digest(data: bytes) -> str:
    """Return the SHA-256 (hex) by which a message names a file."""
    return hashlib.sha256(data).hexdigest()


__all__ = ["Signed", "Signer", "digest"]
