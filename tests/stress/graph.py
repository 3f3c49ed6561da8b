"""One random graph of dispatches over several devices: built, disturbed, and checked.

A dispatch adds up what others wrote. Where one of those is in memory that its device does not use, a copy brings it
there once, as a submission of its own: it may be cancelled and lose its device as dispatches may.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from autotune.errors import (
    AutotuneError,
    CancelledWorkError,
    DeviceLostError,
    DeviceMemoryError,
    DeviceTimeoutError,
    InputError,
)
from autotune.runtime.hal.buffer import HOST_SPACE, Buffer, host_buffer
from autotune.runtime.hal.command_buffer import CheckIndices, CommandBuffer
from autotune.runtime.hal.queue import Queue, Submission
from autotune.runtime.hal.semaphore import Point, Timeline
from tests.stress.devices import INPUTS, Place

_MOST_DISPATCHES = 200
_MOST_TILES = 2000
_SHOWN = 8


@dataclass
class Totals:
    """Counts of what was run, and what went wrong; ``problems`` must stay empty."""

    graphs: int = 0
    dispatches: int = 0
    tiles: int = 0
    copies: int = 0
    errors: int = 0
    cancelled: int = 0
    lost_devices: int = 0
    refused_allocations: int = 0
    given_up: int = 0
    held_back: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, more: Totals) -> None:
        """Add up both."""
        for name, value in vars(more).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass(eq=False)
class _Node:
    """A dispatch, or a copy of what another wrote: what it reads, where it runs, and what was done to it."""

    name: str
    sources: tuple[int, ...]
    place: Place
    queue: Queue
    output: Buffer
    done: Timeline
    wait: Sequence[Point]
    submission: Submission
    tiles: int
    """0 of a copy."""
    fails: bool = False
    asked_to_stop: bool = False

    @property
    def state(self) -> str:
        """Return a line with what it waits for."""
        missing = [f"{line.name} to reach {value} (at {line.query()})" for line, value in self.wait]
        missing = [
            text for text, (line, value) in zip(missing, self.wait, strict=True) if line.query() < value
        ]
        if self.submission.begin_ns:
            state = "runs"
        else:
            state = (
                "waits for " + ", ".join(missing) if missing else "has all it waits for and does not begin"
            )
        return f"{self.name} in {self.queue.name}: {state}"


class Graph:
    """A graph whose dispatches fail, are cancelled or lose their device with some chance.

    ``steps`` goes up with whatever is over, ``phase`` says what its client is at: so a watchdog sees who waits.
    """

    def __init__(self, rng: random.Random, places: Sequence[Place], chance: float) -> None:
        self._rng = rng
        self._places = places
        self._chance = chance
        self._tiles = rng.randint(1, _MOST_TILES)
        self._start = Timeline("start")
        self._nodes: list[_Node] = []
        self._brought: dict[tuple[int, str], int] = {}
        """The copy of a node's output in another memory space."""
        self._totals = Totals(graphs=1)
        self.steps = 0
        self.phase = "not begun"

    def run(self) -> Totals:
        """Build it, let it go, disturb it, and check all results."""
        for place in self._places:
            self.phase = f"waits to be let in by {place.device.name}"
            self._admit(place)
        self.phase = "submits"
        try:
            self._build(self._rng.randint(1, _MOST_DISPATCHES))
        except DeviceLostError as error:  # by another client: what was submitted must end
            self._start.fail(error.with_traceback(None))  # which would hold this graph and its memory
        else:
            disturbances = self._disturbances()
            self._start.signal(1)
            for disturb in disturbances:
                disturb()
        self._check()
        return self._totals

    def abandon(self, error: DeviceLostError) -> None:
        """Let all of it end."""
        self._start.fail(error)

    @property
    def state(self) -> list[str]:
        """Its client's phase, and what is not over: first what could go on and does not."""
        open_ = [node.state for node in list(self._nodes) if not node.submission.done]
        open_.sort(key=lambda line: "waits for" in line)
        more = [f"and {len(open_) - _SHOWN} more"] if len(open_) > _SHOWN else []
        start = f"start at {self._start.query()}"
        return [f"a graph of {len(self._nodes)} nodes, {start}: {self.phase}", *open_[:_SHOWN], *more]

    # -- building --------------------------------------------------------------------------------------------

    def _admit(self, place: Place) -> None:
        allocator = place.device.allocator
        if self._rng.random() < self._chance:
            try:
                allocator.admit(0.0)
            except DeviceTimeoutError as error:
                self._totals.given_up += 1
                if "held by" not in str(error) or "nobody" in str(error):
                    self._problem(f"a time-out that does not say who holds the memory: {error}")
        allocator.admit()
        self.steps += 1

    def _build(self, count: int) -> None:
        self._zeros = {place: place.device.upload(np.zeros(self._tiles, np.int64)) for place in self._places}
        self._last = {place: place.device.upload(np.array([self._tiles - 1])) for place in self._places}
        if self._rng.random() < 0.2:
            self._refuse(self._rng.choice(self._places))
        dispatches: list[int] = []
        for number in range(count):
            chosen = [self._rng.choice(dispatches) for _ in range(self._rng.randint(0, INPUTS)) if dispatches]
            place = self._rng.choice(self._places)
            sources = [self._readable(source, place) for source in chosen]
            dispatches.append(self._add_dispatch(f"dispatch {number}", place, tuple(sources)))

    def _add_dispatch(self, name: str, place: Place, sources: tuple[int, ...]) -> int:
        output = place.device.allocate(8 * self._tiles, "a graph")
        inputs = [self._nodes[source].output for source in sources]
        inputs += [self._zeros[place]] * (INPUTS - len(inputs))
        fails = self._rng.random() < self._chance
        commands = self._commands(place, [*inputs, output, self._last[place]], fails)
        queue = self._rng.choice(place.queues)
        return self._submit(name, place, queue, commands, sources, output, self._tiles, fails)

    def _commands(self, place: Place, bindings: Sequence[Buffer], fails: bool) -> CommandBuffer:
        recorder = place.device.record("add")
        recorder.fill(bindings[INPUTS], bytes(8))
        recorder.barrier()
        if fails:
            recorder.check_indices(CheckIndices(bindings[-1], 8, 1, 0, 1, 0, "meant to fail"))
        recorder.dispatch(place.executable, 0, bindings, self._tiles)
        return recorder.finish()

    def _readable(self, source: int, place: Place) -> int:
        """A node whose output a place can read: the source, or a copy that was made for this or another reader."""
        node = self._nodes[source]
        if node.output.space == place.device.space:
            return source
        found = self._brought.get((source, place.device.space))
        if found is None:
            if HOST_SPACE not in (node.output.space, place.device.space):
                source = self._copied(source, node.place, on_host=True)
            found = self._copied(source, place)
            self._brought[(source, place.device.space)] = found
        return found

    def _copied(self, source: int, place: Place, *, on_host: bool = False) -> int:
        """Copy a node's output to a place, or to this process's memory; an OpenCL device at either end does it."""
        node = self._nodes[source]
        if on_host:
            output = host_buffer(np.empty(self._tiles, np.int64), "a copy")
        else:
            output = place.device.allocate(8 * self._tiles, "a copy")
        mover = node.place if output.space == HOST_SPACE else place
        recorder = mover.device.record("copy")
        recorder.copy(node.output, output)
        queue = mover.device.transfers if self._rng.random() < 0.8 else self._rng.choice(mover.queues)
        return self._submit(f"copy of {node.name}", mover, queue, recorder.finish(), (source,), output, 0)

    def _submit(
        self,
        name: str,
        place: Place,
        queue: Queue,
        commands: CommandBuffer,
        sources: tuple[int, ...],
        output: Buffer,
        tiles: int,
        fails: bool = False,
    ) -> int:
        done = Timeline(name)
        wait = [(self._start, 1), *((self._nodes[source].done, 1) for source in sources)]
        submission = queue.submit(commands, wait=wait, signal=[(done, 1)], new=False)
        self._nodes.append(_Node(name, sources, place, queue, output, done, wait, submission, tiles, fails))
        self.steps += 1
        return len(self._nodes) - 1

    # -- disturbing ------------------------------------------------------------------------------------------

    def _disturbances(self) -> list[Callable[[], object]]:
        """Return what disturbs it while it runs."""
        rng = self._rng
        found: list[Callable[[], object]] = []
        for node in self._nodes:
            if rng.random() < self._chance:
                found.append(partial(self._cancel, node))
            if rng.random() < self._chance:
                found.append(partial(self._give_up, node))
        if rng.random() < self._chance:
            found.append(partial(self._lose, rng.choice(self._places)))
        rng.shuffle(found)
        return found

    def _cancel(self, node: _Node) -> None:
        node.asked_to_stop = True
        node.submission.cancel()

    def _give_up(self, node: _Node) -> None:
        """Wait, and stop waiting: nobody else is touched by it."""
        try:
            node.done.wait(1, 1e-4)
        except DeviceTimeoutError:
            self._totals.given_up += 1
        except AutotuneError:
            pass  # it failed: that is looked at in the end

    def _lose(self, place: Place) -> None:
        self._totals.lost_devices += not place.lost
        place.device.lose(DeviceLostError(f"{place.device.name} was taken away"))

    def _refuse(self, place: Place) -> None:
        """An allocation that cannot be made is one error, and nothing else."""
        device = place.device
        try:
            device.allocate(device.allocator.capacity + 1, "too much")
        except DeviceMemoryError:
            self._totals.refused_allocations += 1
        else:
            self._problem(f"{device.name} gave more memory than it has")

    # -- checking --------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Every node is over, for a reason, and those without an error have the right values."""
        values: dict[int, NDArray[np.int64]] = {}
        for number, node in enumerate(self._nodes):
            where = f"{node.name} of {len(self._nodes)} nodes on {node.place.device.name}"
            self.phase = f"waits for {where}"
            self._totals.dispatches += node.tiles > 0
            self._totals.copies += not node.tiles
            try:
                node.submission.wait()
            except AutotuneError as raised:
                error = node.done.error or raised
                self._totals.errors += 1
                self._totals.cancelled += isinstance(error, CancelledWorkError)
                if not self._explained(error, node):
                    self._problem(f"{where} failed for no reason: {error}")
                continue
            finally:
                self.steps += 1
            self._totals.tiles += node.tiles
            if node.fails or not values.keys() >= set(node.sources):
                self._problem(f"{where} ran although it must have failed")
                continue
            values[number] = self._expected(node, values)
            found = self._found(node)
            if found is not None and not np.array_equal(found, values[number]):
                self._problem(f"{where} has wrong values")
        self.phase = "over"

    def _found(self, node: _Node) -> NDArray[np.int64] | None:
        """Return what a node wrote; None where its device was lost since, and its memory with it."""
        if node.output.space == HOST_SPACE:
            return node.output.array(np.int64, (self._tiles,))
        try:
            return node.place.device.download(node.output, np.int64, (self._tiles,))
        except DeviceLostError:
            return None

    def _explained(self, error: BaseException, node: _Node) -> bool:
        """Return whether an error is the node's own, or that of what it waits for."""
        if error is self._start.error or any(self._nodes[each].done.error is error for each in node.sources):
            return True
        if isinstance(error, CancelledWorkError):
            return node.asked_to_stop
        if isinstance(error, InputError):
            return node.fails
        return isinstance(error, DeviceLostError) and node.place.lost

    def _expected(self, node: _Node, values: dict[int, NDArray[np.int64]]) -> NDArray[np.int64]:
        if not node.tiles:
            return values[node.sources[0]]
        found = np.ones(self._tiles, np.int64)
        for index, source in enumerate(node.sources):
            found += values[source] if index else values[source][::-1]
        return found

    def _problem(self, text: str) -> None:
        self._totals.problems.append(text)


__all__ = ["Graph", "Totals"]
