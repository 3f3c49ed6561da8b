"""The order of dispatches: the model's own, or one in which workers find something to do beside each other.

Branches of a model depend on one another only where they meet. In the model's own order one comes after the other, and
at the end of each dispatch workers wait for whoever has its last tiles. List scheduling (Hu, 1961: longest way to the
end first) that alternates between branches gives them other work meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Literal, TypeAlias

from autotune.passes.memory.plan_memory import Lifetime
from autotune.passes.partition import Dispatch, ElementRange, Partition
from autotune.passes.repetition import ranges_of_repeats, whole_repeats

Aim: TypeAlias = Literal["memory", "concurrency"]


def in_order(parts: Partition, threads: int, aim: Aim = "concurrency") -> Partition:
    """Return the dispatches in their order for so many workers; as they are where that was decided before.

    One worker has nobody to run beside, and the model's own order takes the least memory.
    """
    if parts.order != "given":
        return parts
    if threads == 1 or aim == "memory":
        return replace(parts, order="memory")
    units = whole_repeats(parts.dispatches)
    order = _alternating(_needs_of_units(units, _needs(parts)))
    dispatches = tuple(parts.dispatches[n] for unit in order for n in units[unit])
    return replace(parts, order="concurrency", dispatches=dispatches)


def extended(parts: Partition, lifetimes: Sequence[Lifetime]) -> list[Lifetime]:
    """Return lifetimes up to the last dispatch that may begin before the last one that uses a value is done."""
    needed = [max(needs, default=-1) + 1 for needs in _needs(parts)]
    for _, steps in ranges_of_repeats(parts.dispatches):  # which nothing around runs beside
        for border in (steps.start, steps.stop):
            needed[border : border + 1] = [border] * len(needed[border : border + 1])
    done = list(accumulate(needed, max))
    found = []
    for lifetime in lifetimes:
        last = lifetime.last
        while last + 1 < len(done) and done[last + 1] <= lifetime.last:
            last += 1
        found.append(replace(lifetime, last=last))
    return found


def _needs_of_units(units: Sequence[range], needs: Sequence[set[int]]) -> list[set[int]]:
    """Return for each unit of dispatches those before it that it needs."""
    unit_of = {number: index for index, unit in enumerate(units) for number in unit}
    found = ({unit_of[needed] for number in unit for needed in needs[number]} for unit in units)
    return [each - {index} for index, each in enumerate(found)]


def _alternating(needs: Sequence[set[int]]) -> list[int]:
    """Return an order that alternates: of those that can run first one that does not need the last, with
    most to come after."""
    levels, users = [1] * len(needs), [list[int]() for _ in needs]
    for number in reversed(range(len(needs))):
        for needed in needs[number]:
            users[needed].append(number)
            levels[needed] = max(levels[needed], levels[number] + 1)
    left = [len(each) for each in needs]
    ready, order = [number for number, count in enumerate(left) if not count], list[int]()
    while ready:
        last = order[-1] if order else -1
        chosen = min(ready, key=lambda n: (last in needs[n], -levels[n], n))
        ready.remove(chosen)
        order.append(chosen)
        for user in users[chosen]:
            left[user] -= 1
            if not left[user]:
                ready.append(user)
    return order


def _needs(parts: Partition) -> list[set[int]]:
    """Return for each dispatch those before it that write what it reads or writes, or read what it writes, or that run
    only where it does not.

    One that another of them needs may be left out: so it takes no square of the steps of a loop, which all use the same
    memory and follow from one another.
    """
    reads = [[parts.swept(v) for v in d.reads if _changes(parts, v)] for d in parts.dispatches]
    writes = [[parts.swept(v) for v in d.outputs] for d in parts.dispatches]
    users: dict[str, list[int]] = {}
    masks, written = dict[str, int](), dict[str, int]()  # users as bits, and the last that writes
    before, found = list[int](), list[set[int]]()  # all that come before each, as bits
    for number in range(len(parts.dispatches)):
        roots = {each.root for each in (*reads[number], *writes[number])}
        needed, covered = set[int](), 0
        for root in sorted(roots, key=lambda root: (-written.get(root, -1), root)):
            for other in reversed(users.get(root, [])):
                if not masks[root] & ~covered:
                    break
                if not covered >> other & 1 and (
                    _exclusive(parts.dispatches[other], parts.dispatches[number])
                    or _conflict(other, number, reads, writes)
                ):
                    needed.add(other)
                    covered |= before[other] | 1 << other
        found.append(needed)
        before.append(covered)
        for root in roots:
            users.setdefault(root, []).append(number)
            masks[root] = masks.get(root, 0) | 1 << number
        written |= {each.root: number for each in writes[number]}
    return found


def _conflict(
    one: int, other: int, reads: Sequence[Sequence[ElementRange]], writes: Sequence[Sequence[ElementRange]]
) -> bool:
    pairs = ((writes[one], writes[other]), (writes[one], reads[other]), (reads[one], writes[other]))
    return any(a.meets(b) for some, others in pairs for a in some for b in others)


def _exclusive(one: Dispatch, other: Dispatch) -> bool:
    """Return whether at most one of two dispatches runs: one behind the other they take memory once."""
    mine = {(each.value, each.wanted) for each in one.conditions}
    return any((each.value, not each.wanted) in mine for each in other.conditions)


def _changes(parts: Partition, value: str) -> bool:
    return parts.placements[value].root not in parts.constants


__all__ = ["Aim", "extended", "in_order"]
