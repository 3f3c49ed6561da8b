"""Row-major strides in elements, dense or padded; knows nothing else of the project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements.

    >>> dense_strides((2, 3, 4))
    (12, 4, 1)
    """
    strides: list[int] = []
    step = 1
    for d in reversed(shape):
        strides.append(step)
        step *= d
    return tuple(reversed(strides))


def aligned_strides(shape: Sequence[int], alignments: Mapping[int, tuple[int, int]]) -> tuple[int, ...]:
    """Row-major strides in elements, padded so that ``stride % factor == offset`` where asked.

    >>> aligned_strides((4, 6), {0: (8, 1)})
    (9, 1)
    """
    strides: list[int] = []
    step = 1
    for dim in reversed(range(len(shape))):
        if dim in alignments:
            factor, offset = alignments[dim]
            step += (offset - step) % factor
        strides.append(step)
        step *= max(shape[dim], 1)
    return tuple(reversed(strides))


__all__ = ["aligned_strides", "dense_strides"]
