"""Winograd's minimal filtering F(m, r): m results of a filter of r taps from m + r - 1 products.

y = A^T [(G g) * (B^T d)] for a window d of t = m + r - 1 elements (Winograd, "Arithmetic Complexity of Computations",
1980). The matrices evaluate polynomials at t - 1 points and at infinity: B^T follows from the points alone, G and A^T
are their powers. An axis with dilation is filtered phase by phase: elements with the same remainder by the dilation
are an axis without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from autotune import te
from autotune.errors import GraphError
from autotune.graph.ir import Array
from autotune.graph.ops.common import Expr

Row: TypeAlias = Sequence[float]
Matrix: TypeAlias = tuple[tuple[float, ...], ...]
Index: TypeAlias = Any  # a te expression, a Python number, or an array of numbers

_POINTS = (0, 1, -1, 2, -2, 1 / 2, -1 / 2)
_INPUT: Mapping[int, Matrix] = {
    4: ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    6: (
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
    8: (
        (1, 0, -21 / 4, 0, 21 / 4, 0, -1, 0),
        (0, 1, 1, -17 / 4, -17 / 4, 1, 1, 0),
        (0, -1, 1, 17 / 4, -17 / 4, -1, 1, 0),
        (0, 1 / 2, 1 / 4, -5 / 2, -5 / 4, 2, 1, 0),
        (0, -1 / 2, 1 / 4, 5 / 2, -5 / 4, -2, 1, 0),
        (0, 2, 4, -5 / 2, -5, 1 / 2, 1, 0),
        (0, -2, 4, 5 / 2, -5, -1 / 2, 1, 0),
        (0, -1, 0, 21 / 4, 0, -21 / 4, 0, 1),
    ),
}
"""B^T by the window."""
_SCALES: Mapping[int, tuple[float, ...]] = {
    4: (1, 1 / 2, 1 / 2),
    6: (1 / 4, -1 / 6, -1 / 6, 1 / 24, 1 / 24),
    8: (1, -2 / 9, -2 / 9, 1 / 90, 1 / 90, 32 / 45, 32 / 45),
}
"""The factors that B^T leaves out at each point, by the window; G has them."""
_AT_INFINITY: Mapping[int, int] = {4: -1, 6: 1, 8: 1}
"""The same at infinity, where A^T has it."""


@dataclass(frozen=True)
class Filtering:
    """F(``tile``, ``taps``) along an axis of ``size`` results with ``dilation``.

    Tiles are numbered by their place and then by their phase. Indices are those of a padded axis of
    ``padded`` elements, which the windows of all tiles cover.
    """

    tile: int
    taps: int
    size: int = 0
    dilation: int = 1

    def __post_init__(self) -> None:
        if self.tile < 1 or self.taps < 2 or self.window not in _INPUT:
            windows = ", ".join(map(str, _INPUT))
            raise GraphError(
                f"Winograd's F({self.tile}, {self.taps}) has windows of {self.window}; allowed: {windows}"
            )

    @property
    def window(self) -> int:
        """Elements of a tile's window, and products of a tile."""
        return self.tile + self.taps - 1

    @property
    def input_matrix(self) -> Matrix:
        """B^T [t, t]: what a window is multiplied with."""
        return _INPUT[self.window]

    @property
    def weight_matrix(self) -> Matrix:
        """G [t, r]: what the taps are multiplied with."""
        scales = _SCALES[self.window]
        rows = [
            tuple(scale * p**k for k in range(self.taps)) for scale, p in zip(scales, _POINTS, strict=False)
        ]
        return (*rows, (*(0,) * (self.taps - 1), 1))

    @property
    def output_matrix(self) -> Matrix:
        """A^T [m, t]: what the products are multiplied with."""
        points = _POINTS[: self.window - 1]
        last = (*(0,) * (self.tile - 1), _AT_INFINITY[self.window])
        return tuple((*(p**i for p in points), end) for i, end in enumerate(last))

    @property
    def places(self) -> int:
        """Tiles of a phase."""
        return -(-self.size // (self.dilation * self.tile))

    @property
    def tiles(self) -> int:
        """Tiles of all phases."""
        return self.places * self.dilation

    @property
    def phase_size(self) -> int:
        """Elements of a phase of the padded axis."""
        return self.places * self.tile + self.taps - 1

    @property
    def padded(self) -> int:
        """Elements that the windows cover."""
        return self.phase_size * self.dilation

    def place(self, tile: Index) -> Index:
        """Return the place of a tile in its phase."""
        return tile if self.dilation == 1 else tile // self.dilation

    def phase(self, tile: Index) -> Index:
        """Return the phase of a tile."""
        return 0 if self.dilation == 1 else tile % self.dilation

    def element(self, tile: Index, k: Index) -> Index:
        """Return the index of element ``k`` of the window of a tile."""
        if self.dilation == 1:
            return tile * self.tile + k
        return (self.place(tile) * self.tile + k) * self.dilation + self.phase(tile)

    def tile_of(self, result: Index) -> Index:
        """Return the tile that has a result."""
        if self.dilation == 1:
            return result // self.tile
        return result // (self.tile * self.dilation) * self.dilation + result % self.dilation

    def result_of(self, result: Index) -> Index:
        """Return the number of a result among those of its tile."""
        return (result if self.dilation == 1 else result // self.dilation) % self.tile


def weight_matrix(filtering: Filtering, axes: int) -> Array:
    """Return G of all axes, float64 [t**axes, r**axes]: what the taps of a window, flat, are multiplied with."""
    matrix = np.array(filtering.weight_matrix, np.float64)
    return matrix if axes == 1 else np.kron(matrix, weight_matrix(filtering, axes - 1))


# --- sums -----------------------------------------------------------------------------------------


def _sum(row: Row, values: Sequence[Expr]) -> Expr:
    """Return the sum of values times their coefficients: ones first, so that the others are fused multiply-adds."""
    terms = [(c, value) for c, value in zip(row, values, strict=True) if c]
    terms.sort(key=lambda term: (term[0] != 1, abs(term[0]) != 1))
    (c, first), *others = terms
    total: Expr = first if c == 1 else first * te.const(c, "float32")
    for c, value in others:
        part = value if abs(c) == 1 else value * te.const(abs(c), "float32")
        total = total + part if c > 0 else total - part
    return total


def input_sum(row: Row, values: Sequence[Expr]) -> Expr:
    """Return one row of B^T: the even values and the odd ones apart, as two rows share either up to the sign."""
    even = [c if k % 2 == 0 else 0 for k, c in enumerate(row)]
    odd = [c if k % 2 else 0 for k, c in enumerate(row)]
    if not any(even) or not any(odd):
        return _sum(row, values)
    if next(c for c in odd if c) > 0:
        return _sum(even, values) + _sum(odd, values)
    return _sum(even, values) - _sum([-c for c in odd], values)


def output_sum(row: Row, values: Sequence[Expr]) -> Expr:
    """Return one row of A^T: sums and differences of neighbours, which all rows share, times their coefficients."""
    coefficients, parts = [row[0], row[-1]], [values[0], values[-1]]
    for k in range(1, len(row) - 1, 2):
        coefficients.append(row[k])
        parts.append(values[k] + values[k + 1] if row[k] == row[k + 1] else values[k] - values[k + 1])
    return _sum(coefficients, parts)


def one_of(index: Expr, values: Sequence[Expr]) -> Expr:
    """Return ``values[index]``, decided where the loop of ``index`` is unrolled."""
    found = values[-1]
    for number in range(len(values) - 2, -1, -1):
        found = te.if_then_else(index == number, values[number], found)
    return found


# --- arithmetic -----------------------------------------------------------------------------------


def input_operations(matrix: Sequence[Row]) -> int:
    """Return the vector instructions of B^T along one axis: what two rows share is counted once."""
    shared, total = set[tuple[int, tuple[float, ...]]](), 0
    for row in matrix:
        halves = [(parity, tuple(row[parity::2])) for parity in (0, 1) if any(row[parity::2])]
        total += len(halves) - 1
        for parity, half in halves:
            sign = 1 if next(c for c in half if c) > 0 else -1
            shared.add((parity, tuple(sign * c for c in half)))
    return total + sum(sum(c != 0 for c in half) - 1 for _, half in shared)


def output_operations(matrix: Sequence[Row]) -> int:
    """Return the vector instructions of A^T along one axis: sums and differences of neighbours, then the rows."""
    pairs = len(matrix[0]) // 2 - 1
    terms = [sum(c != 0 for c in (row[0], *row[1:-1:2], row[-1])) for row in matrix]
    return 2 * pairs + sum(count - 1 for count in terms)


__all__ = [
    "Filtering",
    "input_operations",
    "input_sum",
    "one_of",
    "output_operations",
    "output_sum",
    "weight_matrix",
]
