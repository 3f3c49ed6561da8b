"""Machines that fail while a job runs: nodes are killed and frozen at random, and others come in their place."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from results.bench.fleet.nodes import RayNode, RayNodes

_FROZEN_S = (5.0, 40.0)
"""A frozen node goes on after a time between these: before and after it is given up."""


@dataclass
class Faults:
    """Kills and freezes ``count`` nodes, spread over so many candidates, as :meth:`measured` hears of them.

    A frozen node goes on after a while or, where Ray has given it up meanwhile, is replaced as a killed one is. Nodes
    are started in the thread that calls, as Ray's end with it.
    """

    cluster: RayNodes
    count: int
    candidates: int
    seed: int
    say: Callable[[str], None]
    done: Counter[str] = field(default_factory=Counter)
    _measured: int = 0
    _thawed: list[RayNode] = field(default_factory=list)
    _timers: list[threading.Timer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def measured(self) -> None:
        """Hear of one more candidate, and have a machine fail where it is time for one."""
        self._measured += 1
        while self._thawed:
            self._go_on(self._thawed.pop())
        due = self._measured * (self.count + 1) // self.candidates
        if sum(self.done.values()) < min(self.count, due):
            self._fail()

    def _fail(self) -> None:
        running = [node for node in self.cluster.nodes if not node.frozen]
        node = self._random.choice(running)
        how = "frozen" if self._random.random() < 0.5 and len(running) > 2 else "killed"
        self.done[how] += 1
        self.say(f"fault {sum(self.done.values())}: {how} {node.kind} {node.id}")
        if how == "killed":
            self._replace(node)
            return
        node.freeze()
        timer = threading.Timer(self._random.uniform(*_FROZEN_S), self._thaw, (node,))
        self._timers.append(timer)
        timer.start()

    def _thaw(self, node: RayNode) -> None:
        node.thaw()
        self._thawed.append(node)

    def _go_on(self, node: RayNode) -> None:
        if not self.cluster.lives(node):
            self._replace(node)

    def _replace(self, node: RayNode) -> None:
        self.cluster.kill(node)
        self.cluster.add(node.kind, **node.settings)

    def close(self) -> None:
        """Have all nodes go on."""
        for timer in self._timers:
            timer.join()


__all__ = ["Faults"]
