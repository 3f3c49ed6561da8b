"""Static memory planning: an offset in one arena for every value that lives between dispatches.

Packing intervals into the least memory is NP-hard, so several greedy orders compete and the best
result is kept: by size and by breadth as in Pisarchyk and Lee, "Efficient Memory Management for
Deep Neural Net Inference" (2020), by length of life and by area. While the best is above the lower
bound (the most bytes live at one step) deterministic perturbations of it are tried too.
"""

from __future__ import annotations

import math
import random
from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING

from autotune.errors import InternalError
from autotune.passes.repetition import whole_repeats
from autotune.rounding import round_up

if TYPE_CHECKING:
    from autotune.passes.partition import Partition

ALIGNMENT = 64
"""Bytes; a cache line and the widest vector."""
MOST_PERTURBATIONS = 1024
"""Of a plan that is above the lower bound; a densenet121 needs some hundred. Fewer, but 64 or more, for many values."""
_PERTURBATION_WORK = 40_000_000  # perturbations times values squared: a third of a second
_PERTURBED_VALUES = 512  # above this many values a perturbation costs more than it wins


@dataclass(frozen=True)
class Lifetime:
    """A value of ``nbytes`` that is live from step ``first`` to step ``last``, both included."""

    name: str
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True)
class MemoryPlan:
    """Offsets in bytes of all values; ``lower_bound`` is the most bytes live at any step.

    ``taken`` has for values whose memory is that of another one, which ends where they begin, that one.
    """

    lifetimes: tuple[Lifetime, ...]
    offsets: Mapping[str, int]
    arena_bytes: int
    lower_bound: int
    heuristic: str
    taken: Mapping[str, str] = field(default_factory=dict)

    def render(self, columns: int = 64) -> str:
        """Return a picture of the plan: a row a value, a column a step (or several), largest offset last.

        >>> print(plan_memory([Lifetime("a", 64, 0, 1), Lifetime("b", 128, 1, 2)]).render())
        arena 192 bytes, at least 192 needed (1.00x), packed by size
        offset   bytes  steps  live
             0     128    1-2   ##  b
           128      64    0-1  ##   a
        """
        return _render(self, columns)


def value_lifetimes(parts: Partition) -> list[Lifetime]:
    """Return the values that live between the dispatches of a partition, from the first that writes to the last that
    reads, and in all of a repeat; inputs, outputs and constants have memory of their own."""
    known = {*parts.inputs, *parts.constants, *(parts.placements[name].root for name in parts.outputs)}
    spans: dict[str, tuple[int, int]] = {}
    for steps in whole_repeats(parts.dispatches):
        for dispatch in (parts.dispatches[step] for step in steps):
            for value in (*dispatch.reads, *dispatch.outputs):
                root = parts.placements[value].root
                if root not in known:
                    spans[root] = (spans.get(root, (steps[0],))[0], steps[-1])
    return [Lifetime(root, parts.root_nbytes(root), *span) for root, span in spans.items()]


def align(nbytes: int) -> int:
    """Return ``nbytes`` rounded up to the alignment of the arena.

    >>> align(1), align(64), align(65)
    (64, 64, 128)
    """
    return round_up(nbytes, ALIGNMENT)


def plan_memory(lifetimes: Iterable[Lifetime]) -> MemoryPlan:
    """Place every value so that no two that are live together overlap; the best of several orders.

    Offsets are multiples of 64 bytes.

    Raises:
        InternalError: a lifetime ends before it begins or a name is used twice.
    """
    values = tuple(lifetimes)
    _check(values)
    bound = lower_bound(values)
    best: tuple[int, str, dict[str, int]] | None = None
    for name, order in _ORDERS.items():
        ordered = order(values)
        size, offsets = _place(ordered)
        if best is None or size < best[0]:
            best, best_order = (size, name, offsets), ordered
        if size == bound:
            break
    assert best is not None
    if bound < best[0] and len(values) <= _PERTURBED_VALUES:
        best = _perturb(best, best_order, bound)
    return MemoryPlan(values, best[2], best[0], bound, best[1])


def lower_bound(lifetimes: Sequence[Lifetime]) -> int:
    """Return the most bytes, aligned, that are live at one step: no plan needs fewer."""
    changes: dict[int, int] = {}
    for value in lifetimes:
        changes[value.first] = changes.get(value.first, 0) + align(value.nbytes)
        changes[value.last + 1] = changes.get(value.last + 1, 0) - align(value.nbytes)
    live = most = 0
    for step in sorted(changes):
        live += changes[step]
        most = max(most, live)
    return most


def _check(lifetimes: Sequence[Lifetime]) -> None:
    if len({value.name for value in lifetimes}) != len(lifetimes):
        raise InternalError("a value has two lifetimes in the memory plan")
    for value in lifetimes:
        if value.last < value.first or value.nbytes < 0:
            raise InternalError(f"impossible lifetime in the memory plan: {value}")


def _place(ordered: Sequence[Lifetime], limit: float = math.inf) -> tuple[int, dict[str, int]]:
    """Put each value into the smallest gap that fits between those it is live with.

    Gives up above ``limit`` bytes: the size returned is above it then, too, and offsets are missing.
    """
    offsets: dict[str, int] = {}
    placed: list[tuple[int, int, Lifetime]] = []  # (begin, end, value), sorted by begin
    size = 0
    for value in ordered:
        needed = align(value.nbytes)
        offset = _smallest_gap(placed, value, needed)
        offsets[value.name] = offset
        insort(placed, (offset, offset + needed, value), key=itemgetter(0))
        size = max(size, offset + needed)
        if size > limit:
            break
    return size, offsets


def _smallest_gap(placed: Sequence[tuple[int, int, Lifetime]], value: Lifetime, needed: int) -> int:
    best_offset, best_gap = -1, 0
    end, first, last = 0, value.first, value.last
    for begin, other_end, other in placed:
        if other.last < first or last < other.first:
            continue
        gap = begin - end
        if gap >= needed and (best_offset < 0 or gap < best_gap):
            best_offset, best_gap = end, gap
        end = max(end, other_end)
    return end if best_offset < 0 else best_offset


def _perturb(
    best: tuple[int, str, dict[str, int]], order: Sequence[Lifetime], bound: int
) -> tuple[int, str, dict[str, int]]:
    """Return the hill climbing on the order: move one random value to a random place."""
    rng = random.Random(0)
    current = list(order)
    for _ in range(max(64, min(MOST_PERTURBATIONS, _PERTURBATION_WORK // len(order) ** 2))):
        candidate = list(current)
        candidate.insert(rng.randrange(len(current)), candidate.pop(rng.randrange(len(current))))
        size, offsets = _place(candidate, limit=best[0])
        if size <= best[0]:
            current = candidate
        if size < best[0]:
            best = (size, best[1].removesuffix(", perturbed") + ", perturbed", offsets)
        if best[0] == bound:
            break
    return best


def _by_size(values: Sequence[Lifetime]) -> list[Lifetime]:
    return sorted(values, key=lambda v: (-v.nbytes, v.first, v.name))


def _by_length(values: Sequence[Lifetime]) -> list[Lifetime]:
    return sorted(values, key=lambda v: (v.first - v.last, -v.nbytes, v.name))


def _by_area(values: Sequence[Lifetime]) -> list[Lifetime]:
    return sorted(values, key=lambda v: (-v.nbytes * (v.last - v.first + 1), v.first, v.name))


def _by_start(values: Sequence[Lifetime]) -> list[Lifetime]:
    return sorted(values, key=lambda v: (v.first, -v.nbytes, v.name))


def _by_breadth(values: Sequence[Lifetime]) -> list[Lifetime]:
    """Return steps in order of the bytes live there, most first; within a step by size."""
    steps = sorted({value.first for value in values})
    live = {s: [v for v in values if v.first <= s <= v.last] for s in steps}
    steps.sort(key=lambda s: (-sum(align(v.nbytes) for v in live[s]), s))
    ordered: dict[str, Lifetime] = {}
    for step in steps:
        for value in _by_size(live[step]):
            ordered.setdefault(value.name, value)
    return list(ordered.values())


_ORDERS: Mapping[str, Callable[[Sequence[Lifetime]], list[Lifetime]]] = {
    "size": _by_size,
    "breadth": _by_breadth,
    "area": _by_area,
    "length of life": _by_length,
    "start": _by_start,
}


def _render(plan: MemoryPlan, columns: int) -> str:
    ratio = plan.arena_bytes / plan.lower_bound if plan.lower_bound else 1.0
    lines = [
        f"arena {plan.arena_bytes} bytes, at least {plan.lower_bound} needed ({ratio:.2f}x), "
        f"packed by {plan.heuristic}",
        "offset   bytes  steps  live",
    ]
    steps = 1 + max((value.last for value in plan.lifetimes), default=0)
    per_column = -(-steps // columns)
    for value in sorted(plan.lifetimes, key=lambda v: (plan.offsets[v.name], v.first)):
        cells = "".join(
            "#" if value.first < s + per_column and s <= value.last else " "
            for s in range(0, steps, per_column)
        )
        span = f"{value.first}-{value.last}"
        name = f"{value.name}, over {plan.taken[value.name]}" if value.name in plan.taken else value.name
        lines.append(f"{plan.offsets[value.name]:>6} {value.nbytes:>7} {span:>6}  {cells}  {name}")
    return "\n".join(lines)


__all__ = [
    "ALIGNMENT",
    "Lifetime",
    "MemoryPlan",
    "align",
    "lower_bound",
    "plan_memory",
    "value_lifetimes",
]
