"""Axes whose extent is a product of numbers and of symbolic sizes, and how a request lies in those of a bucket.

A value of ``[batch * seq, 64]`` has the axes ``("batch", "seq")`` and ``(64,)``: factors, the first varies slowest.
With a bucket of 8 times 128 it has 1024 rows, of which a request of 3 times 100 has those of batches below 3 at
places below 100; the others are padding.

A factor may be a sum: keys of ``past`` positions with one new behind them are ``"past+1"`` long.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TypeAlias

Factor: TypeAlias = int | str
Axis: TypeAlias = tuple[Factor, ...]
Axes: TypeAlias = tuple[Axis, ...]
Sizes: TypeAlias = Mapping[str, int]
"""Size of each symbol."""


def axis(*factors: Factor) -> Axis:
    """Return an axis without ones, its neighbouring numbers multiplied.

    >>> axis(2, 1, 3, "seq", 1)
    (6, 'seq')
    """
    found: list[Factor] = []
    for factor in factors:
        if isinstance(factor, int) and found and isinstance(found[-1], int):
            found[-1] *= factor
        elif factor != 1:
            found.append(factor)
    return tuple(found)


def sum_of(symbols: Iterable[str], number: int) -> Factor:
    """Return the factor that is a sum of symbols and a number.

    >>> sum_of(["seq", "past"], 1), sum_of(["seq"], 0), sum_of([], 3)
    ('past+seq+1', 'seq', 3)
    """
    terms = sorted(symbols)
    return "+".join([*terms, *([str(number)] if number else [])]) if terms else number


@cache
def terms_of(factor: Factor) -> tuple[tuple[str, ...], int]:
    """Return the symbols and the number of a factor.

    >>> terms_of("past+seq+1"), terms_of("seq+-1"), terms_of(4)
    ((('past', 'seq'), 1), (('seq',), -1), ((), 4))
    """
    if isinstance(factor, int):
        return (), factor
    terms = factor.split("+")
    if len(terms) > 1 and terms[-1].removeprefix("-").isdecimal():
        return tuple(terms[:-1]), int(terms[-1])
    return tuple(terms), 0


def symbols_of(axes: Iterable[Axis]) -> set[str]:
    """Return the symbols in the factors of axes."""
    return {symbol for each in axes for factor in each for symbol in terms_of(factor)[0]}


def size_of(factor: Factor, sizes: Sizes) -> int:
    """Return the value of a factor for such sizes."""
    if isinstance(factor, int):
        return factor
    if factor in sizes:
        return sizes[factor]
    symbols, number = terms_of(factor)
    return sum(sizes[symbol] for symbol in symbols) + number


def extent(of: Axis, sizes: Sizes) -> int:
    """Return the extent of an axis for such sizes."""
    return math.prod(size_of(factor, sizes) for factor in of)


def extents(of: Axes, sizes: Sizes) -> tuple[int, ...]:
    """Return the shape of a value for such sizes."""
    return tuple(extent(each, sizes) for each in of)


def is_symbolic(of: Axis) -> bool:
    """Return whether an axis has a symbolic factor."""
    return any(isinstance(factor, str) for factor in of)


def real_part(
    of: Axes, sizes: Sizes, real: Sizes
) -> tuple[tuple[int, ...], tuple[slice, ...], tuple[int, ...]]:
    """Return the shape and place of a request of ``real`` sizes in a value of a bucket of ``sizes``.

    Three things: the shape with an axis for each factor, the slices of that shape, and the shape of the request.
    """
    factors = [factor for each in of for factor in each]
    whole = {**sizes, **real}
    shape = tuple(size_of(factor, sizes) for factor in factors)
    slices = tuple(slice(size_of(factor, whole)) for factor in factors)
    return shape, slices, extents(of, whole)


def axis_text(of: Axis) -> str:
    """Return an axis as text, which :func:`parse_axis` reads.

    >>> axis_text(("batch", 8, "seq")), axis_text(())
    ('batch*8*seq', '1')
    """
    return "*".join(map(str, of)) or "1"


def parse_axis(text: str) -> Axis:
    """Return the axis of a text."""
    return axis(*(int(factor) if factor.isdecimal() else factor for factor in text.split("*")))


def shape_text(axes: Sequence[Axis]) -> str:
    """Return axes for messages.

    >>> shape_text([("batch",), (3,)])
    '[batch, 3]'
    """
    return f"[{', '.join(map(axis_text, axes))}]"


__all__ = [
    "Axes",
    "Axis",
    "Factor",
    "Sizes",
    "axis",
    "axis_text",
    "extent",
    "extents",
    "is_symbolic",
    "parse_axis",
    "real_part",
    "shape_text",
    "size_of",
    "sum_of",
    "symbols_of",
    "terms_of",
]
