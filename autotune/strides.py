"""Row-major strides in elements, dense or padded; knows nothing else of the project."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from math import gcd


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the row-major strides in elements.

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
    """Return the row-major strides in elements, padded so that ``stride % factor == offset`` where asked.

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


def strided_runs(shape: Sequence[int], strides: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
    """Yield a strided value as (first element, number of runs, elements from one to the next, elements of each).

    >>> list(strided_runs((2, 3), (3, 1))), list(strided_runs((2, 3), (8, 1)))
    ([(0, 1, 0, 6)], [(0, 2, 8, 3)])
    """
    outer = [pair for pair in zip(shape, strides, strict=True) if pair[0] != 1]
    count = 1
    while outer and outer[-1][1] == count:
        count *= outer.pop()[0]
    runs, stride = outer.pop() if outer else (1, 0)
    for index in itertools.product(*(range(extent) for extent, _ in outer)):
        yield sum(i * step for i, (_, step) in zip(index, outer, strict=True)), runs, stride, count


def periodic_runs(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """Return a period and a run, such that all elements lie in the first ``run`` of a period; (0, 0) where
    all there are do.

    >>> periodic_runs((1, 7, 7, 32), (99, 7 * 64, 64, 1)), periodic_runs((2, 3), (3, 1)), periodic_runs((2, 3), (1, 2))
    ((64, 32), (0, 0), (0, 0))
    """
    outer = sorted((step, extent) for extent, step in zip(shape, strides, strict=True) if extent > 1)
    run = 1
    while outer and outer[0][0] == run:
        run *= outer.pop(0)[1]
    period = gcd(*(step for step, _ in outer))
    return (period, run) if run < period and all(step > 0 for step, _ in outer) else (0, 0)


def reshaped_strides(
    shape: Sequence[int], strides: Sequence[int], reshaped: Sequence[int]
) -> tuple[int, ...] | None:
    """Return strides in elements that let the memory of ``shape`` be read as ``reshaped``; None where it
    must be copied.

    Dimensions may be split as one likes; those that become one must follow each other without a gap. It is
    NumPy's rule for reshaping without a copy. Dimensions of extent 1 get the stride of a row-major array.

    >>> reshaped_strides((4, 5, 6), (100, 10, 1), (4, 5, 2, 3))
    (100, 10, 3, 1)
    >>> reshaped_strides((4, 5, 6), (50, 10, 1), (20, 6))
    (10, 1)
    >>> reshaped_strides((4, 5, 6), (50, 10, 1), (4, 30)) is None
    True
    """
    if 0 in shape:
        return dense_strides(reshaped)
    runs = _runs(shape, strides)
    result: list[int] = []
    extent, step = 1, 1  # what is left of the innermost run
    for wanted in reversed(reshaped):
        if wanted == 1:
            result.append(result[-1] * reshaped[len(reshaped) - len(result)] if result else 1)
            continue
        if extent == 1:
            extent, step = runs.pop()
        if extent % wanted:
            return None
        result.append(step)
        extent //= wanted
        step *= wanted
    return tuple(reversed(result))


def _runs(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Return the extent and innermost stride of each longest row of dimensions without a gap between them."""
    runs: list[tuple[int, int]] = []
    for extent, stride in zip(shape, strides, strict=True):
        if extent == 1:
            continue
        if runs and runs[-1][1] == extent * stride:
            runs[-1] = (runs[-1][0] * extent, stride)
        else:
            runs.append((extent, stride))
    return runs


__all__ = ["aligned_strides", "dense_strides", "reshaped_strides"]
