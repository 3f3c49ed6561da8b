"""Chains of Reshape and Transpose as the fewest nodes that do the same.

Exporters split, merge and swap axes one at a time: keys of attention are merged over heads, transposed and split again.
What a chain does is followed axis by axis: each axis of its result is a sequence of runs of its source's elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from autotune.passes.attributes import ints
from autotune.passes.rewriter import Rewriter
from autotune.strides import dense_strides

Step = tuple[str, tuple[int, ...]]
"""("Reshape", shape) or ("Transpose", perm)."""

_Run = tuple[int, int]  # every how manieth element of the source, and how many of them; always more than one
_Axis = tuple[_Run, ...]  # an axis of which the first run is the slowest; none where there is one element
_ARGUMENT = {"Reshape": "shape", "Transpose": "perm"}
_LONGEST = 16


def shortened(rewriter: Rewriter, value: str, step: Step) -> tuple[str, tuple[Step, ...]]:
    """Return the value of which ``step`` is a rearrangement, and the fewest steps from there.

    Where nothing can be left out that is ``value`` itself and the step. Of as many steps, those with fewer transposes.
    """
    best: tuple[str, tuple[Step, ...]] = (value, (step,))
    chain, most = [step], (0, 0)
    while True:
        steps = fewest(rewriter.type_of(value).shape, chain)
        if steps is not None:
            saved = (len(chain) - len(steps), _transposes(chain) - _transposes(steps))
            best, most = ((value, steps), saved) if saved > most else (best, most)
        node = rewriter.producer(value)
        if node is None or node.op not in ("Reshape", "Transpose") or len(chain) == _LONGEST:
            return best
        chain.insert(0, (node.op, ints(node, _ARGUMENT[node.op])))
        value = node.inputs[0]


def _transposes(steps: Sequence[Step]) -> int:
    return sum(op == "Transpose" for op, _ in steps)


def rearranged(rewriter: Rewriter, value: str, steps: Sequence[Step], name: str) -> str:
    """Return a value of the new graph after these steps; what is made for it is named like ``name``."""
    for op, argument in steps:
        value = rewriter.emit(op, [value], {_ARGUMENT[op]: argument}, name=name)
    return value


def fewest(shape: Sequence[int], chain: Sequence[Step]) -> tuple[Step, ...] | None:
    """Return the fewest steps from a shape that do what a chain of them does; None where that cannot be followed.

    >>> fewest((1, 4, 24, 16), [("Reshape", (4, 24, 16)), ("Transpose", (0, 2, 1)), ("Reshape", (1, 4, 16, 24))])
    (('Transpose', (0, 1, 3, 2)),)
    >>> fewest((2, 3), [("Transpose", (1, 0)), ("Reshape", (6,)), ("Reshape", (3, 2)), ("Transpose", (1, 0))])
    ()
    """
    shape = tuple(shape)
    if 0 in shape:
        return None
    source = [
        ((step, extent),) if extent > 1 else ()
        for step, extent in zip(dense_strides(shape), shape, strict=True)
    ]
    axes: list[_Axis] = list(source)
    result = shape
    for op, argument in chain:
        if op == "Transpose":
            axes, result = [axes[axis] for axis in argument], tuple(result[axis] for axis in argument)
            continue
        regrouped = _regrouped([run for axis in axes for run in axis], argument)
        if regrouped is None:
            return None
        axes, result = regrouped, argument
    axes = [_merged(axis) for axis in axes]
    runs = _merged(run for axis in axes for run in axis)
    if len(runs) < 2:  # the elements are in order
        return _reshape(shape, result)
    perm = _matched(source, axes)
    if perm is not None:
        return (("Transpose", perm),)
    whole = _whole(source, runs)
    if whole is not None:
        return (("Transpose", whole), *_reshape(tuple(shape[axis] for axis in whole), result))
    if all(len(axis) < 2 for axis in axes):
        order = _with_ones(
            axes, sorted((i for i, axis in enumerate(axes) if axis), key=lambda i: -axes[i][0][0])
        )
        perm = tuple(order.index(axis) for axis in range(len(order)))
        return (*_reshape(shape, tuple(result[axis] for axis in order)), ("Transpose", perm))
    by_place = sorted(runs, reverse=True)
    apart, perm = tuple(size for _, size in by_place), tuple(by_place.index(run) for run in runs)
    return (
        *_reshape(shape, apart),
        ("Transpose", perm),
        *_reshape(tuple(size for _, size in runs), result),
    )


def _reshape(shape: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[Step, ...]:
    return () if shape == wanted else (("Reshape", wanted),)


def _merged(runs: Iterable[_Run]) -> _Axis:
    """Return runs, with those that continue each other as one."""
    found: list[_Run] = []
    for step, size in runs:
        if found and found[-1][0] == step * size:
            found[-1] = (step, found[-1][1] * size)
        else:
            found.append((step, size))
    return tuple(found)


def _regrouped(runs: Sequence[_Run], shape: Sequence[int]) -> list[_Axis] | None:
    """Return the axes of a Reshape, of which some take a part of a run; None where one takes parts that
    do not divide it."""
    rest, found = list(reversed(_merged(runs))), list[_Axis]()
    for extent in shape:
        axis: list[_Run] = []
        while extent > 1:
            step, size = rest.pop()
            taken = math.gcd(size, extent)
            if taken == 1 or taken not in (size, extent):
                return None
            axis.append((step * (size // taken), taken))
            if taken < size:
                rest.append((step, size // taken))
            extent //= taken
        found.append(tuple(axis))
    return found


def _matched(source: Sequence[_Axis], axes: Sequence[_Axis]) -> tuple[int, ...] | None:
    """Return the axis of the source that each axis is; None where one is none of them, or some are missing."""
    if sorted(source) != sorted(axes):
        return None
    ones = (i for i, axis in enumerate(source) if not axis)
    return tuple(source.index(axis) if axis else next(ones) for axis in axes)


def _whole(source: Sequence[_Axis], runs: Sequence[_Run]) -> tuple[int, ...] | None:
    """Return the order of the source's axes in which they are these runs; None where a run has a part of one."""
    order: list[int] = []
    for step, size in runs:
        inside = [i for i, axis in enumerate(source) if axis and step <= axis[0][0] < step * size]
        if (
            math.prod(source[i][0][1] for i in inside) != size
            or not inside
            or source[inside[-1]][0][0] != step
        ):
            return None
        order += inside
    return _with_ones(source, order)


def _with_ones(axes: Sequence[_Axis], order: Sequence[int]) -> tuple[int, ...]:
    """Return an order of the axes of more than one element with the others before what they stood before."""
    found: list[int] = []
    for axis in order:
        ones = axis
        while ones and not axes[ones - 1]:
            ones -= 1
        found += range(ones, axis + 1)
    return (*found, *range(len(found), len(axes)))


__all__ = ["Step", "fewest", "rearranged", "shortened"]
