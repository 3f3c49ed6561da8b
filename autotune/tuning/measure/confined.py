"""A candidate in memory of its own: what it must not write to is looked at after it was timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.graph.ir import Array
from autotune.runtime.image import ModuleImage
from autotune.runtime.module import Module
from autotune.tuning.measure.check import relative_error
from autotune.tuning.measure.fences import Fences


class Confined:
    """A module with fenced inputs, outputs, constants and scratch memory; close it after use.

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
        self._fences = Fences()
        self._module = Module(image, image.target.threads, memory=self._fences)
        self._inputs = [self._fences.copy(array, "inputs") for array in inputs]
        self._outputs = [self._fences.array(s.shape, s.dtype, "outputs") for s in image.outputs]
        self._gaps = [
            (output, gap, output[gap])
            for output, gap in zip(self._outputs, gaps, strict=bool(gaps))
            if gap is not None
        ]

    def run(self) -> None:
        """Once, without timing it."""
        self._module(*self._inputs, out=self._outputs)

    def sample(self, repeat: int) -> NDArray[Any]:
        """Nanoseconds of each of some runs."""
        return self._module.time(self._inputs, out=self._outputs, warmup=0, repeat=repeat).astype(np.float64)

    def error(self, reference: Sequence[Array]) -> float:
        """The relative error of what the last run wrote."""
        return relative_error(self._shaped(self._outputs), reference)

    def harm(self) -> str:
        """What it wrote that it must not write to, or nothing."""
        for output, gap, before in self._gaps:
            if not np.array_equal(output[gap].view(np.uint8), before.view(np.uint8)):
                return "wrote between the elements of its outputs"
        return self._fences.harm()

    def close(self) -> None:
        """Free its memory and code."""
        self._module.close()


__all__ = ["Confined"]
