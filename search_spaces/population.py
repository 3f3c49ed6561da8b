"""A population: many candidates of one space as a matrix of value indexes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.schedule.knob import Config, Knob, Value

Indexes = NDArray[np.int16]


@dataclass(frozen=True)
class Population:
    """``n`` candidates; ``indexes`` is int16 [n, knobs], row i picking one value of every knob."""

    knobs: tuple[Knob, ...]
    indexes: Indexes

    def __len__(self) -> int:
        return len(self.indexes)

    def __iter__(self) -> Iterator[dict[str, Value]]:
        return (self.config(i) for i in range(len(self)))

    def columns(self) -> dict[str, NDArray[np.generic]]:
        """Return one array of values [n] a knob."""
        return {knob.name: knob.array[self.indexes[:, position]] for position, knob in enumerate(self.knobs)}

    def encoded(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Return the knobs called ``names`` as numbers [n, len(names)]; NaN where the space has no such knob."""
        found = np.full((len(self), len(names)), np.nan, dtype=np.float32)
        for position, knob in enumerate(self.knobs):
            if knob.name in names:
                codes = np.asarray([knob.encode(value) for value in knob.values], dtype=np.float32)
                found[:, names.index(knob.name)] = codes[self.indexes[:, position]]
        return found

    def config(self, row: int) -> dict[str, Value]:
        """Return one candidate as a configuration of plain Python values."""
        picked = self.indexes[row].tolist()
        return {knob.name: knob.values[i] for knob, i in zip(self.knobs, picked, strict=True)}

    def configs(self) -> list[dict[str, Value]]:
        """Return all candidates as configurations."""
        return [self.config(row) for row in range(len(self))]

    def take(self, rows: NDArray[np.generic] | Sequence[int] | slice) -> Population:
        """Return the given rows (indexes, a bool mask or a slice), in that order."""
        picked = rows if isinstance(rows, slice) else np.asarray(rows)
        return Population(self.knobs, self.indexes[picked])

    def chunks(self, size: int = 4096) -> Iterator[slice]:
        """Yield slices of at most ``size`` rows: arithmetic over a chunk stays in the cache."""
        return (slice(start, start + size) for start in range(0, len(self), size))

    def distinct(self) -> Population:
        """Return the population without repeated candidates; the first of each is kept, the order too."""
        _, first = np.unique(self.codes(), return_index=True)
        return self.take(np.sort(first))

    def codes(self) -> NDArray[np.generic]:
        """Return one value a candidate, equal where the candidates are: a mixed-radix number or the raw row."""
        sizes = [len(knob.values) for knob in self.knobs]
        if sum(np.log2(size) for size in sizes) < 62:
            weights = np.cumprod([1, *sizes[:-1]], dtype=np.int64)
            return np.asarray(self.indexes.astype(np.int64) @ weights)
        rows = np.ascontiguousarray(self.indexes)
        return rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()

    def distances(self, others: Population) -> NDArray[np.float64]:
        """Return the distance of each candidate from each of the others [n, m]: each knob counts up to 1, an ordered
        one by its steps."""
        found = np.zeros((len(self), len(others)))
        for position, knob in enumerate(self.knobs):
            apart = np.abs(self.indexes[:, None, position] - others.indexes[:, position])
            found += apart / max(1, len(knob.values) - 1) if knob.ordered else apart > 0
        return found

    @staticmethod
    def of(knobs: tuple[Knob, ...], configs: Sequence[Config]) -> Population:
        """Return a population of configurations that name every knob; raises KnobError for a value that is
        not legal."""
        rows = [[knob.index(config[knob.name]) for knob in knobs] for config in configs]
        return Population(knobs, np.asarray(rows, dtype=np.int16).reshape(len(configs), len(knobs)))

    @staticmethod
    def concatenate(parts: Sequence[Population]) -> Population:
        """Return one population after the other; they share their knobs."""
        return Population(parts[0].knobs, np.concatenate([part.indexes for part in parts]))


__all__ = ["Indexes", "Population"]
