"""The CPU as a device: what it has, and memory laid out for it."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, c_char
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.target import Target

ALIGNMENT = 64
"""Bytes: the alignment of arenas, constants, scratch memory and fresh outputs (a cache line)."""


_from_buffer: Callable[[Any], c_char] = c_char.from_buffer


@dataclass(frozen=True)
class Device:
    """A set of cores that share memory; sizes in bytes."""

    name: str
    cores: int
    target: Target

    @staticmethod
    @cache
    def host() -> Device:
        """This machine's CPU, with the cores that this process may use."""
        target = Target.detect()
        return Device(target.device, target.cores, target)

    def missing_features(self, target: Target) -> list[str]:
        """What code for ``target`` needs and this device has not; empty when it can run here."""
        if target.arch != self.target.arch:
            return [target.arch]
        return sorted(set(target.features) - set(self.target.features))


def allocate(nbytes: int) -> NDArray[np.uint8]:
    """Aligned uninitialised memory; keep the array alive as long as its address is used."""
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -address_of(memory) % ALIGNMENT
    return memory[start : start + nbytes]


def allocate_array(shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int) -> tuple[NDArray[Any], int]:
    """An aligned uninitialised array of ``nbytes`` bytes, and its address."""
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    address = address_of(memory)
    start = -address % ALIGNMENT
    return np.ndarray(shape, dtype, memory, start), address + start


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """``array`` itself when it is dense and aligned, else an aligned copy."""
    if array.flags.c_contiguous and address_of(array) % ALIGNMENT == 0:
        return array
    copy, _ = allocate_array(array.shape, array.dtype, array.nbytes)
    copy[...] = array
    return copy


def address_of(array: NDArray[Any]) -> int:
    """Address of the first element of a dense array."""
    try:
        return addressof(_from_buffer(array))  # 0.5 µs, the general way 2 µs
    except (TypeError, ValueError):  # read-only or empty
        return int(array.__array_interface__["data"][0])


__all__ = ["ALIGNMENT", "Device", "address_of", "aligned", "allocate", "allocate_array"]
