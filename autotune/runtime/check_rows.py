"""The index checks of a module as the rows that :mod:`autotune.runtime.indices` reads, and what they found."""

from __future__ import annotations

import numpy as np

from autotune.errors import InputError
from autotune.runtime import layout
from autotune.runtime.device import address_of
from autotune.runtime.image import IndexCheck, ModuleImage


class CheckRows:
    """One row a check of an image; ``memory`` has them one after another."""

    def __init__(self, image: ModuleImage) -> None:
        self._image = image
        self.memory = np.zeros((len(image.checks), layout.CHECK_SLOTS), np.int64)
        for row, check in zip(self.memory, image.checks, strict=True):
            row[layout.CHECK_COUNT] = check.count
            row[layout.CHECK_CHUNKS] = _chunks(check)
            row[layout.CHECK_STRIDE] = check.stride
            row[layout.CHECK_WIDTH] = check.width
            row[layout.CHECK_EXTENT] = check.extent

    def address(self, number: int) -> int:
        """Address of a row."""
        return address_of(self.memory) + 8 * layout.CHECK_SLOTS * number

    def tiles(self, number: int) -> int:
        """Pieces of a check that workers may share."""
        check = self._image.checks[number]
        return check.runs * _chunks(check)

    def error(self, number: int, index: int) -> InputError:
        """What to raise for an index that a check has found."""
        check = self._image.checks[number]
        dispatch = self._image.dispatches[check.dispatch]
        nodes = f", node {', '.join(dispatch.nodes)}" if dispatch.nodes else ""
        return InputError(
            f"index {index} is out of range: dispatch {dispatch.name!r} of {self._image.name!r}{nodes}\n"
            f"  axis {check.axis} has {check.extent} elements: indices are from {-check.extent} to "
            f"{check.extent - 1}"
        )


def _chunks(check: IndexCheck) -> int:
    return -(-check.count // layout.CHECK_TILE)


__all__ = ["CheckRows"]
