"""Reads of an operation, checked once: its expressions with every index inside of its tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from autotune.errors import InputError
from autotune.te.bounds import IndexAccess, settled_index
from autotune.te.expr import Binary, Cast, Const, Expr, Read, Reduce
from autotune.te.guards import ALWAYS, Cases, cases_of
from autotune.te.intervals import Boxes, Interval, interval
from autotune.te.tensor import ComputeOp, Tensor
from autotune.te.traversal import children, nodes, ordered, rebuild

Unsettled = Mapping[int, Sequence[int]]
"""The dimensions of reads, by the ids of these, whose indices have to be settled."""


@dataclass(frozen=True)
class Lookup:
    """Elements of ``indices`` that all choose an element of ``tensor`` along ``axis``, in every run.

    ``box`` has the first and the last of them along each dimension.
    """

    stage: str
    tensor: Tensor
    axis: int
    indices: Tensor
    box: tuple[Interval, ...]

    def check(self, array: np.ndarray[Any, Any]) -> None:
        """Raise InputError for a wrong index among the elements of ``array``."""
        chosen = array[tuple(slice(low, high + 1) for low, high in self.box)]
        extent = self.tensor.shape[self.axis]
        wrong = chosen[(chosen < -extent) | (chosen >= extent)]
        if wrong.size:
            raise InputError(
                f"index {wrong.flat[0]} is out of range: stage {self.stage} reads {self.tensor.name} at "
                f"{self.indices.name}\n"
                f"  axis {self.axis} has {extent} elements: indices are from {-extent} to {extent - 1}"
            )


@dataclass(frozen=True)
class Checked:
    """An operation's body and epilogue with every index inside, and the indices that can be looked at before a run."""

    body: tuple[Expr, ...]
    epilogue: Expr | None
    lookups: tuple[Lookup, ...]


_KNOWN: WeakKeyDictionary[ComputeOp, Checked] = WeakKeyDictionary()


def checked(op: ComputeOp) -> Checked:
    """Return the operation with its indices settled; raises LoweringError for one that leaves its tensor.

    >>> from autotune import te
    >>> x, i = te.placeholder((9,), name="X"), te.placeholder((4,), "int32", name="I")
    >>> checked(te.compute((6,), lambda k: x[k + 3], name="y").op).body
    (X[k + 3],)
    >>> checked(te.compute((4,), lambda k: x[i[k]], name="y").op).lookups[0].box
    ((0, 3),)
    >>> checked(te.compute((9,), lambda k: x[k + 3], name="y").op)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    autotune.errors.LoweringError: stage y reads X[k + 3] out of bounds: index 0, k + 3, is from 3 to 11, and X has ...
    """
    known = _KNOWN.get(op)
    if known is None:
        known = _KNOWN[op] = _checked(op)
    return known


def boxes_of(op: ComputeOp) -> dict[Expr, Interval]:
    """Return the interval of each axis of an operation."""
    return {axis: (axis.start, axis.start + axis.extent - 1) for axis in op.axis + op.reduce_axis}


def _checked(op: ComputeOp) -> Checked:
    last = None if op.epilogue is None else op.epilogue.body
    boxes = boxes_of(op)
    if any(axis.extent == 0 for axis in op.axis):
        return Checked(op.body, last, ())
    first = op.body[0]
    runs = not any(axis.extent == 0 for axis in op.reduce_axis)
    sources = first.sources if isinstance(first, Reduce) else op.body
    found = Reads(op.name, boxes)
    unsettled = found.unsettled(sources) if runs else {}
    ends = found.unsettled([last]) if last is not None else {}
    body = settled(sources, unsettled)
    if isinstance(first, Reduce) and unsettled:
        body = tuple(Reduce(first.reducer, body, first.axis, n) for n in range(len(op.body)))
    return Checked(
        body if unsettled else op.body,
        None if last is None else settled([last], ends)[0],
        tuple(dict.fromkeys(found.lookups)),
    )


class Reads:
    """Judges the reads of a stage whose variables run over ``boxes``; ``lookups`` are those it came upon."""

    def __init__(self, stage: str, boxes: Boxes) -> None:
        self.stage = stage
        self.boxes = boxes
        self.lookups: list[Lookup] = []

    def unsettled(self, roots: Sequence[Expr], start: Cases = ALWAYS) -> dict[int, list[int]]:
        """Return the dimensions of reads in ``roots`` that have to be settled; raises LoweringError."""
        memo: dict[int, Interval] = {}
        reads = {id(node): node for root in roots for node in nodes(root) if isinstance(node, Read)}
        doubtful = {
            key: dims
            for key, read in reads.items()
            if (dims := [n for n in range(len(read.indices)) if not self._fits(read, n, memo)])
        }
        if not doubtful:
            return {}
        cases = cases_of(roots, start)
        return {
            key: left
            for key, dims in doubtful.items()
            if (left := [n for n in dims if not self._stays(reads[key], n, cases[key])])
        }

    def _fits(self, read: Read, dim: int, memo: dict[int, Interval]) -> bool:
        low, high = interval(read.indices[dim], self.boxes, memo)
        return low >= 0 and high < read.tensor.shape[dim]

    def _stays(self, read: Read, dim: int, cases: Cases) -> bool:
        """Return whether an index stays inside wherever it is read."""
        access = IndexAccess(self.stage, "reads", read.tensor, read.indices, dim, read.indices[dim])
        stays = access.verdict(cases, self.boxes) == "inside"
        if not stays and ALWAYS[0] in cases:
            self._look_up(read, dim)
        return stays

    def _look_up(self, read: Read, dim: int) -> None:
        """Note an index that is itself an element, each of which is read in every run."""
        index = read.indices[dim]
        while isinstance(index, Cast) and index.dtype == "int64" and index.a.dtype == "int32":
            index = index.a
        if not isinstance(index, Read) or index.dtype not in ("int32", "int64"):
            return
        sides = [_side(part, self.boxes) for part in index.indices]
        variables = [var for var, _ in sides if var is not None]
        if len(set(variables)) == len(variables) and all(box is not None for _, box in sides):
            box = tuple(box for _, box in sides if box is not None)
            self.lookups.append(Lookup(self.stage, read.tensor, dim, index.tensor, box))


def _side(index: Expr, boxes: Boxes) -> tuple[Expr | None, Interval | None]:
    """Return the variable of an index, a constant apart, and the interval of which it takes every value."""
    rest = index
    if isinstance(index, Binary) and index.op in ("+", "-") and isinstance(index.b, Const):
        rest = index.a
    if isinstance(index, Const):
        return None, interval(index, boxes)
    return (rest, interval(index, boxes)) if rest in boxes else (None, None)


def settled(roots: Sequence[Expr], unsettled: Unsettled) -> tuple[Expr, ...]:
    """Return the expressions with some indices settled where they are read; shared parts stay shared."""
    if not unsettled:
        return tuple(roots)
    new: dict[int, Expr] = {}
    for node in ordered(roots, children):
        parts = tuple(new[id(part)] for part in children(node))
        if isinstance(node, Read) and id(node) in unsettled:
            dims = unsettled[id(node)]
            shape = node.tensor.shape
            parts = tuple(settled_index(p, shape[n]) if n in dims else p for n, p in enumerate(parts))
        new[id(node)] = rebuild(node, parts)
    return tuple(new[id(root)] for root in roots)


__all__ = ["Checked", "Lookup", "Reads", "boxes_of", "checked", "settled"]
