"""In what terms definitions of operators state what passes ask of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from autotune.graph.ir import Array, Attrs


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
        """Return all of the whole, with its axes in another order."""
        return cls((0,) * len(perm), (1,) * len(perm), tuple(perm))

    @classmethod
    def cut(cls, rank: int, starts: Mapping[int, int], steps: Mapping[int, int] | None = None) -> Part:
        """Return the elements from ``starts`` on along some axes, by their numbers, in ``steps``; all
        along the others."""
        axes, steps = tuple(range(rank)), steps or {}
        return cls(tuple(starts.get(a, 0) for a in axes), tuple(steps.get(a, 1) for a in axes), axes)

    def position(self, index: Sequence[Any]) -> list[Any]:
        """Return the place in the whole of the element of the part at ``index``; entries may be expressions."""
        own = [index[self.perm.index(axis)] for axis in range(len(self.perm))]
        return [i * step + start for i, start, step in zip(own, self.starts, self.steps, strict=True)]

    def taken(self, whole: Array, shape: Sequence[int]) -> Array:
        """Return a copy of the part, which has this shape."""
        begins, ends = self.position([0] * len(shape)), self.position(shape)
        index = zip(begins, ends, self.steps, strict=True)
        found = whole[(*(slice(b, e if e >= 0 else None, step) for b, e, step in index), ...)]
        return found.transpose(self.perm).copy()

    def placed(self, strides: Sequence[int]) -> tuple[int, tuple[int, ...]]:
        """Return the first element and strides of the part, in elements, for a whole with these strides."""
        offset = sum(start * stride for start, stride in zip(self.starts, strides, strict=True))
        return offset, tuple(strides[axis] * self.steps[axis] for axis in self.perm)

    @property
    def inverse(self) -> Part:
        """Return the place of the whole in the part, which is all of it."""
        return Part.permuted([self.perm.index(axis) for axis in range(len(self.perm))])


@dataclass(frozen=True)
class Weights:
    """The channels of the second operand, convolution weights: axes of it in the layout NCHW.

    In NHWC the input channels come last but one, the output channels last.
    """

    inputs: int
    outputs: int

    def channels_last(self, rank: int) -> tuple[int, ...]:
        """Return the permutation of the axes from NCHW to NHWC.

        >>> Weights(inputs=1, outputs=0).channels_last(4)
        (2, 3, 1, 0)
        """
        return (*range(2, rank), self.inputs, self.outputs)

    @property
    def outputs_of_all_groups(self) -> bool:
        """Return whether the output channels are those of all groups; the axis that ONNX has first goes over all."""
        return self.outputs == 0

    def output_axis(self, attrs: Attrs) -> int:
        """Return the axis of the output channels in the layout that the attributes name."""
        return -1 if attrs["layout"] == "NHWC" else self.outputs


@dataclass(frozen=True)
class Domain:
    """The values that an input should hold for results to be finite and near 1.

    ``kind`` is "positive", "index" (from 0 to below ``size``), "weights" (of sums of ``size`` terms), "factor" (of
    such sums, where any of the two operands may be the weights), "bits" (any integers) or "power" (2 to the power of
    ``size`` or a little less).
    """

    kind: Literal["positive", "index", "weights", "factor", "bits", "power"]
    size: int = 0


__all__ = ["Domain", "Part", "Weights"]
