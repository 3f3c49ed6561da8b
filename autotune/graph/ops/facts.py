"""In what terms definitions of operators state what passes ask of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """Elements of a tensor, the whole: every ``steps``-th of each of its axes from ``starts`` on.

    The axes of the part are those of the whole in the order ``perm``.

    >>> Part((0, 2), (1, 1), (1, 0)).placed((10, 1))
    (2, (1, 10))
    """

    starts: tuple[int, ...]
    steps: tuple[int, ...]
    perm: tuple[int, ...]

    @classmethod
    def permuted(cls, perm: Sequence[int]) -> Part:
        """All of the whole, with its axes in another order."""
        return cls((0,) * len(perm), (1,) * len(perm), tuple(perm))

    @classmethod
    def cut(cls, rank: int, starts: Mapping[int, int], steps: Mapping[int, int] | None = None) -> Part:
        """The elements from ``starts`` on along some axes, by their numbers, in ``steps``; all along the others."""
        axes, steps = tuple(range(rank)), steps or {}
        return cls(tuple(starts.get(a, 0) for a in axes), tuple(steps.get(a, 1) for a in axes), axes)

    def placed(self, strides: Sequence[int]) -> tuple[int, tuple[int, ...]]:
        """First element and strides of the part, in elements, for a whole with these strides."""
        offset = sum(start * stride for start, stride in zip(self.starts, strides, strict=True))
        return offset, tuple(strides[axis] * self.steps[axis] for axis in self.perm)

    @property
    def inverse(self) -> Part:
        """Where the whole lies in the part, which is all of it."""
        return Part.permuted([self.perm.index(axis) for axis in range(len(self.perm))])


__all__ = ["Part"]
