"""Recorded runs of a program of several devices: its steps, and of CPU devices what their workers did."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue

import numpy as np

from autotune.runtime.cpu import layout
from autotune.runtime.hal.command_buffer import CommandBuffer, DispatchCommand
from autotune.runtime.hal.cpu.segment import Segment
from autotune.runtime.image import ModuleImage
from autotune.runtime.programs.program_request import Arrays, LoadedProgram, RequestMemory, Submitted
from autotune.runtime.recording import Recording, StepRecording


def recorded_runs(
    loaded: LoadedProgram,
    inputs: Arrays,
    outputs: Callable[[], Arrays],
    runs: int,
    in_flight: int = 1,
) -> Recording:
    """Return requests with memory of their own, so many ``in_flight`` at a time; as many before the
    first are not counted.

    The time of each is from its submission to its end. Raises DeviceMemoryError, and what a device fails with.
    """
    memories = list[RequestMemory]()
    try:
        for _ in range(in_flight):
            memories.append(RequestMemory(loaded))
        lanes = [_Lane(loaded, memory, outputs(), runs, in_flight) for memory in memories]
        ended: SimpleQueue[_Ended] = SimpleQueue()
        begun = 0
        for lane in lanes:
            lane.begin(begun, inputs, ended)
            begun += 1
        running, error = len(lanes), None
        while running:
            request = ended.get()
            running -= 1
            error = error or request.error
            if error is None:
                request.lane.take(request)
                if begun < runs + in_flight:
                    request.lane.begin(begun, inputs, ended)
                    begun, running = begun + 1, running + 1
        if error is not None:
            raise error
        return _joined(loaded.program.name, lanes)
    finally:
        for memory in memories:
            memory.free()


@dataclass(frozen=True, eq=False)
class _Ended:
    """A request that is over, with its number and its time; the first ones are not counted."""

    lane: _Lane
    number: int
    wall_ns: int
    submitted: Submitted
    error: BaseException | None


class _Lane:
    """The memory of a request that is in flight, and what was recorded of those that had it."""

    def __init__(
        self, loaded: LoadedProgram, memory: RequestMemory, outputs: Arrays, runs: int, uncounted: int
    ) -> None:
        self._memory = memory
        self._outputs = outputs
        self._uncounted = uncounted
        numbers = [n for n, commands in enumerate(memory.commands) if commands is not None]
        self._steps = {number: _Step(loaded, memory, number, runs) for number in numbers}
        self.walls = np.zeros(runs, np.int64)

    @property
    def recordings(self) -> list[StepRecording]:
        """Zeros for requests that had other memory; without transfers that move nothing."""
        return [step.recorded() for step in self._steps.values()]

    def begin(self, number: int, inputs: Arrays, ended: SimpleQueue[_Ended]) -> None:
        """Submit a request."""
        submitted: Submitted = []
        begin = time.perf_counter_ns()

        def done(error: BaseException | None) -> None:
            ended.put(_Ended(self, number, time.perf_counter_ns() - begin, submitted, error))

        self._memory.start(inputs, self._outputs, done, submitted)

    def take(self, request: _Ended) -> None:
        """Keep what was written of the request that just ended."""
        run = request.number - self._uncounted
        for number, submission in request.submitted:
            self._steps[number].take(run, (submission.begin_ns, submission.end_ns))
        if run >= 0:
            self.walls[run] = request.wall_ns


def _joined(name: str, lanes: Sequence[_Lane]) -> Recording:
    """Return the joined recordings of all lanes, each of other requests."""
    steps = []
    for parts in zip(*(lane.recordings for lane in lanes), strict=True):
        begins, ends = (sum(each) for each in zip(*((p.begin_ns, p.end_ns) for p in parts), strict=True))
        rows = [part.events for part in parts if part.events is not None]
        events = np.asarray(sum(rows)) if rows else None
        steps.append(replace(parts[0], begin_ns=np.asarray(begins), end_ns=np.asarray(ends), events=events))
    return Recording(name, np.asarray(sum(lane.walls for lane in lanes)), tuple(steps))


class _Step:
    """One step: room for what is recorded of it."""

    def __init__(self, loaded: LoadedProgram, memory: RequestMemory, number: int, runs: int) -> None:
        step, commands = loaded.program.steps[number], memory.commands[number]
        image = loaded.program.images[step.image] if step.kind == "run" else None
        writes = ", ".join(loaded.program.values[value].spec.name for value in step.writes)
        device = step.device if image is not None or commands is None else commands.device.name
        spans = np.zeros((2, runs), np.int64)
        segments = [] if commands is None or image is None else _segments(commands)
        self._segments = segments
        self._rows = [segment.watch() for segment in segments]
        self._timed = None if image is None else memory.watch(number)
        events, dispatch_of = None, tuple[int, ...]()
        if image is not None and self._timed is not None:
            dispatch_of = tuple(command.dispatch for command in image.commands)
            events = np.zeros((runs, len(dispatch_of), 1, layout.EVENT_SLOTS), np.int64)
            events[..., layout.TILES_RUN] = [[command.tiles] for command in image.commands]
        elif image is not None and self._rows:
            dispatch_of = _dispatches(image, segments)
            events = np.zeros((runs, len(dispatch_of), *self._rows[0].shape[1:]), np.int64)
        self.recording = StepRecording(
            f"{step.kind} {writes}",
            device,
            loaded.devices[device].info.target,
            image,
            spans[0],
            spans[1],
            moved_bytes=0 if image is not None else loaded.program.values[step.writes[0]].spec.nbytes,
            dispatch_of=dispatch_of,
            events=events,
            known_workers=self._timed is None,
        )

    def recorded(self) -> StepRecording:
        """Return the recording, and the shares with which the workers would begin now."""
        return replace(self.recording, shares=self._segments[0].shares) if self._segments else self.recording

    def take(self, run: int, span: tuple[int, int]) -> None:
        """Keep what was written of the request that just ended, unless its number is negative."""
        if run >= 0:
            self._keep(run, span)
        for rows in self._rows:
            rows.fill(0)

    def _keep(self, run: int, span: tuple[int, int]) -> None:
        self.recording.begin_ns[run], self.recording.end_ns[run] = span
        events = self.recording.events
        if events is not None and self._timed is not None:
            begins, ends = np.transpose(self._timed.spans)
            rows = events[run, :, 0]
            rows[:, layout.BEGIN], rows[:, layout.END], rows[:, layout.BUSY] = begins, ends, ends - begins
        elif events is not None:
            events[run] = np.concatenate(self._rows)


def _segments(commands: CommandBuffer) -> list[Segment]:
    """Return the programs of the native executor, which other devices than the CPU have not."""
    prepared = commands.prepared if commands.device.info.driver == "cpu" else ()
    return [step for _, step in prepared if isinstance(step, Segment)]


def _dispatches(image: ModuleImage, segments: list[Segment]) -> tuple[int, ...]:
    """Return the dispatch of each command: kernels are recorded in the order of the image, checks before
    what they are for."""
    found, kernels = list[int](), 0
    for command in (each for segment in segments for each in segment.commands):
        found.append(image.commands[kernels].dispatch)
        kernels += isinstance(command, DispatchCommand)
    return tuple(found)


__all__ = ["recorded_runs"]
