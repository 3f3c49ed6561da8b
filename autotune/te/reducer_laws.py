"""Checks of reducers of one's own: they are made of their arguments alone, and their start value is neutral.

Points that a condition leaves out, parts of a reduction that other threads do and padding all rely on that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autotune.te.expr import Expr, Read, Reducer, Var
from autotune.te.traversal import nodes
from autotune.te.values import value_of

Array = np.ndarray[Any, Any]

_SAMPLES = ((1, 2, 3), (3, 1, 2), (2, 2, 2))
"""Values of the components that start values are tried on; further components take them in turn."""

_TOLERANCE = 1e-2
"""Relative; one rounding of bfloat16 is less."""


def check_reducer(reducer: Reducer, dtypes: tuple[str, ...]) -> None:
    """Raise TypeError for a reducer that depends on loops or tensors, or whose start value changes what it meets."""
    left = tuple(Var(f"x{n}", dtype) for n, dtype in enumerate(dtypes))
    right = tuple(Var(f"y{n}", dtype) for n, dtype in enumerate(dtypes))
    combined, start = reducer.combine(left, right), reducer.identity(dtypes)
    _check_closed(reducer, "fcombine may use its two arguments alone", combined, (*left, *right))
    _check_closed(reducer, "fidentity must be constant: say init= to start from a value", start, ())
    for sample in _SAMPLES:
        given = [np.asarray(sample[n % 3], dtype) for n, dtype in enumerate(dtypes)]
        with np.errstate(all="ignore"):
            neutral = [np.asarray(value_of(e, {}, {}, {}), d) for e, d in zip(start, dtypes, strict=True)]
            for x, y in ((given, neutral), (neutral, given)):
                env: dict[Expr, Array] = dict(zip((*left, *right), (*x, *y), strict=True))
                found = [value_of(e, env, {}, {}) for e in combined]
                _check_kept(reducer, given, neutral, found)


def _check_closed(reducer: Reducer, rule: str, exprs: Sequence[Expr], own: Sequence[Var]) -> None:
    known = {id(var) for var in own}
    for node in (node for e in exprs for node in nodes(e)):
        if isinstance(node, Read | Var) and id(node) not in known:
            raise TypeError(f"te.comm_reducer: {rule}; that of {reducer.name!r} depends on {node}")


def _check_kept(
    reducer: Reducer, given: Sequence[Array], neutral: Sequence[Array], found: Sequence[Array]
) -> None:
    for value, got in zip(given, found, strict=True):
        number = float(got)
        if not np.isnan(number) and abs(number - float(value)) > _TOLERANCE * abs(float(value)):
            raise TypeError(
                f"te.comm_reducer: fidentity must be neutral; that of {reducer.name!r} is {_listed(neutral)}, and "
                f"fcombine makes {_listed(found)} of it and {_listed(given)}; say init= to start from a value"
            )


def _listed(values: Sequence[Array]) -> str:
    numbers = [f"{float(value):g}" for value in values]
    return numbers[0] if len(numbers) == 1 else f"({', '.join(numbers)})"


__all__ = ["check_reducer"]
