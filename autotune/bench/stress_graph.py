"""One random graph of dispatches over several devices: built, disturbed, and checked."""

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
    InputError,
)
from autotune.runtime.hal.buffer import Buffer
from autotune.runtime.hal.command_buffer import CheckIndices, CommandBuffer
from autotune.runtime.hal.device import Device
from autotune.runtime.hal.executable import Code, Entry, Executable
from autotune.runtime.hal.queue import Queue, Submission
from autotune.runtime.hal.semaphore import Timeline

_INPUTS = 3
_MOST_DISPATCHES = 200
_MOST_TILES = 2000
PATIENCE_S = 60.0
"""What takes longer than this waits for ever."""

# out[i] += 1 + a[n-1-i] + b[i] + c[i] of n tiles: another value where a tile runs twice or too early.
_KERNEL = """
define void @add(ptr %table, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %ap = load ptr, ptr %table
  %p1 = getelementptr i64, ptr %table, i64 1
  %bp = load ptr, ptr %p1
  %p2 = getelementptr i64, ptr %table, i64 2
  %cp = load ptr, ptr %p2
  %p3 = getelementptr i64, ptr %table, i64 3
  %op = load ptr, ptr %p3
  %p4 = getelementptr i64, ptr %table, i64 4
  %np = load ptr, ptr %p4
  %last = load i64, ptr %np
  br label %head
head:
  %i = phi i64 [%begin, %entry], [%next, %body]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %exit
body:
  %j = sub i64 %last, %i
  %ai = getelementptr i64, ptr %ap, i64 %j
  %a = load i64, ptr %ai
  %bi = getelementptr i64, ptr %bp, i64 %i
  %b = load i64, ptr %bi
  %ci = getelementptr i64, ptr %cp, i64 %i
  %c = load i64, ptr %ci
  %oi = getelementptr i64, ptr %op, i64 %i
  %o = load i64, ptr %oi
  %s1 = add i64 %a, %b
  %s2 = add i64 %s1, %c
  %s3 = add i64 %s2, %o
  %s4 = add i64 %s3, 1
  store i64 %s4, ptr %oi
  %next = add i64 %i, 1
  br label %head
exit:
  ret void
}
"""


@dataclass
class Totals:
    """What was run, and what went wrong; ``problems`` must stay empty."""

    graphs: int = 0
    dispatches: int = 0
    tiles: int = 0
    errors: int = 0
    cancelled: int = 0
    lost_devices: int = 0
    refused_allocations: int = 0
    held_back: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, more: Totals) -> None:
        """Add up both."""
        for name, value in vars(more).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass(frozen=True, eq=False)
class Place:
    """An open device with the code on it and its queues."""

    device: Device
    executable: Executable
    queues: Sequence[Queue]

    @property
    def lost(self) -> bool:
        """Whether the device was taken away."""
        try:
            self.device.check()
        except DeviceLostError:
            return True
        return False


@dataclass(eq=False)
class _Node:
    """A dispatch: what it adds up, where it runs, and what was done to it."""

    sources: tuple[int, ...]
    place: Place
    output: Buffer
    done: Timeline
    fails: bool
    submission: Submission
    asked_to_stop: bool = False


def code() -> Code:
    """The kernel of all dispatches."""
    from autotune.codegen.llvm import compile_ir
    from autotune.target import Target

    return Code("elf", (compile_ir(_KERNEL, Target.detect()),), (Entry(0, "add", _INPUTS + 2, label="add"),))


class Graph:
    """A graph whose dispatches fail, are cancelled or lose their device with some chance."""

    def __init__(self, rng: random.Random, places: Sequence[Place], chance: float) -> None:
        self._rng = rng
        self._places = places
        self._chance = chance
        self._tiles = rng.randint(1, _MOST_TILES)
        self._start = Timeline("start")
        self._nodes: list[_Node] = []
        self._totals = Totals(graphs=1)

    def run(self) -> Totals:
        """Build it, let it go, disturb it, and check all results."""
        for place in self._places:
            place.device.allocator.admit(PATIENCE_S)
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

    def _build(self, count: int) -> None:
        self._zeros = {place: place.device.upload(np.zeros(self._tiles, np.int64)) for place in self._places}
        self._last = {place: place.device.upload(np.array([self._tiles - 1])) for place in self._places}
        if self._rng.random() < 0.2:
            self._refuse(self._rng.choice(self._places).device)
        for number in range(count):
            self._add_node(number)

    def _add_node(self, number: int) -> None:
        rng, place = self._rng, self._rng.choice(self._places)
        sources = tuple(rng.randrange(number) for _ in range(rng.randint(0, _INPUTS))) if number else ()
        output = place.device.allocate(8 * self._tiles, "a graph")
        fails, done = rng.random() < self._chance, Timeline(f"dispatch {number}")
        inputs = [self._nodes[source].output for source in sources]
        inputs += [self._zeros[place]] * (_INPUTS - len(inputs))
        commands = self._commands(place, [*inputs, output, self._last[place]], fails)
        wait = [(self._start, 1), *((self._nodes[source].done, 1) for source in sources)]
        submission = rng.choice(place.queues).submit(
            commands, wait=wait, signal=[(done, 1)], new=False, timeout=PATIENCE_S
        )
        self._nodes.append(_Node(sources, place, output, done, fails, submission))

    def _commands(self, place: Place, bindings: Sequence[Buffer], fails: bool) -> CommandBuffer:
        recorder = place.device.record("add")
        recorder.fill(bindings[_INPUTS], bytes(8))
        recorder.barrier()
        if fails:
            recorder.check_indices(CheckIndices(bindings[-1], 8, 1, 0, 1, 0, "meant to fail"))
        recorder.dispatch(place.executable, 0, bindings, self._tiles)
        return recorder.finish()

    def _disturbances(self) -> list[Callable[[], object]]:
        """What is done to it while it runs."""
        rng = self._rng
        unwanted = [node for node in self._nodes if rng.random() < self._chance]
        found: list[Callable[[], object]] = [partial(self._cancel, node) for node in unwanted]
        if rng.random() < self._chance:
            place = rng.choice(self._places)
            found.append(partial(self._lose, place))
        rng.shuffle(found)
        return found

    def _cancel(self, node: _Node) -> None:
        node.asked_to_stop = True
        node.submission.cancel()

    def _lose(self, place: Place) -> None:
        self._totals.lost_devices += not place.lost
        place.device.lose(DeviceLostError(f"{place.device.name} was taken away"))

    def _refuse(self, device: Device) -> None:
        """An allocation that cannot be made is one error, and nothing else."""
        try:
            device.allocate(device.allocator.capacity + 1, "too much")
        except DeviceMemoryError:
            self._totals.refused_allocations += 1
        else:
            self._totals.problems.append(f"{device.name} gave more memory than it has")

    def _check(self) -> None:
        """Every dispatch is over, for a reason, and those without an error have the right values."""
        values: dict[int, NDArray[np.int64]] = {}
        for number, node in enumerate(self._nodes):
            where = f"dispatch {number} of {len(self._nodes)} on {node.place.device.name}"
            self._totals.dispatches += 1
            try:
                node.submission.wait(PATIENCE_S)
            except AutotuneError as raised:
                error = node.done.error or raised
                self._totals.errors += 1
                self._totals.cancelled += isinstance(error, CancelledWorkError)
                if not self._explained(error, node):
                    self._totals.problems.append(f"{where} failed for no reason: {error}")
                continue
            self._totals.tiles += self._tiles
            if node.fails or not values.keys() >= set(node.sources):
                self._totals.problems.append(f"{where} ran although it must have failed")
                continue
            values[number] = self._expected([values[source] for source in node.sources])
            found = node.output.array(np.int64, (self._tiles,))
            if not np.array_equal(found, values[number]):
                self._totals.problems.append(f"{where} has wrong values")

    def _explained(self, error: BaseException, node: _Node) -> bool:
        """Whether an error is the dispatch's own, or that of what it waits for."""
        if error is self._start.error or any(self._nodes[each].done.error is error for each in node.sources):
            return True
        if isinstance(error, CancelledWorkError):
            return node.asked_to_stop
        return (
            node.fails
            if isinstance(error, InputError)
            else isinstance(error, DeviceLostError) and node.place.lost
        )

    def _expected(self, sources: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        found = np.ones(self._tiles, np.int64)
        for index, source in enumerate(sources):
            found += source if index else source[::-1]
        return found


__all__ = ["PATIENCE_S", "Graph", "Place", "Totals", "code"]
