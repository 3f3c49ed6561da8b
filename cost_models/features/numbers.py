"""Arithmetic that all features share."""

from __future__ import annotations

import numpy as np

from cost_models.machine import Machine
from search_spaces.nest import LoopNest, Numbers


def log(values: Numbers | float) -> Numbers:
    """Return the logarithm to base 2 of what is not negative; finite for 0."""
    return np.asarray(np.log2(np.maximum(values, 1e-9)))


def arithmetic_floor(nest: LoopNest, machine: Machine) -> float:
    """Return seconds of the nest's operations on one core at its peak rate."""
    return max(nest.flops, 1.0) / (2 * nest.lanes * machine.arithmetic_ports * machine.hertz)


__all__ = ["arithmetic_floor", "log"]
