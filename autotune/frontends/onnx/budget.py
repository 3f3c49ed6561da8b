"""Limits of evaluation and expansion in an import: a file of a few bytes can ask for any amount.

All of it is counted before memory is asked for or work is done, by whoever is about to do it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from autotune.errors import ModelImportError

MAX_EVALUATED_BYTES = 1 << 28
"""Bytes of an array that is worked out at import."""
MAX_PARTS = 1 << 16
"""Values that one value is divided into."""
MAX_PLACES = 1 << 20
"""Elements along an axis that are looked at one by one."""
MAX_EXPANDED = 1 << 16
"""Nodes that functions, loops and definitions may expand to, beside those of the file's own graph."""


class ErrorSubject(Protocol):
    """The subject of an error."""

    def fail(self, reason: str) -> ModelImportError: ...


def check_evaluated(
    node: ErrorSubject, shape: Sequence[float], itemsize: int, what: str = "its result"
) -> None:
    """Raise ModelImportError for an array that is too large to be worked out at import.

    One without elements counts by its other extents: NumPy multiplies these all the same.
    """
    elements = math.prod(max(extent, 1) for extent in shape)
    if elements * itemsize > MAX_EVALUATED_BYTES:
        size = f"{elements:.3g}" if isinstance(elements, float) else elements
        raise node.fail(
            f"{what} has {size} elements of {itemsize} bytes; what is evaluated at import may take "
            f"{MAX_EVALUATED_BYTES >> 20} MiB"
        )


def check_count(node: ErrorSubject, count: float, most: int, what: str) -> None:
    """Raise ModelImportError for more things than an import goes through one by one."""
    if count > most:
        raise node.fail(f"{count} {what}; at most {most} are gone through at import")


class Expansion:
    """Nodes that an import has expanded so far."""

    def __init__(self, origin: str) -> None:
        self.origin, self.count = origin, 0

    def add(self, place: str) -> None:
        """Count one more node; raises ModelImportError where a model expands to too many."""
        self.count += 1
        if self.count > MAX_EXPANDED:
            raise ModelImportError(
                f"{self.origin}: node {place!r}: functions, loops and definitions expand to more than {MAX_EXPANDED} "
                "nodes\n  export the model without nested loops or functions of functions"
            )


__all__ = [
    "MAX_EVALUATED_BYTES",
    "MAX_EXPANDED",
    "MAX_PARTS",
    "MAX_PLACES",
    "Expansion",
    "check_count",
    "check_evaluated",
]
