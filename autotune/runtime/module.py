"""A compiled model that runs: NumPy arrays in, NumPy arrays out."""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.codegen.jit import LoadedCode
from autotune.errors import BuildError, InternalError, UsageError
from autotune.hardware import usable_cores
from autotune.runtime.arguments import Buffers, Signature, signature_text
from autotune.runtime.compiled import Compiled
from autotune.runtime.compiled_model import MAX_RUNS, CompiledModel, Inputs
from autotune.runtime.counted import from_metadata, parts
from autotune.runtime.cpu import layout
from autotune.runtime.cpu.device import HOST_MEMORY, Memory, address_of, no_memory
from autotune.runtime.cpu.instance import Instance, closed
from autotune.runtime.image import DispatchInfo, ModuleImage, TensorSpec
from autotune.runtime.recording import Recording, StepRecording, boundaries, spent
from autotune.runtime.requests.request import Request
from autotune.runtime.requests.streams import Streams
from autotune.runtime.verify import verify
from autotune.target import Target

_BATCH_NS = 100_000_000  # timing returns to Python this often, so that Ctrl-C works

_LOG = logging.getLogger("autotune.runtime")


@dataclass(frozen=True)
class Event:
    """The times of one command of a run on one worker; in ns of ``time.monotonic_ns``.

    Work lasts from ``begin_ns`` to ``end_ns``; at ``met_ns`` the caller knew all workers done.
    ``tiles_stolen`` of the ``tiles`` run came from the range of another worker.
    """

    command: int
    dispatch: int
    worker: int
    begin_ns: int
    end_ns: int
    met_ns: int
    tiles: int
    tiles_stolen: int


class Module(CompiledModel):
    """A model ready to run on this machine.

    ``threads``: workers, the calling thread among them; by default those of the image's target, at
    most one a usable core. Any thread may call. A call that is alone has all workers; several at once, of threads
    or in the background, run beside each other on shares of the workers, at most ``streams`` (by default as many as
    there are workers), each with memory of its own, which comes from ``memory``. ``room`` requests may be on their way
    in the background. Raises ArtifactError for an inconsistent image, BuildError for code that cannot be loaded and
    UsageError for a wrong number of threads.
    """

    def __init__(
        self,
        image: ModuleImage,
        threads: int | None = None,
        *,
        memory: Memory = HOST_MEMORY,
        streams: int | None = None,
        room: int = 1024,
    ) -> None:
        verify(image)
        constants = memory.constants(image.constants)
        # The only copy of those that were moved: whoever made the image has no more use for it.
        self._image = image = replace(image, constants=tuple(constants))
        self._threads = threads = _workers(image, threads)
        self._signature = Signature(image.name, image.inputs, image.outputs)
        self._counted = from_metadata(image.metadata)
        self._output_names = [spec.name for spec in image.outputs]
        self._memory = memory
        self._constants = constants
        self._code = LoadedCode(image.objects)
        self._closed = False
        count = threads if streams is None else streams
        others = count if count > 1 else 0
        self._whole = Instance(image, self._code, constants, threads, memory, others=others)
        self._instances = [self._whole]
        self._native_call = self._whole.call
        self._streams = Streams(f"module {image.name!r}", count, room)
        self._each = max(1, threads // count)
        """Workers of each of several requests at once."""
        _modules.add(self)

    @property
    def image(self) -> ModuleImage:
        """The compiled model as values."""
        return self._image

    @property
    def compiled(self) -> Compiled:
        """The compiled model as values."""
        return Compiled.of(self._image)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Return the inputs of a call, in order."""
        return self._image.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Return the outputs of a call, in order."""
        return self._image.outputs

    @property
    def dispatches(self) -> tuple[DispatchInfo, ...]:
        """The parts of the model that were compiled as one."""
        return self._image.dispatches

    @property
    def threads(self) -> int:
        """Workers, the calling thread among them."""
        return self._threads

    def call(self, arrays: tuple[Any, ...], out: list[NDArray[Any]] | None) -> list[NDArray[Any]]:
        """Return the same with the inputs as a tuple and a list ``out``, which is returned."""
        try:
            outputs = self._native_call(arrays, out)
        except MemoryError as error:
            raise no_memory(sum(spec.nbytes for spec in self.outputs)) from error
        outputs = self._checked_call(arrays, out) if outputs is None else outputs
        return parts(outputs, self._counted) if self._counted else outputs

    def by_name(self, inputs: Mapping[str, Any]) -> list[Any]:
        """Return the inputs in order; raises InputError for missing or unknown names."""
        return self._signature.by_name(inputs)

    def submit_all(
        self,
        requests: Iterable[Sequence[Any]],
        *,
        timeout: float | None = None,
        deadline: float | None = None,
    ) -> list[Request[list[NDArray[Any]]]]:
        """Return the same for several requests, each with its arrays, handed over in one step as far as there is room.

        ``timeout`` is for each wait for room; where one ends without, those handed over are cancelled.
        """
        if self._closed:
            raise closed(self._image)
        calls = [partial(self.answer, tuple(arrays), None) for arrays in requests]
        return self._streams.submit(calls, timeout, deadline)

    def time(
        self,
        inputs: Inputs,
        *,
        out: Sequence[NDArray[Any]] | None = None,
        warmup: int = 1,
        repeat: int = 10,
        min_ns: int = 0,
    ) -> NDArray[np.int64]:
        """Return nanoseconds of each run, measured in native code without Python's share.

        After ``warmup`` runs: at least ``repeat`` runs, and more until they add up to ``min_ns``
        (at most a million). The runs share one set of output arrays, ``out`` if it is given.
        """
        if repeat < 1 or warmup < 0:
            raise UsageError(f"repeat must be at least 1 and warmup 0, got {repeat} and {warmup}")
        arrays, outputs = self._prepare(inputs, out)
        measured: list[NDArray[np.int64]] = []
        count = total = 0
        begin = time.perf_counter_ns()
        self._run(arrays, outputs, warmup)
        # Without a warm-up run the first batch is one run, to learn how long a run is.
        run_ns = (time.perf_counter_ns() - begin) // warmup if warmup else _BATCH_NS
        while count < repeat or (total < min_ns and count < MAX_RUNS):
            run_ns = max(1, run_ns)
            wanted = max(repeat - count, (min_ns - total) // run_ns + 1)
            times = np.zeros(max(1, min(wanted, _BATCH_NS // run_ns, MAX_RUNS)), np.int64)
            self._run(arrays, outputs, times.size, times=address_of(times))
            measured.append(times)
            count += times.size
            total += int(times.sum())
            run_ns = total // count
        return np.concatenate(measured)

    def profile(self, inputs: Inputs, repeat: int = 10) -> NDArray[np.float64]:
        """Return mean nanoseconds of each dispatch over ``repeat`` runs: see :meth:`profiles`, of which
        each makes one."""
        if repeat < 1:
            raise UsageError(f"repeat must be at least 1, got {repeat}")
        return np.asarray(sum(self.profiles(inputs, 1)[0] for _ in range(repeat)) / repeat)

    def profiles(self, inputs: Inputs, runs: int) -> NDArray[np.float64]:
        """Return nanoseconds [runs, dispatches] of runs that follow each other, each from the end of the
        dispatch before.

        It ends with its last tile. What the caller saw would be another time where the system halts the
        caller and other workers go on: several dispatches would have ended at once. A run before the first is not
        counted.
        """
        found = np.zeros((runs, len(self.dispatches)), np.float64)
        for taken, events in zip(found, self._events(inputs, runs)[0], strict=True):
            np.add.at(taken, self._whole.dispatch_of, spent(events))
        return found

    def timeline(self, inputs: Inputs) -> list[Event]:
        """Return the times of every worker in one run, command by command."""
        return [
            Event(
                command=index,
                dispatch=self._whole.dispatch_of[index],
                worker=worker,
                begin_ns=int(row[layout.BEGIN]),
                end_ns=int(row[layout.END]),
                met_ns=int(rows[0, layout.MET]),
                tiles=int(row[layout.TILES_RUN]),
                tiles_stolen=int(row[layout.TILES_STOLEN]),
            )
            for index, rows in enumerate(self._events(inputs)[0][0])
            for worker, row in enumerate(rows)
            if row[layout.BEGIN]
        ]

    def recording(self, inputs: Inputs, runs: int = 1) -> Recording:
        """Return runs that follow each other, with what every worker did: what a profile or a trace is made of.

        A run before the first is not counted. Raises UsageError for less than one run.
        """
        if runs < 1:
            raise UsageError(f"at least 1 run is recorded, got {runs}")
        events, walls = self._events(inputs, runs)
        spans = np.zeros((2, runs), np.int64)
        if events.shape[1]:
            times = [boundaries(rows) for rows in events]
            spans[:] = [[each[0] for each in times], [each[-1] for each in times]]
        target = Target.detect(self._threads)
        step = StepRecording(
            self._image.name,
            "cpu",
            target,
            self._image,
            spans[0],
            spans[1],
            dispatch_of=tuple(self._whole.dispatch_of),
            events=events,
            shares=self._whole.pool.shares,
        )
        return Recording(self._image.name, walls, (step,))

    def close(self) -> None:
        """Free the module's memory and code, after the runs in progress; later calls fail."""
        self._closed = True
        for instance in reversed(self._instances):  # whoever waits for one of them learns it from the first
            instance.close()
        self._constants = []
        self._code.close()

    def __repr__(self) -> str:
        tuned = sum(dispatch.schedule_source.startswith("tuned") for dispatch in self.dispatches)
        state = ", closed" if self._closed else ""
        return (
            f"<Module {self._image.name!r} {signature_text(self.inputs, self.outputs)}, "
            f"{tuned} of {len(self.dispatches)} dispatches tuned, threads={self._threads}{state}>"
        )

    def answer(
        self,
        arrays: tuple[Any, ...],
        out: list[NDArray[Any]] | None,
        request: Request[list[NDArray[Any]]],
    ) -> list[NDArray[Any]]:
        """Return the same as :meth:`call` of a request in the background; raises what it ends with."""
        try:
            outputs = self._native_call(arrays, out, request.row)
        except MemoryError as error:
            raise no_memory(sum(spec.nbytes for spec in self.outputs)) from error
        if outputs is None:
            request.check()
            outputs = self._checked_call(arrays, out, request)
        return parts(outputs, self._counted) if self._counted else outputs

    def _add_instance(self) -> None:
        """Add one more instance, for concurrent calls; raises UsageError when closed."""
        try:
            instance = Instance(
                self._image,
                self._code,
                self._constants,
                self._each,
                self._memory,
                stream=len(self._instances),
            )
        except (IndexError, BuildError):
            if self._closed:  # meanwhile, and with it the code
                raise closed(self._image) from None
            raise
        self._instances.append(instance)
        if self._closed or not self._whole.join(instance):  # perhaps after all instances were closed
            instance.close()

    def _checked_call(
        self,
        arrays: tuple[Any, ...],
        out: list[NDArray[Any]] | None,
        request: Request[list[NDArray[Any]]] | None = None,
    ) -> list[NDArray[Any]]:
        """Return a call whose arrays need converting, that needs workers or an instance, or an error; raises
        InputError, and what a request that was cancelled meanwhile ends with."""
        bound, outputs = self._prepare(arrays, out)
        if self._whole.short:
            self._add_instance()
        rows = () if request is None else (request.row,)
        if self._native_call(tuple(bound[0]), outputs[0], *rows) is None:
            if self._closed:  # nothing to wait for, though another's run may still be in progress
                raise closed(self._image)
            for instance in self._instances[1:]:
                instance.attend()
            if not self._whole.run(bound[1] + outputs[1], request=address_of(*rows) if rows else 0):
                if request is not None:
                    request.check()
                raise InternalError(f"a run of {self._image.name!r} stopped, and nobody had cancelled it")
        return outputs[0] if out is None else out

    def _prepare(self, inputs: Inputs, out: Sequence[NDArray[Any]] | None = None) -> tuple[Buffers, Buffers]:
        signature = self._signature
        arrays = signature.inputs(signature.by_name(inputs) if isinstance(inputs, Mapping) else inputs)
        return arrays, signature.fresh_outputs() if out is None else signature.given_outputs([*out], arrays)

    def _events(self, inputs: Inputs, runs: int = 1) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the event rows, ``[runs, commands, workers, EVENT_SLOTS]``, zeros where none was made;
        and ns of each run."""
        arrays, outputs = self._prepare(inputs)
        # Without the first: between calls from Python workers fall asleep, in use they are awake.
        shape = (runs + 1, len(self._whole.dispatch_of), self._threads, layout.EVENT_SLOTS)
        events, times = np.zeros(shape, np.int64), np.zeros(runs + 1, np.int64)
        self._run(arrays, outputs, runs + 1, times=address_of(times), events=address_of(events))
        return events[1:], times[1:]

    def _run(
        self, inputs: Buffers, outputs: Buffers, runs: int = 1, *, times: int = 0, events: int = 0
    ) -> None:
        """Run several times on checked arrays, writing to the addresses given.

        Raises UsageError when closed, InputError for an index out of range.
        """
        self._whole.run(inputs[1] + outputs[1], runs, times, events)

    def _after_fork(self) -> None:
        for instance in self._instances:
            instance.reset()
        self._streams.reset()


def _workers(image: ModuleImage, threads: int | None) -> int:
    """Return the number of workers: as asked; else the target's, at most one a core."""
    if threads is not None:
        return threads
    wanted, cores = image.target.threads, usable_cores()
    if wanted > cores:
        _say_fewer(wanted, cores)
    return max(1, min(wanted, cores))


@cache
def _say_fewer(wanted: int, cores: int) -> None:
    """Warn once a process for the same numbers."""
    _LOG.warning(
        "compiled for %d threads, but this process may use %d core%s: it runs with %d",
        wanted,
        cores,
        "s" * (cores > 1),
        cores,
    )


_modules: weakref.WeakSet[Module] = weakref.WeakSet()


def _reset_modules() -> None:
    for module in _modules:
        module._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_modules)

__all__ = ["Event", "Module"]
