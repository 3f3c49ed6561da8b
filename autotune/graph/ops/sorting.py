"""Sorting, as statements of sequential kernels: merge sort, and selection of the first few.

Elements are sorted by keys, integers of 64 bits of which the largest come first. Where a type's key and a place fit
into one integer, that is all there is to an element; keys of 64-bit types travel beside their places. Of equal
elements the one that stands first comes first, and every NaN counts as the first of all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from autotune import te
from autotune.graph.ops.common import Expr, accumulated_in
from autotune.te.dtypes import is_float
from autotune.te.statements import Cell, Steps

_PLACES = 2**32
_WIDE = ("int64", "uint64", "float64")

Element = tuple[Expr, ...]
"""The parts of an element that are moved: its key with its place, or both."""


class Ordering(Protocol):
    """The representation of elements while they are sorted."""

    @property
    def columns(self) -> int: ...

    def before(self, a: Element, b: Element) -> Expr: ...


def sort_key(value: Expr, largest: bool, nan_last: bool = False) -> Expr:
    """Return an integer of 64 bits that is larger the earlier a value comes."""
    if is_float(value.dtype):
        value = te.cast(value, accumulated_in(value.dtype))
        if nan_last and not largest:
            return -1 - te.cast(te.order_key(value), "int64")
        return te.cast(te.order_key(value if largest else -value), "int64")
    if value.dtype == "uint64":  # its upper half is negative as int64
        value = te.cast(value, "int64") + te.const(-(2**63), "int64")
    else:
        value = te.cast(value, "int64")
    return value if largest else -1 - value  # unlike -value it never overflows


@dataclass(frozen=True)
class ByValue:
    """The largest or the least first; key and place are one integer where ``packed``, else beside each other."""

    packed: bool
    largest: bool
    nan_last: bool

    @property
    def columns(self) -> int:
        """Integers of an element."""
        return 1 if self.packed else 2

    def element(self, value: Expr, place: Expr) -> Element:
        """Return the element at a place."""
        key = sort_key(value, self.largest, self.nan_last)
        return (key * _PLACES + (_PLACES - 1 - place),) if self.packed else (key, place)

    def key(self, element: Element) -> Expr:
        """Return a key that is equal for equal values."""
        return element[0] // _PLACES if self.packed else element[0]

    def place(self, element: Element) -> Expr:
        """Return the original place."""
        return _PLACES - 1 - element[0] % _PLACES if self.packed else element[1]

    def before(self, a: Element, b: Element) -> Expr:
        """Return whether one comes before another; of equal values the one that stands first."""
        if self.packed:
            return a[0] > b[0]
        return te.any(a[0] > b[0], te.all(a[0] == b[0], a[1] < b[1]))


@dataclass(frozen=True)
class Reversed:
    """The opposite order."""

    order: Ordering

    @property
    def columns(self) -> int:
        """Integers of an element."""
        return self.order.columns

    def before(self, a: Element, b: Element) -> Expr:
        """Return whether one comes before another."""
        return self.order.before(b, a)


def ordering(dtype: str, largest: bool, *, nan_last: bool = False) -> ByValue:
    """Return the ordering of elements of a type; every NaN comes first, or last where ``nan_last``."""
    return ByValue(dtype not in _WIDE, largest, nan_last)


@dataclass(frozen=True)
class SortedRow:
    """Elements in memory of a kernel: rows of columns."""

    steps: Steps
    tensor: te.Tensor
    row: Expr
    columns: int

    def at(self, position: Expr) -> Element:
        """Return an element, read once."""
        return tuple(self.steps.let(self.tensor(self.row, c, position), f"e{c}") for c in range(self.columns))

    def put(self, position: Expr, element: Sequence[Expr]) -> None:
        """Put an element in its place."""
        for column, part in enumerate(element):
            self.steps.store(self.tensor, (self.row, column, position), part)


def chosen(cond: Expr, a: Element, b: Element) -> Element:
    """Return one of two elements."""
    return tuple(te.if_then_else(cond, x, y) for x, y in zip(a, b, strict=True))


def merge_sort(steps: Steps, how: Ordering, size: int, fill: Callable[[SortedRow], None]) -> SortedRow:
    """Sort ``size`` elements, which ``fill`` stores; bottom-up merges between two rows, in n log n steps.

    Each merge takes the next element of either run without a branch on which it is.
    """
    memory = steps.scratch((2, how.columns, max(size, 1)), name="sorted")
    fill(SortedRow(steps, memory, 0, how.columns))
    width, current = 1, 0
    while width < size:
        _merge_pass(steps, how, size, width, memory, current)
        width, current = 2 * width, 1 - current
    return SortedRow(steps, memory, current, how.columns)


def _merge_pass(steps: Steps, how: Ordering, size: int, width: int, memory: te.Tensor, current: int) -> None:
    """Merge neighbouring runs of ``width`` from row ``current`` into the other one."""
    source, target = (SortedRow(steps, memory, row, how.columns) for row in (current, 1 - current))
    left, right = steps.cell(0, name="left"), steps.cell(0, name="right")
    with steps.loop(-(-size // (2 * width)), "pair") as pair:
        begin = steps.let(pair * (2 * width), "begin")
        middle = steps.let(te.minimum(begin + width, size), "middle")
        end = steps.let(te.minimum(begin + 2 * width, size), "end")
        left.set(begin)
        right.set(middle)
        position = steps.cell(begin, name="position")
        with steps.repeat_while(position.get() < end):
            at, i, j = (steps.let(cell.get(), "at") for cell in (position, left, right))
            a = source.at(te.minimum(i, size - 1))
            b = source.at(te.minimum(j, size - 1))
            first = steps.let(te.all(i < middle, te.any(j >= end, how.before(a, b))), "first")
            target.put(at, chosen(first, a, b))
            step = steps.let(te.cast(first, "int64"), "step")
            left.set(i + step)
            right.set(j + 1 - step)
            position.set(at + 1)


def insert_first(
    steps: Steps, how: Ordering, size: int, count: int, element: Callable[[Expr], Element]
) -> SortedRow:
    """Return the first ``count`` of ``size`` elements in order; for few, which stay in a short list that
    is kept sorted.

    Most elements come after the last of the list, and are passed over by one comparison.
    """
    kept = SortedRow(steps, steps.scratch((1, how.columns, count), name="first"), 0, how.columns)
    with steps.loop(size, "i") as i:
        new = tuple(steps.let(part, "new") for part in element(i))
        held = steps.let(te.minimum(i, count), "held")
        last = kept.at(te.maximum(held - 1, 0))
        with steps.when(te.any(held < count, how.before(new, last))):
            hole = steps.cell(te.minimum(held, count - 1), name="hole")
            above = kept.at(te.maximum(hole.get() - 1, 0))
            moves = steps.cell(te.cast(te.all(hole.get() > 0, how.before(new, above)), "int64"), name="moves")
            with steps.repeat_while(moves.get() > 0):
                at = steps.let(hole.get() - 1, "at")
                kept.put(at + 1, kept.at(at))
                hole.set(at)
                above = kept.at(te.maximum(at - 1, 0))
                moves.set(te.cast(te.all(at > 0, how.before(new, above)), "int64"))
            kept.put(hole.get(), new)
    return kept


def select_first(
    steps: Steps, how: Ordering, size: int, count: int, element: Callable[[Expr], Element]
) -> SortedRow:
    """Return the first ``count`` of ``size`` elements in order, by a heap whose root comes last: n log
    count steps at most."""
    heap = SortedRow(steps, steps.scratch((1, how.columns, count), name="heap"), 0, how.columns)
    with steps.loop(count, "i") as i:
        heap.put(i, element(i))
    with steps.loop(count // 2, "node") as node:
        start = steps.let(count // 2 - 1 - node, "start")
        sink(steps, how, heap, count, start, heap.at(start))
    with steps.loop(size - count, "rest") as rest:
        new = tuple(steps.let(part, "new") for part in element(rest + count))
        with steps.when(how.before(new, heap.at(0))):
            sink(steps, how, heap, count, 0, new)

    def fill(row: SortedRow) -> None:
        with steps.loop(count, "i") as i:
            row.put(i, heap.at(i))

    return merge_sort(steps, how, count, fill)


def sink(steps: Steps, how: Ordering, heap: SortedRow, count: Expr, start: Expr, new: Element) -> None:
    """Put an element in the place of node ``start`` of a heap, whose root comes last of ``count``, or below it.

    A child that comes later moves up instead.
    """
    node, goes_on = steps.cell(start, name="node"), steps.cell(1, name="goes_on")
    with steps.repeat_while(te.all(goes_on.get() > 0, node.get() * 2 + 1 < count)):
        at = steps.let(node.get(), "at")
        child, other = steps.let(2 * at + 1, "child"), steps.let(te.minimum(2 * at + 2, count - 1), "other")
        a, b = heap.at(child), heap.at(other)
        left = steps.let(how.before(b, a), "left")
        below = tuple(steps.let(part, "below") for part in chosen(left, a, b))
        with steps.when(how.before(new, below)):
            heap.put(at, below)
            node.set(te.if_then_else(left, child, other))
        with steps.otherwise():
            goes_on.set(0)
    heap.put(node.get(), new)


def pop(steps: Steps, how: Ordering, heap: SortedRow, count: Cell) -> Element:
    """Take the root out of a heap of ``count`` elements, at least one."""
    found = heap.at(0)
    count.add(-1)
    rest = steps.let(count.get(), "rest")
    sink(steps, how, heap, rest, 0, heap.at(rest))
    return found


__all__ = [
    "ByValue",
    "Element",
    "Ordering",
    "Reversed",
    "SortedRow",
    "insert_first",
    "merge_sort",
    "ordering",
    "pop",
    "select_first",
    "sink",
]
