"""A device whose memory is watched, as :mod:`autotune.tuning.measure.fences` does for this process's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.graph.ir import Array
from autotune.runtime.hal.buffer import Buffer, host_buffer
from autotune.runtime.hal.device import Device
from autotune.runtime.image import ModuleImage
from autotune.tuning.measure.device_run import DeviceRun
from autotune.tuning.measure.fences import ZONE, Piece, fill

_NAMED = ("inputs", "outputs")


class FencedDevice(Device):
    """An open device with queues of its own; every buffer lies between two zones, and what is uploaded is only read."""

    def __init__(self, device: Device) -> None:
        super().__init__(device.info, device.engine)
        self._pieces: list[tuple[str, Buffer, NDArray[np.uint8] | None]] = []

    def allocate(self, nbytes: int, label: str = "") -> Buffer:
        """Return memory that may be written, filled with the pattern of its zones; raises DeviceMemoryError."""
        return self._fenced(nbytes, label if label in _NAMED else "workspace", None)

    def upload(self, array: NDArray[Any], label: str = "") -> Buffer:
        """Return a copy of an array that must not be written; raises DeviceMemoryError."""
        dense = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return self._fenced(dense.nbytes, label if label in _NAMED else "constants", dense)

    def harm(self) -> str:
        """Return the first thing found that somebody wrote where he must not, or nothing."""
        pieces = (
            Piece(use, self.download(buffer, np.uint8, (buffer.nbytes,)), original)
            for use, buffer, original in self._pieces
        )
        return next(filter(None, (piece.harm() for piece in pieces)), "")

    def forget(self) -> None:
        """Put the pattern in the place of all that was written."""
        for _, buffer, original in self._pieces:
            if original is None:
                whole = np.empty(buffer.nbytes, np.uint8)
                fill(whole)
                self._copy(host_buffer(whole), buffer)

    def release(self) -> None:
        """Free all memory and the queues; the device itself stays open."""
        for queue in (self.compute, self.transfers):
            self.close_queue(queue)
        for _, buffer, _ in self._pieces:
            buffer.free()
        self._pieces.clear()
        self.allocator.trim()

    def _fenced(self, nbytes: int, use: str, original: NDArray[np.uint8] | None) -> Buffer:
        whole = np.empty(nbytes + 2 * ZONE, np.uint8)
        fill(whole, original)
        buffer = super().allocate(whole.nbytes, use)
        self._copy(host_buffer(whole), buffer)
        self._pieces.append((use, buffer, original))
        return buffer.slice(ZONE, nbytes)


class FencedRun(DeviceRun):
    """An image in fenced memory of a device (see :class:`autotune.tuning.measure.confined.Running`)."""

    def __init__(self, image: ModuleImage, device: Device, inputs: Sequence[Array]) -> None:
        self._fenced = FencedDevice(device)
        super().__init__(image, self._fenced, inputs)

    def forget(self) -> None:
        """Put a pattern in the place of all that it wrote."""
        self._fenced.forget()

    def harm(self) -> str:
        """Return what was written beside its memory, or where it must only read; or nothing."""
        return self._fenced.harm()

    def close(self) -> None:
        """Free its memory and queues."""
        self._fenced.release()


__all__ = ["FencedDevice", "FencedRun"]
