"""One segment on the cores of this process."""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.codegen.jit import LoadedCode
from autotune.errors import BuildError, InternalError, UsageError
from autotune.hardware import usable_cores
from autotune.runtime.arguments import Buffers, Signature
from autotune.runtime.counted import from_metadata, parts
from autotune.runtime.cpu import layout
from autotune.runtime.cpu.device import HOST_MEMORY, Memory, address_of, no_memory
from autotune.runtime.cpu.instance import Instance, closed
from autotune.runtime.image import ModuleImage, TensorSpec
from autotune.runtime.loaded import MAX_RUNS, Results
from autotune.runtime.recording import Recording, StepRecording, boundaries
from autotune.runtime.requests.request import Request
from autotune.runtime.requests.streams import Streams
from autotune.suggest import counted
from autotune.target import Target

_BATCH_NS = 100_000_000  # timing returns to Python this often, so that Ctrl-C works

_LOG = logging.getLogger("autotune.runtime")


class LoadedHere:
    """An image whose constants are in place, on the cores of this process: see :class:`autotune.runtime.module.Module`.

    A call that is alone has all workers; several at once, of threads or in the background, run beside each other on
    shares of the workers, at most ``streams``, each with ``memory`` of its own.
    """

    devices = ("cpu",)
    in_flight = 1

    def __init__(
        self,
        image: ModuleImage,
        threads: int | None = None,
        *,
        memory: Memory = HOST_MEMORY,
        streams: int | None = None,
        room: int = 1024,
    ) -> None:
        self._image = image
        self._threads = threads = _workers(image, threads)
        self._signature = Signature(image.name, image.inputs, image.outputs, image.in_place)
        self._counted = from_metadata(image.metadata)
        self._memory = memory
        self._constants = [*image.constants]
        self._code = LoadedCode(image.objects)
        self._closed = False
        count = threads if streams is None else streams
        others = count if count > 1 else 0
        self._whole = Instance(image, self._code, self._constants, threads, memory, others=others)
        self._instances = [self._whole]
        self._native_call = self._whole.call
        self._streams = Streams(f"module {image.name!r}", count, room)
        self._each = max(1, threads // count)
        """Workers of each of several requests at once."""
        _modules.add(self)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Return the inputs of a call, in order."""
        return self._image.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Return the outputs of a call, in order."""
        return self._image.outputs

    @property
    def in_place(self) -> Mapping[int, int]:
        """Return the number of the input whose memory an output may have, by that of the output."""
        return {each.output: each.input for each in self._image.in_place}

    @property
    def threads(self) -> int:
        """Workers, the calling thread among them."""
        return self._threads

    def call(self, arrays: tuple[Any, ...], out: Results | None) -> Results:
        """Return the outputs, in ``out`` if that is given."""
        try:
            outputs = self._native_call(arrays, out)
        except MemoryError as error:
            raise no_memory(sum(spec.nbytes for spec in self.outputs)) from error
        outputs = self._checked_call(arrays, out) if outputs is None else outputs
        return parts(outputs, self._counted) if self._counted else outputs

    def submit_all(
        self, requests: Iterable[Sequence[Any]], timeout: float | None, deadline: float | None
    ) -> list[Request[Results]]:
        """Run several requests in the background, handed over in one step as far as there is room."""
        if self._closed:
            raise closed(self._image)
        calls = [partial(self.answer, tuple(arrays), None) for arrays in requests]
        return self._streams.submit(calls, timeout, deadline)

    def time(
        self, arrays: Sequence[Any], out: Results | None, warmup: int, repeat: int, min_ns: int
    ) -> NDArray[np.int64]:
        """Return nanoseconds of each run, measured in native code without Python's share.

        The runs share one set of output arrays, ``out`` if it is given.
        """
        inputs, outputs = self._prepare(arrays, out)
        measured: list[NDArray[np.int64]] = []
        count = total = 0
        begin = time.perf_counter_ns()
        self._run(inputs, outputs, warmup)
        # Without a warm-up run the first batch is one run, to learn how long a run is.
        run_ns = (time.perf_counter_ns() - begin) // warmup if warmup else _BATCH_NS
        while count < repeat or (total < min_ns and count < MAX_RUNS):
            run_ns = max(1, run_ns)
            wanted = max(repeat - count, (min_ns - total) // run_ns + 1)
            times = np.zeros(max(1, min(wanted, _BATCH_NS // run_ns, MAX_RUNS)), np.int64)
            self._run(inputs, outputs, times.size, times=address_of(times))
            measured.append(times)
            count += times.size
            total += int(times.sum())
            run_ns = total // count
        return np.concatenate(measured)

    def recording(self, arrays: Sequence[Any], runs: int, in_flight: int) -> Recording:
        """Return runs that follow each other, with what every worker did; a run before the first is not counted."""
        if in_flight > 1:
            raise UsageError(
                "requests in flight are recorded on devices that are named: here they share the workers"
            )
        events, walls = self._events(arrays, runs)
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
        """Free its memory and code, after the runs in progress; later calls fail."""
        self._closed = True
        for instance in reversed(self._instances):  # whoever waits for one of them learns it from the first
            instance.close()
        self._constants = []
        self._code.close()

    def describe(self) -> str:
        """Return the number of its tuned dispatches and its workers."""
        dispatches = self._image.dispatches
        tuned = sum(dispatch.is_tuned for dispatch in dispatches)
        state = ", closed" if self._closed else ""
        return f"{tuned} of {counted(len(dispatches), 'dispatch')} tuned, threads={self._threads}{state}"

    def answer(self, arrays: tuple[Any, ...], out: Results | None, request: Request[Results]) -> Results:
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
        out: Results | None,
        request: Request[Results] | None = None,
    ) -> Results:
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

    def _prepare(self, inputs: Sequence[Any], out: Results | None = None) -> tuple[Buffers, Buffers]:
        signature = self._signature
        arrays = signature.inputs(inputs)
        return arrays, signature.fresh_outputs() if out is None else signature.given_outputs([*out], arrays)

    def _events(self, inputs: Sequence[Any], runs: int = 1) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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
        "compiled for %d threads, but this process may use %s: it runs with %d",
        wanted,
        counted(cores, "core"),
        cores,
    )


_modules: weakref.WeakSet[LoadedHere] = weakref.WeakSet()


def _reset_modules() -> None:
    for module in _modules:
        module._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_modules)

__all__ = ["LoadedHere"]
