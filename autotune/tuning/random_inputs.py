"""Random inputs of a compiled model, of which only shapes and dtypes are known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.runtime.image import TensorSpec
from autotune.te.dtypes import is_float


def random_inputs(specs: Iterable[TensorSpec], seed: int) -> dict[str, NDArray[Any]]:
    """Standard normal floats, and zeros for integers, which may be indexes."""
    rng = np.random.default_rng(seed)
    return {
        spec.name: rng.standard_normal(spec.shape).astype(spec.dtype)
        if is_float(spec.dtype)
        else np.zeros(spec.shape, spec.dtype)
        for spec in specs
    }


__all__ = ["random_inputs"]
