"""An image on the device that it was compiled for, its inputs and outputs in the device's memory: run and timed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.errors import MeasureError
from autotune.graph.ir import Array
from autotune.runtime.device_code import device_for
from autotune.runtime.hal.device import Device
from autotune.runtime.hal.driver import open_device
from autotune.runtime.hal.queue import Submission
from autotune.runtime.hal.recording import load_image
from autotune.runtime.hal.timed import Span, timed
from autotune.runtime.image import ModuleImage
from autotune.runtime.unrolled import unrolled
from autotune.target import Target


def device_of(target: Target) -> Device:
    """Return the open device that code for ``target`` is measured on; raises MeasureError where it is not here."""
    found = device_for(target)
    if found is None or found.target != target:
        raise MeasureError(
            f"there is no device here of the target {target.name} ({target.driver or target.arch})"
        )
    return open_device(found.name)


class DeviceRun:
    """An image with its memory on a device. Readings leave out what the host takes to submit and to copy.

    Raises as loading an image and running commands do.
    """

    def __init__(self, image: ModuleImage, device: Device, inputs: Sequence[Array]) -> None:
        self._image = image = unrolled(image)
        self._device = device
        self._commands = load_image(device, image).record(image.name)
        self._watched = timed(self._commands)
        self._outputs = [device.allocate(spec.nbytes, "outputs") for spec in image.outputs]
        self._table = [*(device.upload(array, "inputs") for array in inputs), *self._outputs]

    def run(self) -> None:
        """Run once, without timing it."""
        self._submit()

    def outputs(self) -> list[Array]:
        """Return copies of what the last run wrote."""
        specs = self._image.outputs
        return [
            self._device.download(buffer, spec.dtype, spec.shape)
            for buffer, spec in zip(self._outputs, specs, strict=True)
        ]

    def time(self, runs: int) -> NDArray[np.float64]:
        """Return nanoseconds of each of some runs, from their beginning on the queue until the device is done.

        One before the first is not counted.
        """
        self._submit()
        made = [self._submit() for _ in range(runs)]
        return np.asarray([each.end_ns - each.begin_ns for each in made], np.float64)

    def sample(self, runs: int) -> NDArray[np.float64]:
        """Return nanoseconds of each of some runs from the first kernel's beginning to the last one's end.

        By the device's own clock, where it times kernels.
        """
        if self._watched is None:
            return np.asarray(
                [s.end_ns - s.begin_ns for s in (self._submit() for _ in range(runs))], np.float64
            )
        return np.asarray([self._kernels().sum() for _ in range(runs)], np.float64)

    def profiles(self, runs: int) -> NDArray[np.float64]:
        """Return nanoseconds [runs, dispatches], by the device's own clock: each from the end of the dispatch before.

        A run before the first is not counted. Raises MeasureError where the device does not time kernels.
        """
        if self._watched is None:
            raise MeasureError(f"{self._device.name} does not time kernels: no profile by dispatch")
        found = np.zeros((runs, len(self._image.dispatches)), np.float64)
        dispatch_of = [command.dispatch for command in self._image.commands]
        self._kernels()
        for taken in found:
            np.add.at(taken, dispatch_of, self._kernels())
        return found

    def _kernels(self) -> NDArray[np.float64]:
        """Run once: nanoseconds of each kernel, as :func:`lasting` counts them."""
        assert self._watched is not None
        commands, spans = self._watched
        self._device.compute.submit(commands, self._table).wait()
        return lasting(spans.spans)

    def _submit(self) -> Submission:
        made = self._device.compute.submit(self._commands, self._table)
        made.wait()
        return made


def lasting(spans: Sequence[Span]) -> NDArray[np.float64]:
    """Return nanoseconds of each kernel of a queue: from the end of the one before, or the beginning of
    the first, to its end.

    What lies between kernels is the next one's: a schedule of many kernels is not as fast as their sum.

    >>> lasting([(10, 20), (25, 40)]).tolist()
    [10.0, 20.0]
    """
    if not spans:
        return np.zeros(0)
    ends = np.maximum.accumulate([end for _, end in spans])
    return np.diff([spans[0][0], *ends]).astype(np.float64)


__all__ = ["DeviceRun", "device_of", "lasting"]
