"""Is a candidate's output right? Tolerance by dtype and reduction length, relative to the scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.te.dtypes import float_limits
from autotune.te.narrow import NARROW_FLOATS

_LIMIT = {"float64": 1e-10, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
_LIMIT |= {name: 2.0**-form.mantissa for name, form in NARROW_FLOATS.items()}
"""No candidate may be further off than this, however long its sums are."""


def tolerance(dtype: str, terms: int) -> float:
    """Return the allowed relative error of a sum of ``terms`` products; 0 for integers and bools.

    Rounding errors of a sum grow like eps·√terms for random signs (Higham, Accuracy and Stability of
    Numerical Algorithms, 4.2); 32 leaves room for another order of summation and for fast functions.
    """
    limit = _LIMIT.get(dtype)
    if limit is None:
        return 0.0
    epsilon = float(float_limits(dtype).eps)
    return min(limit, 32 * epsilon * math.sqrt(max(1, terms)))


def same_sign_tolerance(dtype: str, terms: int) -> float:
    """Return the same where nothing cancels: allowed is what adding up in float32 (float64 for float64) makes in
    blocks or pairwise. One term after the other, a sum of millions of terms of float32 no longer grows."""
    epsilon = float(float_limits("float64" if dtype == "float64" else "float32").eps)
    return max(tolerance(dtype, terms), 32 * epsilon * math.sqrt(max(1, terms)))


def can_lose_precision(dtype: str, terms: int) -> bool:
    """Return whether a sum of so many terms of one sign can be further off than allowed, if it is added up in ``dtype``
    term by term: its error is at most eps·terms (Higham, 4.2)."""
    if dtype not in _LIMIT:
        return False
    return terms * float(float_limits(dtype).eps) > same_sign_tolerance(dtype, terms)


def relative_error(outputs: Sequence[NDArray[Any]], references: Sequence[NDArray[Any]]) -> float:
    """Return the largest difference over the reference's largest magnitude, over all outputs.

    Infinite where shape, dtype, or the places of NaN and infinity differ.
    """
    worst = 0.0
    for output, reference in zip(outputs, references, strict=True):
        if output.shape != reference.shape or output.dtype != reference.dtype:
            return float("inf")
        worst = max(worst, _one(output, reference))
    return worst


def _one(output: NDArray[Any], reference: NDArray[Any]) -> float:
    if reference.size == 0:
        return 0.0
    if reference.dtype.kind in "iub":
        return 0.0 if np.array_equal(output, reference) else float("inf")
    finite = np.isfinite(reference)
    if not finite.all():
        odd = ~finite
        if not np.array_equal(output[odd], reference[odd], equal_nan=True):
            return float("inf")
        output, reference = output[finite], reference[finite]
        if reference.size == 0:
            return 0.0
    with np.errstate(invalid="ignore"):  # an output may hold any bits, signalling NaNs among them
        difference = float(np.max(np.abs(output.astype(np.float64) - reference.astype(np.float64))))
    scale = float(np.max(np.abs(reference)))
    if difference == 0.0:
        return 0.0
    if not np.isfinite(difference) or scale == 0.0:
        return float("inf")
    return difference / scale


__all__ = ["can_lose_precision", "relative_error", "same_sign_tolerance", "tolerance"]
