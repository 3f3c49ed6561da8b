"""A fleet: measurements wait in one line, and each seat that is ready takes the next that it may have."""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from autotune.distribution import version
from autotune.errors import MeasureError, first_line
from autotune.target import Target
from autotune.tuning.fleet.cluster import Cluster, RemoteSeat, SeatLost
from autotune.tuning.fleet.lanes import JobLanes
from autotune.tuning.fleet.node import FleetNode, NodeState
from autotune.tuning.fleet.signature import Signer

_LOOK_S = 1.0
"""Seconds between two looks at who is in the cluster."""
_PAUSE_S = 3.0
"""Before a seat is made again on a node that lost one."""
_LOSSES = 4
"""A node that is lost so many times one after another is left out."""
_AHEAD = 100
"""The most messages that wait for seats: more would be made of what is known by now, before answers are heeded."""
ATTEMPTS = 4
"""A message that so many seats were lost with is given up."""
PATIENCE_S = 60.0
"""A job without any seat waits so long for one."""
_ADD = "`ray start --address=HEAD:PORT --resources='{\"autotune_seat\": 1}'` adds a seat (docs/fleet.md)"


@dataclass(frozen=True)
class Answered:
    """The answer of a seat, by the name of its node."""

    node: str
    answer: Mapping[str, Any]


@dataclass(eq=False)
class SeatWork:
    """A message that waits for a seat. ``contents`` are handles of files by their digests.

    ``used`` are the nodes that the same measurement was given to. One that is to be ``elsewhere`` goes to another node
    than these, if there is one.
    """

    message: Mapping[str, Any]
    contents: Mapping[str, Any] = field(default_factory=dict)
    used: list[str] = field(default_factory=list)
    elsewhere: bool = False
    future: Future[Answered] = field(default_factory=Future)
    attempts: int = 0


class Fleet:
    """The seats of a cluster for one target, while this is entered.

    ``say`` gets a line when a node joins, is lost or is left out, from any thread. Nodes of another target and of
    another version stay out. Entering raises MeasureError where there is no seat for the target.
    """

    def __init__(
        self,
        cluster: Cluster,
        target: Target,
        job: str,
        say: Callable[[str], None] = lambda text: None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.nodes: dict[str, FleetNode] = {}
        """By their places in the cluster."""
        self.target = target
        self.lanes = JobLanes()
        """A lane that waits for an answer lets the others of the job go on."""
        self._cluster, self._job, self.say = cluster, job, say
        self._patience_s = patience_s
        key = secrets.token_bytes(32)
        self._key, self._signer = key, Signer(key)
        self._changed = threading.Condition()
        self._waiting: deque[SeatWork] = deque()
        self._threads: dict[str, threading.Thread] = {}
        self._closed, self._looked = threading.Event(), threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="autotune-fleet", daemon=True)

    def __enter__(self) -> Self:
        self._watcher.start()
        try:
            self._wait_for_seats()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave all seats; what waits is cancelled."""
        self._closed.set()
        with self._changed:
            for work in self._waiting:
                work.future.cancel()
            self._waiting.clear()
            self._changed.notify_all()
        self._watcher.join()
        for thread in self._threads.values():
            thread.join(timeout=10)
        self._cluster.close()

    @property
    def ready(self) -> list[FleetNode]:
        """Return the nodes that work."""
        return [node for node in [*self.nodes.values()] if node.works]

    @property
    def idle(self) -> int:
        """Return the number of seats for which nothing waits."""
        return sum(node.state is NodeState.IDLE for node in [*self.nodes.values()]) - len(self._waiting)

    def hungry(self, coming: int, part: float = 1.0) -> bool:
        """Return whether seats will soon have nothing to do, though so many messages are being made: one waits for each
        seat, or for a ``part`` of them, so that none of them is idle meanwhile."""
        return len(self._waiting) + coming < part * min(_AHEAD, len(self.ready))

    def put(self, data: bytes) -> object:
        """Return a handle of a file's content for :class:`SeatWork`."""
        return self._cluster.put(data)

    def submit(self, work: SeatWork) -> SeatWork:
        """Have a message answered by the next seat that may have it."""
        with self._changed:
            self._waiting.append(work)
            # Any idle seat may have one that need not be elsewhere.
            self._changed.notify(len(self.nodes) if work.elsewhere else 1)
        return work

    def result(self, work: SeatWork) -> Answered:
        """Return the answer to a message; raises MeasureError where there is no seat any more for minutes, and where
        seats are lost whenever they get it."""
        alone_since: float | None = None
        while True:
            with suppress(NotYet), self.lanes.aside():
                return work.future.result(_LOOK_S)
            alone_since = None if self.ready else alone_since or time.monotonic()
            if alone_since is not None and time.monotonic() - alone_since > self._patience_s:
                raise MeasureError(
                    f"the fleet has no seat any more for {self._patience_s:.0f} s{self._listed()}\n  {_ADD}; "
                    "then the same command goes on from here"
                )

    def take_out(self, name: str, reason: str) -> None:
        """Give a node nothing more, and distrust it; what it has under way goes to another."""
        with self._changed:
            for node in self.nodes.values():
                if node.name == name and node.state is not NodeState.OUT:
                    node.distrusted = True
                    self._leave_out(node, reason)
            self._changed.notify_all()

    def _leave_out(self, node: FleetNode, reason: str) -> None:
        node.leave(NodeState.OUT, reason)
        self.say(f"{node.name} is left out: {reason}")

    def _wait_for_seats(self) -> None:
        """Wait until a seat is ready; raises MeasureError where none can be expected."""
        self._looked.wait()
        begin, said = time.monotonic(), False
        while not self.ready:
            nodes = [*self.nodes.values()]
            refused = [node for node in nodes if node.state is NodeState.OUT]
            hopeless = len(refused) == len(nodes)
            patience = 3 * _LOOK_S if nodes and hopeless else self._patience_s / 4
            if hopeless and time.monotonic() - begin > patience:
                why = self._listed() if nodes else ": no node of the cluster has the resource autotune_seat"
                raise MeasureError(f"the fleet has no seat for {self.target.name}{why}\n  {_ADD}")
            if not hopeless and not said and time.monotonic() - begin > 10:
                self.say("waiting for a seat: another job may have them")
                said = True
            time.sleep(0.05)
        for node in self.nodes.values():
            if node.version and node.version != version():
                raise MeasureError(f"{node.name}: {node.reason}")

    def _listed(self) -> str:
        return "".join(f"\n  {node.name}: {node.reason or node.state}" for node in self.nodes.values())

    def _watch(self) -> None:
        """Serve each place that has come."""
        while not self._closed.is_set():
            try:
                places = self._cluster.places()
            except Exception as error:  # noqa: BLE001 - the head may be away for a while
                self.say(f"the head of the fleet does not answer: {first_line(error)}")
                places = {}
            for place, name in places.items():
                thread = self._threads.get(place)
                node = self.nodes.setdefault(place, FleetNode(name))
                if node.state is not NodeState.OUT and (thread is None or not thread.is_alive()):
                    thread = threading.Thread(target=self._serve, args=(place, node), daemon=True)
                    self._threads[place] = thread
                    thread.start()
            self._looked.set()
            self._closed.wait(_LOOK_S)

    def _serve(self, place: str, node: FleetNode) -> None:
        """Run the thread of a seat until that is lost or left out."""
        if node.state is NodeState.LOST:
            self._closed.wait(_PAUSE_S)
        seat: RemoteSeat | None = None
        node.state = NodeState.STARTING
        try:
            seat = self._cluster.seat(place, self._key, self._job)
            if self._admitted(node, seat.report()):
                while (work := self._next(node)) is not None:
                    self._do(seat, node, work)
        except SeatLost as lost:
            self._lose(node, str(lost))
        finally:
            if seat is not None:
                seat.close()

    def _lose(self, node: FleetNode, reason: str) -> None:
        if not self._closed.is_set() and node.state is not NodeState.OUT:
            node.leave(NodeState.LOST, reason)
            node.losses += 1
            self.say(f"{node.name} is lost: {reason}")
            if node.losses >= _LOSSES:
                self._leave_out(
                    node, f"it was lost {_LOSSES} times without an answer, the last time: {reason}"
                )

    def _admitted(self, node: FleetNode, report: Mapping[str, Any]) -> bool:
        """Return whether a node may measure for the job, by what it says of itself."""
        target = Target.from_json(report["target"])
        node.host, node.target, node.version = str(report["host"]), target.name, str(report["version"])
        node.stolen_s = float(report["stolen_s"])
        with self._changed:
            if node.version != version():
                self._leave_out(
                    node,
                    f"it has version {node.version}, and this process {version()}: install the same on both",
                )
                return False
            if not _serves(target, self.target):
                self._leave_out(node, f"it is another target ({target!r}) than the job's ({self.target!r})")
                return False
            node.join()
        self.say(f"{node.name} measures for this job")
        return True

    def _next(self, node: FleetNode) -> SeatWork | None:
        """Return the next message that a node may have; None when it gets no more."""
        with self._changed:
            node.state = NodeState.IDLE if node.works else node.state
            while not self._closed.is_set() and node.works:
                if (work := self._take(node)) is not None:
                    return work
                self._changed.wait(_LOOK_S)
        return None

    def _take(self, node: FleetNode) -> SeatWork | None:
        """Give a node the next message that it may have, if there is one."""
        for work in self._waiting:
            if self._may_have(node, work):
                self._waiting.remove(work)
                work.used.append(node.name)
                node.state = NodeState.MEASURING
                return work
        return None

    def _may_have(self, node: FleetNode, work: SeatWork) -> bool:
        """Return False for a measurement that is to be elsewhere, while there is such a node."""
        if not work.elsewhere or node.name not in work.used:
            return True
        return all(other.name in work.used for other in self.ready)

    def _do(self, seat: RemoteSeat, node: FleetNode, work: SeatWork) -> None:
        if work.future.cancelled():
            return
        signed, begin = self._signer.sign(work.message), time.monotonic()
        try:
            answer = seat.answer(signed.text, signed.mac, work.contents)
        except SeatLost as lost:
            self._again(work, f"{node.name}: {lost}")
            raise
        node.busy_s += time.monotonic() - begin
        self._answered(node, work, answer)

    def _answered(self, node: FleetNode, work: SeatWork, answer: Mapping[str, Any]) -> None:
        """Hand on the answer of a node, unless it was left out meanwhile."""
        if node.state is NodeState.OUT:
            self._again(work, f"{node.name}: {node.reason}")
            return
        node.measurements, node.losses = node.measurements + 1, 0
        node.stolen_s = float(answer["stolen_s"])
        with suppress(InvalidStateError):  # cancelled meanwhile
            work.future.set_result(Answered(node.name, answer))

    def _again(self, work: SeatWork, lost: str) -> None:
        """Have another seat answer, at once."""
        work.attempts, work.elsewhere = work.attempts + 1, True
        if work.attempts < ATTEMPTS and not self._closed.is_set():
            with self._changed:
                self._waiting.appendleft(work)
                self._changed.notify_all()
            return
        error = MeasureError(f"{ATTEMPTS} seats were lost with the same measurement, the last one {lost}")
        with suppress(InvalidStateError):
            work.future.set_exception(error)


def _serves(node: Target, wanted: Target) -> bool:
    """Return whether a node measures for a target: it is that or, of a level by its name, counts as the level."""
    own = node.with_threads(wanted.threads)
    of_level = wanted.device == "generic" and (own.cpu, own.features) == (wanted.cpu, wanted.features)
    return own.key == wanted.key or of_level


__all__ = ["ATTEMPTS", "PATIENCE_S", "Answered", "Fleet", "SeatWork"]
