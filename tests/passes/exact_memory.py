"""The least memory that values need, by branch and bound: what the plans of small cases are compared with.

In an arena of the least size every value can be moved down until it lies on another one that is live with it, or at 0.
Placed in the order of their offsets, each then lies on the highest of those before it that are live with it: all orders
are tried, but those that are not better than one that was found.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.passes.memory.plan_memory import Lifetime, align, lower_bound


def least_bytes(values: Sequence[Lifetime]) -> int:
    """The size of the smallest arena; takes seconds for more than ten values."""
    bound = lower_bound(values)
    best = sum(align(v.nbytes) for v in values)

    def place(
        placed: tuple[tuple[Lifetime, int], ...], rest: tuple[Lifetime, ...], size: int, at: int
    ) -> None:
        nonlocal best
        if size >= best or best == bound:
            return
        if not rest:
            best = size
            return
        for index, value in enumerate(rest):
            offset = max((end for other, end in placed if _together(value, other)), default=0)
            if offset < at:
                continue  # its turn was before: the same plan in another order
            end = offset + align(value.nbytes)
            place((*placed, (value, end)), rest[:index] + rest[index + 1 :], max(size, end), offset)

    place((), tuple(v for v in values if v.nbytes), 0, 0)
    return best


def _together(a: Lifetime, b: Lifetime) -> bool:
    return a.first <= b.last and b.first <= a.last
