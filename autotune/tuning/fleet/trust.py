"""Distrust: what a node says is compared with what its peers of the same target say of the same versions.

A factor on all of a node's times is invisible in ratios, and harmless. What harms is a node whose *ratios* are others
than those of its peers, or that finds other numbers. No speed-up is claimed that one node alone has measured where
there are two: the second one measures the same versions, and where they differ by more than noise, a third one tells.
What a search measures once is of one node, and every so often of a second one, by which liars are found early.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
from numpy.typing import NDArray

from autotune.tuning.fleet.fleet import Fleet

LEAST = 0.08
"""Logs of ratios of two processes differ by no more where nothing is wrong: where arrays happen to lie makes up to 5 %
in each (results/same_code.md)."""
SIGMAS = 6.0
"""Beyond so many times the noise of both nodes, as A/A measurements have it, a difference is none of chance."""
AUDIT = 8
"""After so many measurements that a node alone has made, a peer makes one, too."""
STRIKES = 2
"""After so many measurements that its peers contradict, a node is left out."""

Ratios = NDArray[np.float64]
"""Logs of the ratios of versions over the first, not a number for one that failed."""


@dataclass
class Trust:
    """The opinion of the nodes of a fleet, by their names."""

    fleet: Fleet
    _strikes: dict[str, int] = field(default_factory=dict)
    _alone: dict[str, int] = field(default_factory=dict)
    """Measurements of nodes since a peer has agreed with them."""

    def noise(self, name: str) -> float:
        """Return the noise of a node's ratios by its A/A measurements, at least that of a quiet one."""
        node = next(node for node in self.fleet.nodes.values() if node.name == name)
        return max(LEAST / SIGMAS, node.noise or 0.0)

    def differ(self, one: tuple[str, Ratios], other: tuple[str, Ratios]) -> bool:
        """Return whether two nodes contradict each other about a version."""
        noise = float(np.hypot(self.noise(one[0]), self.noise(other[0])))
        far = np.nan_to_num(np.abs(one[1] - other[1]))  # of what failed on one nothing is said
        return bool(far.max(initial=0.0) > SIGMAS * noise)

    def liars(self, said: Sequence[tuple[str, Ratios]]) -> list[int]:
        """Return the numbers of those that contradict the median of at least three; none of fewer."""
        if len(said) < 3:
            return []
        middle = np.nanmedian(np.array([ratios for _, ratios in said]), axis=0)
        return [n for n, (name, ratios) in enumerate(said) if self.differ((name, ratios), (name, middle))]

    def observe_same_code(self, name: str, ratio: float) -> None:
        """Take the log of an A/A ratio of a node; one whose ratios are far from those of its peers is left out."""
        nodes = {node.name: node for node in self.fleet.nodes.values()}
        nodes[name].same_code.append(ratio)
        if median(map(abs, nodes[name].same_code)) <= LEAST:
            return  # nothing to ask its peers about, of whom there may be a thousand
        others = [abs(r) for node in nodes.values() if node.name != name for r in node.same_code]
        mine = nodes[name].same_code
        if len(mine) >= 3 and len(others) >= 3:
            usual = max(LEAST, SIGMAS * median(others))
            if median(map(abs, mine)) > usual:
                self.fleet.take_out(
                    name,
                    f"the same code differs from itself by {nodes[name].noise:.0%} on it (A/A), and by "
                    f"{np.expm1(median(others)):.0%} on its peers",
                )

    def alone(self, name: str) -> bool:
        """Count a measurement that a node alone has made; return whether a peer is to make it, too."""
        self._alone[name] = self._alone.get(name, 0) + 1
        return self._alone[name] >= AUDIT

    def agree(self, names: Sequence[str]) -> None:
        """Note that nodes agree, where they are several."""
        if len(names) > 1:
            self._alone |= dict.fromkeys(names, 0)

    def strike(self, name: str, what: str) -> None:
        """Note that its peers contradict a node; it is left out when that is not for the first time."""
        for node in self.fleet.nodes.values():
            node.set_aside += node.name == name
        self._strikes[name] = self._strikes.get(name, 0) + 1
        if self._strikes[name] >= STRIKES:
            self.fleet.take_out(name, what)


def logs_of_ratios(whole: Mapping[int, NDArray[np.float64]], count: int) -> Ratios:
    """Return the logs of the ratios of versions by their latencies [rounds], over the first one's."""
    found = np.full(count, np.nan)
    for number, ns in whole.items() if 0 in whole else ():
        rounds = min(len(ns), len(whole[0]))
        found[number] = np.median(np.log(ns[:rounds] / whole[0][:rounds]))
    return found


__all__ = ["AUDIT", "Ratios", "Trust", "logs_of_ratios"]
