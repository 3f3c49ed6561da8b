"""An image in fenced memory of this process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.codegen.process_symbols import local_harm
from autotune.graph.ir import Array
from autotune.runtime.image import ModuleImage
from autotune.runtime.module import Module
from autotune.tuning.measure.fences import Fences


class FencedModule:
    """A module on fenced inputs and outputs (see :class:`autotune.tuning.measure.confined.Running`)."""

    def __init__(self, image: ModuleImage, inputs: Sequence[Array]) -> None:
        local_harm.value = 0
        self._fences = Fences()
        self._module = Module(image, image.target.threads, memory=self._fences)
        self._inputs = [self._fences.copy(array, "inputs") for array in inputs]
        self._outputs = [self._fences.array(s.shape, s.dtype, "outputs") for s in image.outputs]

    def run(self) -> None:
        """Run once, without timing it."""
        self._module(*self._inputs, out=self._outputs)

    def sample(self, runs: int) -> NDArray[np.float64]:
        """Return nanoseconds of each of some runs."""
        return self._module.time(self._inputs, out=self._outputs, warmup=0, repeat=runs).astype(np.float64)

    def outputs(self) -> list[Array]:
        """Return the arrays that it writes."""
        return self._outputs

    def forget(self) -> None:
        """Put a pattern in the place of all that it wrote."""
        self._fences.forget()

    def harm(self) -> str:
        """Return what was written beside its memory, or where it must only read; or nothing."""
        return self._fences.harm() or ("wrote beside a block of its local memory" if local_harm.value else "")

    def close(self) -> None:
        """Free its memory and code."""
        self._module.close()


__all__ = ["FencedModule"]
