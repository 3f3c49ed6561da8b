"""Constants that the programs of one graph have in common, each once in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.runtime.artifacts.hashes import DATA, hash_of
from autotune.runtime.cpu.device import Memory


class SharedConstants(Memory):
    """The memory of modules that are compiled one after the other: equal constants are one array, and so once in a
    processor's cache."""

    def __init__(self) -> None:
        self._found: dict[tuple[tuple[int, ...], str, str], NDArray[Any]] = {}

    def constants(self, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Return dense, aligned arrays of these values, those of earlier modules where they are equal."""
        keys = [_key(array) for array in arrays]
        new = {key: array for key, array in zip(keys, arrays, strict=True) if key not in self._found}
        self._found.update(zip(new, super().constants([*new.values()]), strict=True))
        return [self._found[key] for key in keys]


def _key(array: NDArray[Any]) -> tuple[tuple[int, ...], str, str]:
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    return array.shape, str(array.dtype), hash_of(DATA, data)


__all__ = ["SharedConstants"]
