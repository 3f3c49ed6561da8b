"""The index checks of a module as the rows that :mod:`autotune.runtime.cpu.indices` reads, and what they found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from autotune.errors import InputError
from autotune.runtime.cpu import layout
from autotune.runtime.cpu.device import address_of
from autotune.runtime.image import ModuleImage


class Indices(Protocol):
    """``runs`` times ``count`` indices of ``width`` bytes, ``stride`` bytes apart, from -extent to extent - 1."""

    @property
    def width(self) -> int: ...
    @property
    def runs(self) -> int: ...
    @property
    def stride(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def extent(self) -> int: ...


class CheckRows:
    """One row a check; ``memory`` has them one after another."""

    def __init__(self, checks: Sequence[Indices]) -> None:
        self._checks = checks
        self.memory = np.zeros((len(checks), layout.CHECK_SLOTS), np.int64)
        for row, check in zip(self.memory, checks, strict=True):
            row[layout.CHECK_COUNT] = check.count
            row[layout.CHECK_CHUNKS] = _chunks(check)
            row[layout.CHECK_STRIDE] = check.stride
            row[layout.CHECK_WIDTH] = check.width
            row[layout.CHECK_EXTENT] = check.extent

    def address(self, number: int) -> int:
        """Return the address of a row."""
        return address_of(self.memory) + 8 * layout.CHECK_SLOTS * number

    def tiles(self, number: int) -> int:
        """Return pieces of a check that workers may share."""
        check = self._checks[number]
        return check.runs * _chunks(check)


def subject(image: ModuleImage, number: int) -> str:
    """Return the subject of a check of an image, for errors."""
    check = image.checks[number]
    dispatch = image.dispatches[check.dispatch]
    if check.refusal:
        return check.refusal
    nodes = f", node {', '.join(dispatch.nodes)}" if dispatch.nodes else ""
    return (
        f"dispatch {dispatch.name!r} of {image.name!r}{nodes}\n"
        f"  axis {check.axis} has {check.extent} elements: indices are from {-check.extent} to {check.extent - 1}"
    )


def failed_check(found: int, width: int, subject: str) -> InputError:
    """Return the error for an index of ``width`` bytes that a check has found; one byte is a boolean, which is true."""
    return InputError(subject if width == 1 else f"index {found} is out of range: {subject}")


def _chunks(check: Indices) -> int:
    return -(-check.count // layout.CHECK_TILE)


__all__ = ["CheckRows", "Indices", "failed_check", "subject"]
