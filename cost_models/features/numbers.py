"""Arithmetic that all features share."""

from __future__ import annotations

import numpy as np

from search_spaces.nest import Numbers


def log(values: Numbers | float) -> Numbers:
    """The logarithm to base 2 of what is not negative; finite for 0."""
    return np.asarray(np.log2(np.maximum(values, 1e-9)))


__all__ = ["log"]
