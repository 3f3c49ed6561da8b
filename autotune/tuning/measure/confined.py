"""A candidate in memory of its own: what it must not write to is looked at after it was timed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.region import region_gaps, region_inputs, region_outputs
from autotune.graph.ir import Array
from autotune.graph.region import Workload
from autotune.runtime.image import ModuleImage
from autotune.runtime.module import Module
from autotune.tuning.measure.check import relative_error
from autotune.tuning.measure.fences import Fences


class Confined:
    """A module of a workload with fenced inputs, outputs, constants and scratch memory; close it after use."""

    def __init__(self, workload: Workload, image: ModuleImage, arrays: Sequence[Array]) -> None:
        self._workload = workload
        self._fences = Fences()
        self._module = Module(image, image.target.threads, memory=self._fences)
        self._inputs = [self._fences.copy(array, "inputs") for array in region_inputs(workload, arrays)]
        self._outputs = [self._fences.array(s.shape, s.dtype, "outputs") for s in image.outputs]
        self._gaps = [
            (output, gap, output[gap])
            for output, gap in zip(self._outputs, region_gaps(workload), strict=True)
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
        return relative_error(region_outputs(self._workload, self._outputs), reference)

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
