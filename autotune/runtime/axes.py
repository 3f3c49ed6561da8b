"""Axes whose extent is a product of numbers and of symbolic sizes, and how a request lies in those of a bucket.

A value of ``[batch * seq, 64]`` has the axes ``("batch", "seq")`` and ``(64,)``: factors, the first varies slowest.
With a bucket of 8 times 128 it has 1024 rows, of which a request of 3 times 100 has those of batches below 3 at
places below 100; the others are padding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Factor: TypeAlias = int | str
Axis: TypeAlias = tuple[Factor, ...]
Axes: TypeAlias = tuple[Axis, ...]
Sizes: TypeAlias = Mapping[str, int]
"""Size of each symbol."""


def axis(*factors: Factor) -> Axis:
    """An axis without ones, its neighbouring numbers multiplied.

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


def extent(of: Axis, sizes: Sizes) -> int:
    """The extent of an axis for such sizes."""
    return math.prod(factor if isinstance(factor, int) else sizes[factor] for factor in of)


def extents(of: Axes, sizes: Sizes) -> tuple[int, ...]:
    """The shape of a value for such sizes."""
    return tuple(extent(each, sizes) for each in of)


def is_symbolic(of: Axis) -> bool:
    """Whether an axis has a symbolic factor."""
    return any(isinstance(factor, str) for factor in of)


def real_part(
    of: Axes, sizes: Sizes, real: Sizes
) -> tuple[tuple[int, ...], tuple[slice, ...], tuple[int, ...]]:
    """How a request of ``real`` sizes lies in a value of a bucket of ``sizes``.

    Three things: the shape with an axis for each factor, the slices of that shape, and the shape of the request.
    """
    factors = [factor for each in of for factor in each]
    shape = tuple(factor if isinstance(factor, int) else sizes[factor] for factor in factors)
    slices = tuple(slice(factor if isinstance(factor, int) else real[factor]) for factor in factors)
    return shape, slices, extents(of, {**sizes, **real})


def axis_text(of: Axis) -> str:
    """An axis as text, which :func:`parse_axis` reads.

    >>> axis_text(("batch", 8, "seq")), axis_text(())
    ('batch*8*seq', '1')
    """
    return "*".join(map(str, of)) or "1"


def parse_axis(text: str) -> Axis:
    """The axis of a text."""
    return axis(*(int(factor) if factor.isdecimal() else factor for factor in text.split("*")))


def shape_text(axes: Sequence[Axis]) -> str:
    """Axes for messages.

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
]
