"""Results in the memory of operands that nobody reads any more: which values may share, and plans where they do.

What a dispatch may do follows from its code (:mod:`autotune.lower.overwriting`); here it is decided for which values it
does. Sharing makes one step of a chain of values out of two, so that no more of them live at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from autotune.passes.memory.plan_memory import Lifetime, MemoryPlan, align
from autotune.passes.partition import Dispatch, Partition

Pairs: TypeAlias = Iterable[tuple[str, str]]
"""A result and an operand of a dispatch that may be the same memory."""


def taken_memory(
    parts: Partition, lifetimes: Sequence[Lifetime], pairs: Callable[[Dispatch], Pairs]
) -> dict[str, str]:
    """Return the roots whose memory may be that of another one, which is read for the last time when
    they are written first.

    A root is taken by one other at most. Memory that steps of a loop write again and again is not shared.
    """
    known = {value.name: value for value in lifetimes}
    again = {parts.placements[value].root for value in parts.versions}
    found: dict[str, str] = {}
    for step, dispatch in enumerate(parts.dispatches):
        for result, operand in () if dispatch.repeats else pairs(dispatch):
            new, old = (parts.placements[value] for value in (result, operand))
            if new.root not in known or old.root not in known or new.offset != old.offset:
                continue
            after, before = known[new.root], known[old.root]
            fits = align(after.nbytes) == align(before.nbytes)
            follows = before.last == step == after.first
            alone = _of_root(parts, dispatch.reads, old.root) == [operand]
            alone = alone and _of_root(parts, dispatch.outputs, new.root) == [result]
            free = new.root not in found and old.root not in found.values()
            if fits and follows and alone and free and not again & {new.root, old.root}:
                found[new.root] = old.root
    return found


def _of_root(parts: Partition, values: Sequence[str], root: str) -> list[str]:
    return [value for value in values if parts.placements[value].root == root]


def chains(lifetimes: Sequence[Lifetime], taken: Mapping[str, str]) -> list[Lifetime]:
    """Return values that share memory as one that lives from the first to the last, under the name of the first."""
    found: dict[str, Lifetime] = {}
    for value in sorted(lifetimes, key=lambda value: value.first):
        first = first_of(value.name, taken)
        before = found.get(first, value)
        found[first] = Lifetime(
            first, max(before.nbytes, value.nbytes), before.first, max(before.last, value.last)
        )
    return list(found.values())


def unfolded(plan: MemoryPlan, lifetimes: Sequence[Lifetime], taken: Mapping[str, str]) -> MemoryPlan:
    """Return the plan of chains as one of all values."""
    offsets = {value.name: plan.offsets[first_of(value.name, taken)] for value in lifetimes}
    return replace(plan, lifetimes=tuple(lifetimes), offsets=offsets, taken=dict(taken))


def first_of(name: str, taken: Mapping[str, str]) -> str:
    """Return the value whose memory it was first."""
    while name in taken:
        name = taken[name]
    return name


__all__ = ["Pairs", "chains", "first_of", "taken_memory", "unfolded"]
