"""The error of a compiled model from end to end: algorithms declare an error each, and what follows may enlarge it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from autotune.compiler.dividing import imported
from autotune.graph import evaluate
from autotune.passes.preference import TOLERANCE
from autotune.runtime.cpu.device import Host
from autotune.runtime.random_inputs import random_inputs
from autotune.te.dtypes import is_float
from autotune.tuning.measure.check import relative_error

if TYPE_CHECKING:
    from autotune.compiler.dividing import Model
    from autotune.compiler.explain import Compilation
    from autotune.frontends.sizes import Given
    from autotune.runtime.image import ModuleImage


@dataclass(frozen=True)
class EndToEnd:
    """A check of images of ``model`` against the model as it is, in NumPy."""

    model: Model
    shapes: Given | None = None
    seed: int = 0

    @classmethod
    def wanted(
        cls, tolerance: float, model: Model, shapes: Given | None = None, seed: int = 0
    ) -> EndToEnd | None:
        """Return the check, where more error is tolerated than by default; the rest is about as exact as float32."""
        return cls(model, shapes, seed) if tolerance > TOLERANCE else None

    def error(self, image: ModuleImage) -> float | None:
        """Return the largest difference over the largest magnitude of an output, for random inputs.

        None where this machine cannot run the image, or the model has no outputs of floating point.
        """
        from autotune.runtime.module import Module

        if Host.here().target.lacks(image.target):
            return None
        given = random_inputs(image.inputs, self.seed)
        with Module(image) as module:
            found = module.run(given)
        expected = evaluate.run(imported(self.model, self.shapes), given)
        floats = [name for name, array in found.items() if is_float(array.dtype.name)]
        return max((relative_error([found[name]], [expected[name]]) for name in floats), default=None)


def checked(done: Compilation, model: Model) -> Compilation:
    """Return a compilation with its error from end to end, where more is tolerated than by default."""
    check = EndToEnd.wanted(done.tolerance, model, done.shapes)
    return done if check is None else replace(done, error=check.error(done.image))


__all__ = ["EndToEnd", "checked"]
