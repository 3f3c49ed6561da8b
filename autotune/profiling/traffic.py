"""The level of memory that each dispatch of a model touches, by the bytes touched in between.

The reuse distance of a piece of memory is what was touched since its last use (Mattson et al., IBM Systems Journal
1970). A cache of that size or more still has it: an ideal one, so that a real one has no less to move.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from autotune.runtime.image import Binding, ModuleImage

Piece = tuple[int, str, int, int]
"""Image, space, index and first byte: no binding begins or ends inside of it."""


class MemoryTraffic(NamedTuple):
    """Bytes that the kernels of a dispatch may touch, each once a run of it; those of them beyond L2, and those beyond
    L3."""

    nbytes: int
    beyond_l2: int
    beyond_l3: int

    def times(self, runs: int) -> MemoryTraffic:
        """Return the traffic of so many runs."""
        return MemoryTraffic(*(runs * each for each in self))


def traffic(images: Sequence[ModuleImage], l2: float, l3: float) -> list[list[MemoryTraffic]]:
    """Return the traffic of each dispatch of images that run repeatedly in order, with caches of so many bytes."""
    touched = [each for number, image in enumerate(images) for each in _touched(number, image)]
    recent: dict[Piece, int] = {}
    found: list[MemoryTraffic] = []
    for again in (False, True):  # the caches are as the run before left them
        for pieces in touched:
            if again:
                found.append(_of(pieces, recent, l2, l3))
            for piece, nbytes in pieces.items():
                recent.pop(piece, None)
                recent[piece] = nbytes
    rest = iter(found)
    return [[next(rest).times(dispatch.runs) for dispatch in image.dispatches] for image in images]


def _of(pieces: dict[Piece, int], recent: dict[Piece, int], l2: float, l3: float) -> MemoryTraffic:
    beyond_l2 = beyond_l3 = since = found = 0
    for piece in reversed(recent):
        since += recent[piece]
        if piece in pieces:
            found += 1
            beyond_l2 += pieces[piece] * (since > l2)
            beyond_l3 += pieces[piece] * (since > l3)
            if found == len(pieces):
                break
    return MemoryTraffic(sum(pieces.values()), beyond_l2, beyond_l3)


def _touched(number: int, image: ModuleImage) -> list[dict[Piece, int]]:
    """Return the pieces of each dispatch, with their bytes."""
    cuts: dict[tuple[str, int], set[int]] = {}
    for command in image.commands:
        for binding in command.bindings:
            cuts.setdefault((binding.space, binding.index), set()).update(_ends(binding))
    bounds = {place: sorted(each) for place, each in cuts.items()}
    found: list[dict[Piece, int]] = [{} for _ in image.dispatches]
    for command in image.commands:
        for binding in command.bindings:
            begin, end = _ends(binding)
            at = [cut for cut in bounds[binding.space, binding.index] if begin <= cut <= end]
            for low, high in pairwise(at):
                found[command.dispatch][number, binding.space, binding.index, low] = high - low
    return found


def _ends(binding: Binding) -> tuple[int, int]:
    return binding.offset, binding.offset + binding.nbytes


__all__ = ["MemoryTraffic", "Piece", "traffic"]
