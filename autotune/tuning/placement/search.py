"""The search for a placement: iterated local search over the devices of a model's units.

An estimate takes milliseconds, has no noise, and changes little with one unit; there are devices ** units placements.
So neighbours are walked, from all of the model on each device, while one is better, and again from the best after a few
random moves (Lourenço, Martin and Stützle, "Iterated Local Search", 2003). Optuna's samplers learn each parameter from
what trials read, and need many more trials than that to move a stage of forty units; here is nothing to be learnt.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from autotune.tuning.placement.costs import Placing

Move = tuple[tuple[int, ...], int]
"""Units, and the device that they go to."""
_KICKS = 3
"""Random moves away from the best placement, before the next walk."""


@dataclass(frozen=True)
class SearchedPlacement:
    """A placement and its estimate."""

    placing: Placing
    seconds: float


def search_placements(
    estimate: Callable[[Placing], float],
    ops: tuple[str, ...],
    devices: int,
    *,
    starts: Sequence[Placing] = (),
    seed: int = 0,
    evaluations: int = 400,
) -> list[SearchedPlacement]:
    """Return placements of units with these operators, the best first, with those of all on one device among them.

    It begins with those, and with further ``starts``. At most so many ``evaluations``, and one of each beginning.
    """
    return _Search(estimate, ops, devices, starts, seed, evaluations).run()


class _Search:
    def __init__(
        self,
        estimate: Callable[[Placing], float],
        ops: tuple[str, ...],
        devices: int,
        starts: Sequence[Placing],
        seed: int,
        evaluations: int,
    ) -> None:
        self.estimate = estimate
        self.ops = ops
        self.devices = devices
        self.starts = [*((device,) * len(ops) for device in range(devices)), *starts]
        self.random = random.Random(seed)
        self.left = evaluations
        self.known: dict[Placing, float] = {}

    def run(self) -> list[SearchedPlacement]:
        for start in self.starts:
            self.known[start] = self.estimate(start)
        moves = self._moves()
        for start in sorted(self.starts, key=self.known.__getitem__):
            self._walk(start, moves)
        while self.left > 0 and moves:
            at = min(self.known, key=self.known.__getitem__)
            before = len(self.known)
            for _ in range(_KICKS):
                at = _moved(at, self.random.choice(moves))
            self._walk(at, moves)
            if len(self.known) == before:
                self.left -= 1  # all of it was known: small models have few placements
        ranked = sorted(self.known.items(), key=lambda item: item[1])
        return [SearchedPlacement(placing, seconds) for placing, seconds in ranked]

    def _walk(self, at: Placing, moves: list[Move]) -> None:
        """Take the first neighbour that is better, in random order, until there is none."""
        now, improved = self._seconds(at), True
        while improved:
            improved = False
            for move in self.random.sample(moves, len(moves)):
                to = _moved(at, move)
                if to != at and (found := self._seconds(to)) < now:
                    at, now, improved = to, found, True

    def _seconds(self, placing: Placing) -> float:
        if placing not in self.known:
            if self.left <= 0:
                return math.inf
            self.left -= 1
            self.known[placing] = self.estimate(placing)
        return self.known[placing]

    def _moves(self) -> list[Move]:
        return [(units, device) for units in dict.fromkeys(self._groups()) for device in range(self.devices)]

    def _groups(self) -> Iterator[tuple[int, ...]]:
        """Yield the units that move together: a unit, all of an operator, a first or last stage."""
        count = len(self.ops)
        yield from ((unit,) for unit in range(count))
        for op in dict.fromkeys(self.ops):
            yield tuple(unit for unit in range(count) if self.ops[unit] == op)
        for cut in range(1, count):
            yield tuple(range(cut))
            yield tuple(range(cut, count))


def _moved(placing: Placing, move: Move) -> Placing:
    units, device = move
    found = list(placing)
    for unit in units:
        found[unit] = device
    return tuple(found)


__all__ = ["SearchedPlacement", "search_placements"]
