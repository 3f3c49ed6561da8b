"""Random inputs of a compiled model, of which only shapes and dtypes are known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.runtime.image import TensorSpec

SEEDS = 1 << 32


def checked_seed(seed: int) -> int:
    """Return a seed that all that draw take: NumPy, and Optuna's samplers. Raises UsageError for another."""
    if not 0 <= seed < SEEDS:
        raise UsageError(f"a seed is from 0 to {SEEDS - 1}, not {seed}")
    return seed


def random_inputs(specs: Iterable[TensorSpec], seed: int) -> dict[str, NDArray[Any]]:
    """Return the standard normal floats, and zeros for integers, which may be indexes; raises UsageError
    for the seed."""
    rng = np.random.default_rng(checked_seed(seed))
    return {
        spec.name: rng.standard_normal(spec.shape).astype(spec.dtype)
        if "float"
        in spec.dtype  # without autotune.te: a worker that starts anew for each reading imports this
        else np.zeros(spec.shape, spec.dtype)
        for spec in specs
    }


__all__ = ["checked_seed", "random_inputs"]
