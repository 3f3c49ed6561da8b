"""Extents that requests may have along axes that grow, known at every size that a bucket is for.

Two expressions are one extent if they are equal at each of these sizes: of rows that come in steps of 32, half of
them doubled are as many again. So equality is decided by values, and an expression that a model makes of a size is
recognised by them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import permutations
from math import prod
from typing import Any

import numpy as np

from autotune.compiler.dynamic.rounded import Samples, Seen, decided, rounded
from autotune.graph.ir import Array
from autotune.runtime.axes import (
    Axis,
    Factor,
    Sizes,
    axis,
    capped,
    product_of,
    quotient_of,
    size_of,
    sum_of,
    symbols_in,
    symbols_of,
)

_SAMPLES = 512
"""Requests of several computed lengths at which expressions are compared."""


@dataclass(frozen=True)
class GrownExtents:
    """Extents of requests in a bucket of ``sizes``: each symbol goes up from ``least`` by ``steps``."""

    sizes: Sizes
    least: Sizes
    steps: Sizes
    lengths: Collection[str] = ()
    """The symbols that are lengths which the model computes."""
    _sums: dict[Factor, None] = field(default_factory=dict)
    """Expressions of several symbols."""

    @cached_property
    def _every(self) -> Mapping[str, Array]:
        """Sizes that a request may have of each symbol."""
        return {
            symbol: np.arange(self.least[symbol], most + 1, self.steps.get(symbol, 1))
            for symbol, most in self.sizes.items()
        }

    @cached_property
    def _known(self) -> dict[tuple[str, bytes], Factor]:
        """The first expression for each extent, by its symbol and its values."""
        return {(symbol, each.tobytes()): symbol for symbol, each in self._every.items()}

    @cached_property
    def _joined(self) -> dict[Axis, None]:
        """Axes of values that several symbols decide, in the order in which they were met."""
        return {}

    def meet(self, axes: Iterable[Axis]) -> None:
        """Remember which axes a value has, so that another of such an extent is one of them."""
        self._joined.update({each: None for each in axes if len(symbols_of([each])) > 1})

    def values(self, factor: Factor) -> Array | None:
        """Return the values of a factor at all sizes of its symbol; None where it depends on several."""
        symbols = symbols_in(factor)
        if len(symbols) != 1:
            return None
        (symbol,) = symbols
        every: Any = self._every[symbol]  # an array computes like a number
        return np.asarray(size_of(factor, {symbol: every}))

    def one(self, factor: Factor) -> Factor:
        """Return the expression that stands for all that are equal to a factor at every size."""
        values = self.values(factor)
        if values is None:
            if symbols_in(factor):
                self._sums[factor] = None
            return factor
        if (values == values[0]).all():
            return int(values[0])
        (symbol,) = symbols_in(factor)
        key = (symbol, values.tobytes())
        if key not in self._known:
            self._known[key] = self._linear(symbol, values) or factor
        return self._known[key]

    def _linear(self, symbol: str, values: Array) -> Factor | None:
        """Return an expression without a rounding for values that go up alike."""
        differences = np.diff(values)
        if (differences != differences[0]).any():
            return None
        slope = Fraction(int(differences[0]), self.steps.get(symbol, 1))
        p, q = slope.numerator, slope.denominator
        return quotient_of(symbol, p, q * int(values[0]) - p * self.least[symbol], q) if p > 0 else None

    def whole(self, of: Axis) -> Factor | None:
        """Return an axis as one factor; None where a request's part is not the beginning of it."""
        if not of:
            return 1
        first, *rest = of
        if any(isinstance(factor, str) for factor in rest):
            return None
        return self.one(quotient_of(first, prod(size_of(factor, {}) for factor in rest), 0, 1))

    def dense(self, of: Axis) -> Factor:
        """Return the extent of an axis as one factor: of elements that follow one another."""
        found = self.whole(of)
        return product_of(of) if found is None else found

    def same(self, first: Axis, second: Axis) -> bool:
        """Return whether two axes have a request's part at the same places, whatever its sizes."""
        if first == second:
            return True
        whole = self.whole(first)
        return whole is not None and whole == self.whole(second)

    def divided(self, factor: Factor, by: int) -> Factor | None:
        """Return a factor divided by a number; None where something is left over at some size."""
        values = self.values(factor)
        if values is None or (values % by).any():
            return None
        return self.one(quotient_of(factor, 1, 0, by))

    def fitted(self, seen: Seen, what: str) -> Axis | None:
        """Return an axis of such an extent: a sum, an expression of one symbol or of lengths, or an axis or a product
        met before of such in different symbols; None where none is it.

        Raises UndecidedExtentError where several are; ``what`` names it.
        """
        (here, number), *others = seen
        if any(n != number and any(at[s] != here[s] for s in self.lengths) for at, n in others):
            met = dict.fromkeys([*self.sizes, *self._known.values(), *self._sums])
            return self._expression([*met], seen, self._samples, what)
        grows = [s for s in self.sizes if any(n != number and at[s] != here[s] for at, n in others)]
        if not grows:
            return axis(number) if all(n == number for _, n in others) else None
        total = sum_of(grows, number - sum(here[symbol] for symbol in grows))
        if _fits((total,), seen):
            return (self.one(total),)
        if len(grows) > 1:
            joined = next((each for each in self._joined if _fits(each, seen)), None)
            return joined or next(
                (found for found in self._products(grows, seen) if _fits(found, seen)), None
            )
        (symbol,) = grows
        return self._expression(self._met(symbol), seen, {symbol: self._every[symbol]}, what)

    def _expression(self, met: Sequence[Factor], seen: Seen, samples: Samples, what: str) -> Axis | None:
        """Return an axis of one expression: one met before, one that stops growing at a number, such ones and a number,
        or one that is linear but for rounding down."""
        (_, number), (last, least) = seen[0], min(seen, key=lambda each: each[1])
        plain = [found for factor in met for found in (factor, capped(factor, number))]
        moved = [quotient_of(factor, 1, least - size_of(factor, last), 1) for factor in met]
        every = dict.fromkeys([*plain, *moved, *(capped(factor, number) for factor in moved)])
        fits = [factor for factor in every if _fits((factor,), seen)]
        found = decided(fits or rounded(met, seen, samples), samples, what)
        return None if found is None else axis(self.one(found))

    @cached_property
    def _samples(self) -> Samples:
        """Requests of many lengths: each alone has all its sizes, of a few hundred."""
        rng, count = np.random.default_rng(0), min(_SAMPLES, max(map(len, self._every.values())))
        every = {s: sizes if s in self.lengths else sizes[-1:] for s, sizes in self._every.items()}
        return {s: rng.permutation(np.resize(rng.permutation(sizes), count)) for s, sizes in every.items()}

    def _products(self, grows: Sequence[str], seen: Seen) -> Iterator[Axis]:
        """Yield products of an expression met before for each symbol, and a number."""
        (here, number), *others = seen
        for order in permutations(grows):
            factors = [
                self._ratio(
                    symbol, [(at, Fraction(n, number)) for at, n in others if at[symbol] != here[symbol]]
                )
                for symbol in order
            ]
            rest = Fraction(number, prod(size_of(factor, here) for factor in factors if factor is not None))
            if None not in factors and rest.denominator == 1:
                yield axis(*(factor for factor in factors if factor is not None), int(rest))

    def _ratio(self, symbol: str, along: Sequence[tuple[Sizes, Fraction]]) -> Factor | None:
        """Return the expression met before that changes by such ratios from the bucket's size on."""
        for factor in self._met(symbol):
            size = size_of(factor, self.sizes)
            if size and all(Fraction(size_of(factor, at), size) == ratio for at, ratio in along):
                return factor
        return None

    def _met(self, symbol: str) -> list[Factor]:
        known = (found for (owner, _), found in self._known.items() if owner == symbol)
        return list(dict.fromkeys([symbol, *known]))


def _fits(found: Axis, seen: Seen) -> bool:
    """Return whether an axis has all the extents that were seen."""
    return all(prod(size_of(factor, at) for factor in found) == n for at, n in seen)


__all__ = ["GrownExtents"]
