"""Buffers: pieces of a device's memory, or of the caller's, that commands read and write."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from autotune.errors import DeviceError, UsageError

HOST_SPACE = "host"
"""The memory space of this process: CPU devices share it, and arrays of a caller's are in it."""

_numbers = itertools.count(1)


class Allocation:
    """A block of memory; it goes back to where it came from when it is freed and no submission uses it any more.

    ``storage`` is the driver's own object, ``view`` its bytes for this process or None; ``label`` says for whom it is.
    """

    def __init__(
        self,
        space: str,
        storage: Any,
        nbytes: int,
        view: NDArray[np.uint8] | None,
        label: str,
        give_back: Callable[[Allocation], None] | None,
    ) -> None:
        self.space = space
        self.storage = storage
        self.nbytes = nbytes
        self.view = view
        self.label = label
        self.number = next(_numbers)
        self.wrappers: dict[Any, Any] = {}
        """Objects of drivers over this memory, by their contexts."""
        self._give_back = give_back
        self._users: list[None] = []  # its length counts: appending needs no lock
        self._freed = False

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Lets an array of its bytes keep the block from being given to another."""
        assert self.view is not None
        return dict(self.view.__array_interface__)

    @property
    def freed(self) -> bool:
        """Return whether it must not be used any more."""
        return self._freed

    def free(self) -> None:
        """Use it no more, but for submissions that do already."""
        self._freed = True
        self._settle()

    def retain(self) -> None:
        """Count a submission that uses it."""
        self._users.append(None)

    def release(self) -> None:
        """Count a submission that is over."""
        self._users.pop()
        if self._freed:
            self._settle()

    def _settle(self) -> None:
        if not self._users:
            give_back, self._give_back = self._give_back, None
            if give_back is not None:
                give_back(self)

    def __del__(self) -> None:
        self.free()


class Buffer:
    """``nbytes`` bytes from ``offset`` on in an allocation; slices share its memory.

    In a loop program the same is an :class:`autotune.lower.ir.Buffer`, which has a shape and no place yet.
    """

    __slots__ = ("allocation", "nbytes", "offset")

    def __init__(self, allocation: Allocation, offset: int, nbytes: int) -> None:
        self.allocation = allocation
        self.offset = offset
        self.nbytes = nbytes

    @property
    def space(self) -> str:
        """The memory space it is in: devices of this space can use it as it is."""
        return self.allocation.space

    def slice(self, offset: int, nbytes: int) -> Buffer:
        """Return a part of it; raises UsageError for one that is not inside."""
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise UsageError(
                f"bytes {offset} to {offset + nbytes} are not inside of a buffer of {self.nbytes}"
            )
        return Buffer(self.allocation, self.offset + offset, nbytes)

    def host(self) -> NDArray[np.uint8]:
        """Return its bytes, without a copy; the caller sees to it that no submission writes them meanwhile.

        The array keeps the memory, unless that is freed explicitly.

        Raises DeviceError where this process cannot reach the memory, or it was freed.
        """
        if self.allocation.freed:
            raise DeviceError(f"{self} was freed")
        if self.allocation.view is None:
            raise DeviceError(f"{self} is not in memory of this process: copy it to a host buffer")
        return np.asarray(self.allocation)[self.offset : self.offset + self.nbytes]

    def array(self, dtype: DTypeLike, shape: Sequence[int]) -> NDArray[Any]:
        """Return the same as an array of that type and shape."""
        return self.host().view(dtype).reshape(shape)

    def free(self) -> None:
        """Give the whole allocation back, slices too, once no submission uses it."""
        self.allocation.free()

    def __repr__(self) -> str:
        label = f" for {self.allocation.label}" if self.allocation.label else ""
        return f"buffer {self.allocation.number} of {self.nbytes} bytes in {self.space}{label}"


def host_buffer(array: NDArray[Any], label: str = "") -> Buffer:
    """Return the memory of a dense array as a buffer; what is written to it the array sees.

    Raises UsageError for an array that is not C-contiguous.
    """
    if not array.flags.c_contiguous:
        raise UsageError("a host buffer needs a C-contiguous array: np.ascontiguousarray makes one")
    view = array.reshape(-1).view(np.uint8)
    return Buffer(Allocation(HOST_SPACE, array, array.nbytes, view, label, None), 0, array.nbytes)


__all__ = ["HOST_SPACE", "Allocation", "Buffer", "host_buffer"]
