"""Recorded runs of a program of several devices: its steps, and of CPU devices what their workers did."""

from __future__ import annotations

import time
from threading import Event

import numpy as np

from autotune.runtime import layout
from autotune.runtime.hal.command_buffer import CommandBuffer, Dispatch
from autotune.runtime.hal.cpu.segment import Segment
from autotune.runtime.image import ModuleImage
from autotune.runtime.program_request import Arrays, LoadedProgram, RequestMemory, Submitted
from autotune.runtime.recording import Recording, StepRecording


def recorded_runs(loaded: LoadedProgram, inputs: Arrays, outputs: Arrays, runs: int) -> Recording:
    """Requests one after another with memory of their own; one before the first is not counted.

    Raises DeviceMemoryError, and what a device fails with.
    """
    memory = RequestMemory(loaded)
    try:
        steps = [_Step(loaded, memory, number, runs) for number in range(len(loaded.program.steps))]
        walls = np.zeros(runs, np.int64)
        for run in range(-1, runs):
            begin = time.perf_counter_ns()
            spans = _spans(memory, inputs, outputs)
            if run >= 0:
                walls[run] = time.perf_counter_ns() - begin
                for number, span in spans.items():
                    steps[number].take(run, span)
        moved = [step.recording for number, step in enumerate(steps) if memory.commands[number] is not None]
        return Recording(loaded.program.name, walls, tuple(moved))
    finally:
        memory.free()


def _spans(memory: RequestMemory, inputs: Arrays, outputs: Arrays) -> dict[int, tuple[int, int]]:
    """When each step of one request began and ended."""
    over, errors = Event(), list[BaseException | None]()

    def done(error: BaseException | None) -> None:
        errors.append(error)
        over.set()

    submitted: Submitted = []
    memory.start(inputs, outputs, done, submitted)
    over.wait()
    if errors[0] is not None:
        raise errors[0]
    return {number: (each.begin_ns, each.end_ns) for number, each in submitted}


class _Step:
    """One step: room for what is recorded of it."""

    def __init__(self, loaded: LoadedProgram, memory: RequestMemory, number: int, runs: int) -> None:
        step, commands = loaded.program.steps[number], memory.commands[number]
        image = loaded.program.images[step.image] if step.kind == "run" else None
        writes = ", ".join(loaded.program.values[value].spec.name for value in step.writes)
        device = step.device if image is not None or commands is None else commands.device.name
        spans = np.zeros((2, runs), np.int64)
        segments = [] if commands is None or image is None else _segments(commands)
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

    def take(self, run: int, span: tuple[int, int]) -> None:
        """Keep what was written of the request that just ended."""
        self.recording.begin_ns[run], self.recording.end_ns[run] = span
        events = self.recording.events
        if events is not None and self._timed is not None:
            events[run, :, 0, [layout.BEGIN, layout.END]] = np.transpose(self._timed.spans)
        elif events is not None:
            events[run] = np.concatenate(self._rows)
        for rows in self._rows:
            rows.fill(0)


def _segments(commands: CommandBuffer) -> list[Segment]:
    """The programs of the native executor, which other devices than the CPU have not."""
    prepared = commands.prepared if commands.device.info.driver == "cpu" else ()
    return [step for _, step in prepared if isinstance(step, Segment)]


def _dispatches(image: ModuleImage, segments: list[Segment]) -> tuple[int, ...]:
    """The dispatch of each command: kernels are recorded in the order of the image, checks before what they are for."""
    found, kernels = list[int](), 0
    for command in (each for segment in segments for each in segment.commands):
        found.append(image.commands[kernels].dispatch)
        kernels += isinstance(command, Dispatch)
    return tuple(found)


__all__ = ["recorded_runs"]
