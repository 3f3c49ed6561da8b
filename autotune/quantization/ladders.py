"""The plans that the search for a front begins with: rungs of ladders from short precisions to float32.

One ladder begins with the fastest precision of each product, the other one with bfloat16: a whole model of one short
type converts nothing between its products, which sums of products' latencies do not know.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import TypeVar

import numpy as np

from autotune.quantization.precision import (
    BFLOAT16,
    FLOAT32,
    PRECISIONS,
    PrecisionOption,
    Precisions,
    products_outside,
    taken,
)
from autotune.quantization.within import PrecisionSearch

_RUNGS = 8
"""Of a ladder; a job measures some tens of plans."""
Options = Mapping[str, Sequence[PrecisionOption]]
Plan = dict[str, str]
T = TypeVar("T")


def first_plans(search: PrecisionSearch) -> list[Plan]:
    """Return plans within the budget that are not float32: of each ladder in turn, its ends first, then what is between
    them. Of the one from the fastest precisions each is there also without short types that gain nothing."""
    fastest = [(plan, search.settled(plan)) for plan in _ladder(search, search.options)]
    whole = [(plan,) for plan in _ladder(search, _from_bfloat16(search.options))]
    turns = zip_longest(coarse_first(fastest), coarse_first(whole), fillvalue=())
    every = chain.from_iterable(chain.from_iterable(turns))
    found = {tuple(sorted(plan.items())): plan for plan in every if products_outside(plan, FLOAT32)}
    return list(found.values())


def _from_bfloat16(options: Options) -> Options:
    """Return the options of each product that are as exact as bfloat16."""
    least = PRECISIONS.index(BFLOAT16)
    return {
        product: [each for each in every if PRECISIONS.index(each.precision) >= least]
        for product, every in options.items()
    }


def _ladder(search: PrecisionSearch, options: Options) -> list[Plan]:
    """Return plans within the budget of the steps from the first options to the last, spread over latency and error."""
    first, steps = {product: each[0].precision for product, each in options.items()}, search.steps_of(options)
    plans = [taken(first, steps[:count]) for count in range(len(steps))]
    plans = plans[bisect_left(plans, True, key=search.holds) :]
    return [plans[at] for at in spread([_sums(plan, options) for plan in plans], _RUNGS)]


def _sums(plan: Precisions, options: Options) -> tuple[float, float]:
    """Return the sums of the latencies of products and of the squares of the errors that they make alone."""
    chosen = [each for product, every in options.items() for each in every if each.precision == plan[product]]
    return sum(each.latency_ns for each in chosen), sum(each.square for each in chosen)


def spread(points: Sequence[tuple[float, float]], count: int) -> list[int]:
    """Return indices of at most so many points along a front, about the same way apart: in the latency, and in the
    factor of the error.

    >>> spread([(1, 1e-2), (1.1, 9e-3), (4, 5e-3), (9, 1e-3), (9, 9e-4)], 3)
    [0, 2, 4]
    """
    if len(points) <= count:
        return list(range(len(points)))
    latencies, squares = np.array(points).T
    errors = np.log(np.maximum(squares, 1e-16))
    ways = sum(np.abs(np.diff(each)) / max(np.ptp(each), 1e-9) for each in (latencies, errors))
    along = np.concatenate([[0.0], np.cumsum(ways)])
    wanted = np.linspace(0, along[-1], count)
    return sorted({int(np.abs(along - each).argmin()) for each in wanted})


def coarse_first(plans: Sequence[T]) -> Iterator[T]:
    """Yield the ends of a row, then what is in the middle between any two, and so on.

    >>> [*coarse_first("abcdefgh")]
    ['a', 'h', 'e', 'c', 'g', 'b', 'd', 'f']
    """
    steps = [2**power for power in range(len(plans).bit_length(), -1, -1)]
    ends = [0, len(plans) - 1] if plans else []
    order = dict.fromkeys(chain(ends, *(range(0, len(plans), step) for step in steps)))
    yield from (plans[at] for at in order)


__all__ = ["coarse_first", "first_plans", "spread"]
