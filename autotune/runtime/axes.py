"""Axes whose extent is a product of numbers and of symbolic sizes, and how a request lies in those of a bucket.

A value of ``[batch * seq, 64]`` has the axes ``("batch", "seq")`` and ``(64,)``: factors, the first varies slowest.
With a bucket of 8 times 128 it has 1024 rows, of which a request of 3 times 100 has those of batches below 3 at
places below 100; the others are padding.

A factor may be a sum: keys of ``past`` positions with one new behind them are ``"past+1"`` long. It may be a quotient,
rounded down: a window that takes every second of ``height`` rows leaves ``"(height+1)/2"``. Where elements of several
images lie behind each other, it is a sum of products: ``"(height*width)+8"``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import TypeAlias

Factor: TypeAlias = int | str
Axis: TypeAlias = tuple[Factor, ...]
Axes: TypeAlias = tuple[Axis, ...]
Sizes: TypeAlias = Mapping[str, int]
"""Size of each symbol."""
_CAPPED = re.compile(r"min\((.+),(\d+)\)")
_QUOTIENT = re.compile(r"\((?:([1-9]\d*)\*)?(.+)\)(?:/([1-9]\d*))?")


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
    terms = _outside_of_brackets(factor, "+")
    if len(terms) > 1 and terms[-1].removeprefix("-").isdecimal():
        return tuple(terms[:-1]), int(terms[-1])
    return tuple(terms), 0


def quotient_of(factor: Factor, times: int, plus: int, by: int) -> Factor:
    """Return the factor ``(times * factor + plus) / by``, rounded down, in the least numbers.

    >>> half = quotient_of("height", 1, 1, 2)
    >>> half, quotient_of(half, 1, 1, 2), quotient_of(half, 2, 0, 1), quotient_of("height", 6, 8, 4)
    ('(height+1)/2', '(height+3)/4', '(2*((height+1)/2))', '(3*height+4)/2')
    """
    symbols, number = terms_of(factor)
    plus += times * number
    if not symbols:
        return plus // by
    inner = parts_of(symbols[0]) if len(symbols) == 1 else None
    if inner is not None and (times == 1 or inner[3] == 1) and len(_factors(inner[1])) == 1:
        return quotient_of(inner[1], times * inner[0], plus * inner[3] + times * inner[2], by * inner[3])
    shared = math.gcd(times, by)
    times, plus, by = times // shared, plus // shared, by // shared
    if times == by == 1:
        return sum_of(symbols, plus)
    base = symbols[0] if len(symbols) == 1 and inner is None else f"({'+'.join(symbols)})"
    text = (f"{times}*{base}" if times > 1 else "+".join(symbols)) + (f"+{plus}" if plus else "")
    return f"({text})" + (f"/{by}" if by > 1 else "")


@cache
def parts_of(term: str) -> tuple[int, Factor, int, int] | None:
    """Return times, factor, plus and divisor of a quotient; None for a symbol.

    >>> parts_of("(2*((height+1)/2)+3)/4"), parts_of("height")
    ((2, '((height+1)/2)', 3, 4), None)
    """
    found = _QUOTIENT.fullmatch(term)
    if found is None or len(_factors(term)) > 1:
        return None
    symbols, plus = terms_of(found[2])
    return int(found[1] or 1), sum_of(symbols, 0), plus, int(found[3] or 1)


def capped(factor: Factor, most: int) -> Factor:
    """Return the factor that is another one, but at most a number.

    >>> size_of(capped("boxes+1", 100), {"boxes": 300}), capped_parts(capped("boxes+1", 100))
    (100, ('boxes+1', 100))
    """
    return f"min({factor},{most})"


@cache
def capped_parts(term: str) -> tuple[Factor, int] | None:
    """Return the factor and the number of a term that is at most a number; None for another."""
    found = _CAPPED.fullmatch(term)
    if found is None or len(_factors(term)) > 1:
        return None
    symbols, number = terms_of(found[1])
    return sum_of(symbols, number), int(found[2])


def product_of(of: Axis) -> Factor:
    """Return the extent of an axis as one factor.

    >>> product_of(("height", "(width+1)/2")), product_of((3,)), product_of(())
    ('(height*(width+1)/2)', 3, 1)
    """
    return f"({axis_text(of)})" if len(of) > 1 else (of or (1,))[0]


@cache
def _factors(factor: Factor) -> list[Factor]:
    """Return the factors of a product."""
    parts = [factor] if isinstance(factor, int) else _outside_of_brackets(factor, "*")
    return [int(part) if isinstance(part, str) and part.isdecimal() else part for part in parts]


def _outside_of_brackets(text: str, mark: str) -> list[str]:
    """Return the parts of a text between marks, those in brackets left alone."""
    depths = accumulate((each == "(") - (each == ")") for each in text)
    cuts = [i for i, depth in enumerate(depths) if depth == 0 and text[i] == mark]
    return [text[a + 1 : b] for a, b in pairwise((-1, *cuts, len(text)))]


def symbols_in(factor: Factor) -> set[str]:
    """Return the symbols that a factor depends on.

    >>> sorted(symbols_in("past+(height+1)/2"))
    ['height', 'past']
    """
    found = set[str]()
    for term in terms_of(factor)[0]:
        parts, factors, capped = parts_of(term), _factors(term), capped_parts(term)
        if parts is not None:
            found |= symbols_in(parts[1])
        elif capped is not None:
            found |= symbols_in(capped[0])
        else:
            found |= {term} if len(factors) == 1 else set().union(*map(symbols_in, factors))
    return found


def symbols_of(axes: Iterable[Axis]) -> set[str]:
    """Return the symbols in the factors of axes."""
    return {symbol for each in axes for factor in each for symbol in symbols_in(factor)}


def size_of(factor: Factor, sizes: Sizes) -> int:
    """Return the value of a factor for such sizes."""
    if isinstance(factor, int):
        return factor
    if factor in sizes:
        return sizes[factor]
    symbols, number = terms_of(factor)
    return sum((_term(symbol, sizes) for symbol in symbols), number)


def _term(term: str, sizes: Sizes) -> int:
    parts, capped = parts_of(term), capped_parts(term)
    if capped is not None:
        size = size_of(capped[0], sizes)
        return size - (size > capped[1]) * (size - capped[1])  # of arrays of sizes too
    if parts is None:
        factors = _factors(term)
        return sizes[term] if len(factors) == 1 else math.prod(size_of(factor, sizes) for factor in factors)
    times, factor, plus, by = parts
    return (times * size_of(factor, sizes) + plus) // by


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
    return axis(
        *(int(factor) if factor.isdecimal() else factor for factor in _outside_of_brackets(text, "*"))
    )


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
    "capped",
    "capped_parts",
    "extent",
    "extents",
    "is_symbolic",
    "parse_axis",
    "parts_of",
    "product_of",
    "quotient_of",
    "real_part",
    "shape_text",
    "size_of",
    "sum_of",
    "symbols_in",
    "symbols_of",
    "terms_of",
]
