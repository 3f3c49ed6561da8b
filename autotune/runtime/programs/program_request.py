"""Requests of a program of several devices: its images on their devices, the memory of a request, and its steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.runtime.hal.allocator import Allocator
from autotune.runtime.hal.buffer import HOST_SPACE, Buffer, host_buffer
from autotune.runtime.hal.command_buffer import CommandBuffer, Slot
from autotune.runtime.hal.device import Device
from autotune.runtime.hal.queue import Queue, Submission
from autotune.runtime.hal.recording import LoadedImage, load_image
from autotune.runtime.hal.semaphore import Point, Timeline
from autotune.runtime.hal.timed import Timed, timed
from autotune.runtime.programs.device_program import DeviceProgram
from autotune.runtime.unrolled import unrolled

Arrays = Sequence[NDArray[Any]]
Done = Callable[[BaseException | None], None]
Submitted = list[tuple[int, Submission]]
"""The submissions for steps of a program, with their numbers."""


@dataclass(frozen=True, eq=False)
class LoadedProgram:
    """A program whose images are on their devices, with queues on each: steps run there as soon as they can.

    ``moves`` are queues for copies, beside what devices compute. They are not in order: what a request brings must not
    wait for what the one before it takes away, which waits for all that is computed in between.
    """

    program: DeviceProgram
    devices: Mapping[str, Device]
    images: tuple[LoadedImage, ...]
    queues: Mapping[str, Queue]
    moves: Mapping[str, Queue]

    @staticmethod
    def of(program: DeviceProgram, devices: Mapping[str, Device]) -> LoadedProgram:
        """Load all images, which repeat nothing. Raises as :func:`autotune.runtime.hal.recording.load_image` does."""
        program = replace(program, images=tuple(map(unrolled, program.images)))
        runs = {step.image: step.device for step in program.steps if step.kind == "run"}
        images = tuple(load_image(devices[runs[i]], image) for i, image in enumerate(program.images))
        queues, moves = (
            {name: device.queue(label, in_order=False) for name, device in devices.items()}
            for label in (program.name, f"transfers of {program.name}")
        )
        return LoadedProgram(program, devices, images, queues, moves)

    def space_of(self, value: int) -> str:
        """Return the memory space of a value."""
        return self.devices[self.program.values[value].device].space

    def roots(self) -> list[int]:
        """Return the value in whose memory each value is: a transfer within a space moves nothing."""
        found = list(range(len(self.program.values)))
        for step in self.program.steps:
            if step.kind == "transfer" and self.space_of(step.reads[0]) == self.space_of(step.writes[0]):
                found[step.writes[0]] = found[step.reads[0]]
        return found

    def close(self) -> None:
        """Take no more steps, and give the memory of constants back."""
        for each in (self.queues, self.moves):
            for name, queue in each.items():
                self.devices[name].close_queue(queue)
        for image in self.images:
            image.free()


class RequestMemory:
    """The resources of a request in flight: memory of values between steps, and recorded commands.

    Inputs and outputs that a device in this process's memory reads or makes are the caller's own arrays; others are
    copied by the device. Raises DeviceMemoryError.
    """

    def __init__(self, loaded: LoadedProgram) -> None:
        self._loaded = loaded
        self._program = program = loaded.program
        self._roots = loaded.roots()
        given = {entry.value: entry.input for entry in program.arguments}
        self._inputs = {v: i for v, i in given.items() if loaded.space_of(v) == HOST_SPACE}
        self._outputs: dict[int, int] = {}
        for index, value in enumerate(program.results):
            root = self._roots[value]
            if loaded.space_of(root) == HOST_SPACE and root not in given:
                self._outputs.setdefault(root, index)
        self._buffers = {v: self._allocated(v) for v in self._roots if self._owns(v)}
        self._uploads = [
            (v, i, self._copy(v, inwards=True)) for v, i in given.items() if v not in self._inputs
        ]
        self._downloads = [
            (index, value, self._copy(value, inwards=False))
            for index, value in enumerate(program.results)
            if loaded.space_of(value) != HOST_SPACE
        ]
        self._steps = [self._commands(number) for number in range(len(program.steps))]
        self._copied = [
            (index, value)
            for index, value in enumerate(program.results)
            if loaded.space_of(value) == HOST_SPACE and self._outputs.get(self._roots[value]) != index
        ]

    def start(
        self, inputs: Arrays, outputs: Arrays, done: Done, submitted: Submitted, deadline_ns: int = 0
    ) -> None:
        """Submit every step; ``done`` is called once all are over, with the first error in their order, if any.

        The arrays must not change until then. ``submitted`` receives the submissions of the program's steps, by number,
        before ``done`` is called. None is held back by a watermark: the memory is there already. Steps that have not
        ended at ``deadline_ns`` fail at their next command.
        """
        _Request(self, inputs, outputs, done, deadline_ns).submit(submitted)

    @property
    def commands(self) -> tuple[CommandBuffer | None, ...]:
        """Return the recorded commands of each step of the program; None for a transfer that moves nothing."""
        return tuple(self._steps)

    def watch(self, number: int) -> Timed | None:
        """Let the device time the kernels of a step from now on; None where it cannot."""
        commands = self._steps[number]
        found = None if commands is None else timed(commands)
        if found is None:
            return None
        self._steps[number], watched = found
        return watched

    def free(self) -> None:
        """Give the memory back."""
        for buffer in self._buffers.values():
            buffer.free()

    def _owns(self, value: int) -> bool:
        return self._roots[value] == value and value not in self._inputs and value not in self._outputs

    def _allocated(self, value: int) -> Buffer:
        found = self._program.values[value]
        nbytes, label = found.spec.nbytes, f"{found.spec.name} of {self._program.name}"
        pinned = self._pinned_for(value)
        if pinned is not None:
            return pinned.allocate(nbytes, label)
        return self._loaded.devices[found.device].allocate(nbytes, label)

    def _pinned_for(self, value: int) -> Allocator | None:
        """Return the best allocator for a value of this process's memory that is copied to or from a
        device with its own."""
        if self._loaded.space_of(value) != HOST_SPACE:
            return None
        for number, step in enumerate(self._program.steps):
            roots = (
                {self._roots[step.reads[0]], self._roots[step.writes[0]]}
                if step.kind == "transfer"
                else set()
            )
            if (
                value in roots
                and len(roots) == 2
                and (found := self._mover(number).host_allocator) is not None
            ):
                return found
        return None

    def _copy(self, value: int, *, inwards: bool) -> CommandBuffer:
        """Return a copy between a value and the caller's array, which the submission brings."""
        found = self._program.values[value]
        recorder = self._loaded.devices[found.device].record(f"{found.spec.name} of {self._program.name}")
        array, own = Slot(0, 0, found.spec.nbytes), self._buffers[self._roots[value]]
        recorder.copy(*((array, own) if inwards else (own, array)))
        return recorder.finish()

    def _commands(self, number: int) -> CommandBuffer | None:
        """Return the commands of a step; None for a transfer that moves nothing."""
        step = self._program.steps[number]
        if step.kind == "run":
            return self._loaded.images[step.image].record(f"step {number} of {self._program.name}")
        if self._roots[step.reads[0]] == self._roots[step.writes[0]]:
            return None
        nbytes = self._program.values[step.writes[0]].spec.nbytes
        recorder = self._mover(number).record(f"step {number} of {self._program.name}")
        recorder.copy(Slot(0, 0, nbytes), Slot(1, 0, nbytes))
        return recorder.finish()

    def _mover(self, number: int) -> Device:
        """Return the device that copies for a transfer: the destination, or the source where that is this
        process's memory."""
        step = self._program.steps[number]
        to_host = self._loaded.space_of(step.writes[0]) == HOST_SPACE
        return self._loaded.devices[self._program.values[step.reads[0]].device if to_host else step.device]


class _Request:
    def __init__(
        self, memory: RequestMemory, inputs: Arrays, outputs: Arrays, done: Done, deadline_ns: int
    ) -> None:
        self._memory = memory
        self._deadline_ns = deadline_ns
        self._program = memory._program
        self._inputs, self._outputs, self._done = inputs, outputs, done
        self._tables = dict(memory._buffers)
        self._tables |= {v: host_buffer(inputs[i]) for v, i in memory._inputs.items()}
        self._tables |= {v: host_buffer(outputs[i]) for v, i in memory._outputs.items()}
        self._ready: dict[int, tuple[Point, ...]] = {}
        """The waits before a value is read."""
        self._timelines: list[Timeline] = []
        self._refused: BaseException | None = None

    def submit(self, submitted: Submitted) -> None:
        memory, loaded = self._memory, self._memory._loaded
        for value, index, upload in memory._uploads:
            table = [host_buffer(self._inputs[index])]
            self._submitted(self._mover(upload), upload, table, (), (value,))
        for number, step in enumerate(self._program.steps):
            commands = memory._steps[number]
            waits = tuple(dict.fromkeys(p for v in step.reads for p in self._ready.get(v, ())))
            if commands is None:
                self._ready[step.writes[0]] = waits
                continue
            queue = loaded.queues[step.device] if step.kind == "run" else self._mover(commands)
            table = [self._buffer(v) for v in (*step.reads, *step.writes)]
            made = self._submitted(queue, commands, table, waits, step.writes)
            submitted += [] if made is None else [(number, made)]
        for index, value, download in memory._downloads:
            table = [host_buffer(self._outputs[index])]
            self._submitted(self._mover(download), download, table, self._ready.get(value, ()), ())
        self._watch()

    def _mover(self, commands: CommandBuffer) -> Queue:
        return self._memory._loaded.moves[commands.device.name]

    def _buffer(self, value: int) -> Buffer:
        return self._tables[self._memory._roots[value]]

    def _submitted(
        self,
        queue: Queue,
        commands: CommandBuffer,
        table: Sequence[Buffer],
        waits: Sequence[Point],
        writes: Sequence[int],
    ) -> Submission | None:
        """Return submit, unless one before was refused: then all that follows fails with that error, too."""
        timeline = Timeline(commands.name)
        self._timelines.append(timeline)
        self._ready.update(dict.fromkeys(writes, ((timeline, 1),)))
        try:
            if self._refused is None:
                signal, deadline = [(timeline, 1)], self._deadline_ns
                return queue.submit(
                    commands, table, wait=waits, signal=signal, new=False, deadline_ns=deadline
                )
        except BaseException as error:  # noqa: BLE001 - it travels to the caller
            self._refused = error
        timeline.fail(self._refused)
        return None

    def _watch(self) -> None:
        """Call back when the last step is over, however it went."""
        counted, last = itertools.count(1), len(self._timelines)

        def over(_error: BaseException | None) -> None:
            if next(counted) == last:
                self._finish()

        for timeline in self._timelines:
            timeline.when(1, over)
        if not last:
            self._finish()

    def _finish(self) -> None:
        error = next((t.error for t in self._timelines if t.error is not None), None)
        for index, value in self._memory._copied if error is None else ():
            own = self._outputs[index]
            np.copyto(own, self._buffer(value).array(own.dtype, own.shape))
        self._done(error)


__all__ = ["Arrays", "LoadedProgram", "RequestMemory", "Submitted"]
