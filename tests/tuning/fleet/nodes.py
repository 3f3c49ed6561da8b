"""A cluster in this process whose seats measure nothing: they say what a test has them say."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.distribution import version
from autotune.target import Target
from autotune.tuning.fleet.cluster import SeatLost
from autotune.tuning.fleet.signature import Signed, Signer

TARGET = Target.parse("x86-64-v3", 1)
Message = dict[str, Any]


def measured(message: Message) -> dict[str, Any]:
    """Find a candidate right."""
    latency = {"n": 5, "min_ns": 100.0, "median_ns": 100.0, "spread_ns": 1.0}
    return {"outcome": "ok", "latency": latency, "error": 0.0, "message": "", "details": ""}


def wrong(message: Message) -> dict[str, Any]:
    """Find other numbers in everything."""
    return {
        "outcome": "wrong_result",
        "latency": None,
        "error": 1.0,
        "message": "relative error 1",
        "details": "",
    }


def turns(*ratios: float) -> Callable[[Message], dict[str, Any]]:
    """Return what has versions take these multiples of the first one, and the first one again at last."""

    def answer(message: Message) -> dict[str, Any]:
        rounds = message["rounds"]["most"]
        ns = [[[100.0 * ratio]] * rounds for ratio in (1.0, *ratios, 1.0)]
        return {"ns": ns, "failures": {}, "took_s": (1.0, 0.0)}

    return answer


@dataclass
class FakeNode:
    """A node: what it answers, and how it is lost; ``heard`` are the messages that it has answered."""

    answer: Callable[[Message], dict[str, Any]] = measured
    target: Target = TARGET
    version: str = field(default_factory=version)
    lost_after: int | None = None
    heard: list[Message] = field(default_factory=list)


class FakeSeat:
    """The seat of a node."""

    def __init__(self, node: FakeNode, key: bytes) -> None:
        self._node, self._signer = node, Signer(key)

    def report(self) -> dict[str, Any]:
        """Return what the node is."""
        return {
            "host": "here",
            "version": self._node.version,
            "target": self._node.target.to_json(),
            "calibration": {},
            "stolen_s": 0.0,
        }

    def answer(self, text: str, mac: str, contents: Mapping[str, Any]) -> dict[str, Any]:
        """Answer, or be lost."""
        message = self._signer.opened(Signed(text, mac))
        assert json.dumps(message)
        if self._node.lost_after is not None and len(self._node.heard) >= self._node.lost_after:
            raise SeatLost("it was killed")
        self._node.heard.append(message)
        return {**self._node.answer(message), "stolen_s": 0.0}

    def close(self) -> None:
        """Leave nothing."""


class FakeCluster:
    """Nodes by their names; more may join."""

    def __init__(self, **nodes: FakeNode) -> None:
        self.nodes = nodes
        self.closed = threading.Event()

    def places(self) -> dict[str, str]:
        """Return all nodes."""
        return {name: name for name in [*self.nodes]}

    def seat(self, place: str, key: bytes, job: str) -> FakeSeat:
        """Return the seat of a node."""
        return FakeSeat(self.nodes[place], key)

    def put(self, data: bytes) -> object:
        """Keep the data itself."""
        return data

    def close(self) -> None:
        """Note that nobody needs it."""
        self.closed.set()


__all__ = ["TARGET", "FakeCluster", "FakeNode", "measured", "turns", "wrong"]
