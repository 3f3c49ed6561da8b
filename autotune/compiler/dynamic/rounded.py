"""Extents that are linear in others but for rounding down, recognised by their values at some sizes.

Of what was seen at a few sizes there may be several: a third of a length and five sixteenths of it agree at most of
them. They are told apart at a size where they differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import gcd
from typing import Any, TypeAlias

import numpy as np

from autotune.errors import UndecidedExtentError
from autotune.graph.ir import Array
from autotune.runtime.axes import Factor, Sizes, quotient_of, size_of

DIVISORS = 64
"""The largest divisor of an expression that is found by its values."""
Seen: TypeAlias = Sequence[tuple[Sizes, int]]
"""An extent at several sizes: first those of the bucket."""
Samples: TypeAlias = Mapping[str, Array]
"""Sizes that a request may have: element by element those of one request."""


def rounded(bases: Iterable[Factor], seen: Seen, samples: Samples) -> Iterator[Factor]:
    """Yield the quotients of expressions that have the extents that were seen, those of a small divisor first.

    Of quotients that differ in what is added before the division alone, it is the least and the greatest: all others
    lie between them.
    """
    numbers = np.array([number for _, number in seen])
    places = [(base, np.array([size_of(base, at) for at, _ in seen])) for base in _different(bases, samples)]
    for by in range(1, DIVISORS + 1):
        for base, sizes in places:
            for times in _slopes(sizes, numbers, by):
                least = int((by * numbers - times * sizes).max())
                most = int((by * numbers - times * sizes).min()) + by - 1
                nearest = min(max(least, 0), most)
                yield from (
                    quotient_of(base, times, plus, by)
                    for plus in dict.fromkeys((nearest, least, most))
                    if least <= plus <= most
                )


def _different(bases: Iterable[Factor], samples: Samples) -> list[Factor]:
    """Return the expressions that differ in some sample."""
    return [*{np.asarray(values_of(base, samples)).tobytes(): base for base in reversed([*bases])}.values()][
        ::-1
    ]


def _slopes(sizes: Array, numbers: Array, by: int) -> Iterator[int]:
    """Yield the numerators of slopes by which an extent may grow from the least size to the largest."""
    first, last = int(sizes.argmin()), int(sizes.argmax())
    apart, grown = int(sizes[last] - sizes[first]), int(numbers[last] - numbers[first])
    if apart > 0 and grown > 0:
        most = (by * (grown + 1) - 1) // apart
        yield from (p for p in range(max(1, by * (grown - 1) // apart), most + 1) if gcd(p, by) == 1)


def decided(fits: Iterable[Factor], samples: Samples, what: str) -> Factor | None:
    """Return the first of expressions that are equal in all samples; None of none.

    Raises UndecidedExtentError with the sizes at which most of them differ.
    """
    found = [*fits]
    if not found:
        return None
    values = np.stack([values_of(each, samples) for each in found])
    kinds = (np.diff(np.sort(values, axis=0), axis=0) != 0).sum(axis=0)
    if kinds.any():
        at = int(kinds.argmax())
        sizes = {symbol: int(sizes[at]) for symbol, sizes in samples.items()}
        several = sorted(set(values[:, at].tolist()))
        raise UndecidedExtentError(f"{what} may be {several[0]} or {several[-1]} at {sizes}", sizes)
    return found[0]


def values_of(factor: Factor, samples: Samples) -> Array:
    """Return the values of an expression in all samples."""
    count = len(next(iter(samples.values())))
    every: Any = samples  # an array computes like a number
    return np.broadcast_to(np.asarray(size_of(factor, every)), (count,))


__all__ = ["DIVISORS", "Samples", "Seen", "decided", "rounded", "values_of"]
