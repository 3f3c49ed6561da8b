"""A candidate in memory of its own: what it must not write to is looked at after it was timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from autotune.graph.ir import Array
from autotune.runtime.image import ModuleImage
from autotune.tuning.measure.check import relative_error


class Running(Protocol):
    """An image in fenced memory, of this process or of a device."""

    def run(self) -> None:
        """Run once, without timing it."""

    def sample(self, runs: int) -> NDArray[np.float64]:
        """Return nanoseconds of each of some runs."""

    def outputs(self) -> Sequence[Array]:
        """Return the outputs of the last run."""

    def forget(self) -> None:
        """Put a pattern in the place of all that it wrote."""

    def harm(self) -> str:
        """Return what was written that must not be, or nothing."""

    def close(self) -> None:
        """Free its memory and code."""


class Confined:
    """An image with fenced inputs, outputs, constants and scratch memory; close it after use.

    ``gaps`` are masks of the elements between those of an output, ``shaped`` gives what it wrote in the workload's
    own shapes.
    """

    def __init__(
        self,
        image: ModuleImage,
        inputs: Sequence[Array],
        gaps: Sequence[Array | None] = (),
        shaped: Callable[[Sequence[Array]], Sequence[Array]] = list,
    ) -> None:
        self._shaped = shaped
        self._running = _on_device(image, inputs) if image.target.group_items else _in_process(image, inputs)
        self.run = self._running.run
        self.sample = self._running.sample
        found = zip(self._running.outputs(), gaps, strict=True) if gaps else ()
        self._gaps = [None if gap is None else (gap, output[gap]) for output, gap in found]

    def run_again(self) -> None:
        """Run once more, without timing it, after all that runs have left in memory is gone."""
        self._running.forget()
        self.run()

    def error(self, reference: Sequence[Array]) -> float:
        """Return the relative error of what the last run wrote."""
        return relative_error(self._shaped(self._running.outputs()), reference)

    def harm(self) -> str:
        """Return what it wrote that it must not write to, or nothing."""
        outputs: Sequence[Any] = self._running.outputs() if any(self._gaps) else ()
        for output, kept in zip(outputs, self._gaps, strict=False):
            if kept is not None and not _same_bytes(output[kept[0]], kept[1]):
                return "wrote between the elements of its outputs"
        return self._running.harm()

    def close(self) -> None:
        """Free its memory and code."""
        self._running.close()


def _same_bytes(one: Array, other: Array) -> bool:
    return np.array_equal(one.view(np.uint8), other.view(np.uint8))


def _in_process(image: ModuleImage, inputs: Sequence[Array]) -> Running:
    from autotune.tuning.measure.fenced_module import FencedModule

    return FencedModule(image, inputs)


def _on_device(image: ModuleImage, inputs: Sequence[Array]) -> Running:
    from autotune.tuning.measure.device_run import device_of
    from autotune.tuning.measure.fenced_device import FencedRun

    return FencedRun(image, device_of(image.target), inputs)


__all__ = ["Confined", "Running"]
