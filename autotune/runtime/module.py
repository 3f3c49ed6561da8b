"""A compiled model that runs: NumPy arrays in, NumPy arrays out."""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.codegen.jit import LoadedCode
from autotune.errors import UsageError
from autotune.hardware import check_threads
from autotune.runtime import layout
from autotune.runtime.arguments import Buffers, Signature, signature_text
from autotune.runtime.call_record import CallRecord
from autotune.runtime.calls import CLOSED, RAN, UNATTENDED, WRONG
from autotune.runtime.check_rows import CheckRows, out_of_range, subject
from autotune.runtime.device import HOST_MEMORY, Host, Memory, address_of, allocate, no_memory
from autotune.runtime.image import Binding, DispatchInfo, ModuleImage, TensorSpec
from autotune.runtime.native import executor
from autotune.runtime.pool import pool_of
from autotune.runtime.program import Argument, Pointer, Program, ProgramBuilder
from autotune.runtime.requests import Requests
from autotune.runtime.verify import verify

if TYPE_CHECKING:
    from autotune.runtime.placed_module import PlacedModule

_BATCH_NS = 100_000_000  # timing returns to Python this often, so that Ctrl-C works
_MAX_RUNS = 1_000_000

_LOG = logging.getLogger("autotune.runtime")

Inputs = Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True)
class Event:
    """What one worker did for one command of a run; times in ns of ``time.monotonic_ns``.

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


class Module:
    """A model ready to run on this machine.

    ``threads``: workers, the calling thread among them; by default those of the image's target, at
    most one a usable core. Any thread may call; calls of one module take turns, because they share
    its memory, which comes from ``memory``. Raises ArtifactError for an inconsistent image, BuildError
    for code that cannot be loaded and UsageError for a wrong number of threads.
    """

    def __init__(
        self, image: ModuleImage, threads: int | None = None, *, memory: Memory = HOST_MEMORY
    ) -> None:
        verify(image)
        constants = memory.constants(image.constants)
        # The only copy of those that were moved: whoever made the image has no more use for it.
        self._image = image = replace(image, constants=tuple(constants))
        self._threads = _workers(image, threads)
        self._pool = pool_of(self._threads)
        self._signature = Signature(image.name, image.inputs, image.outputs)
        self._output_names = [spec.name for spec in image.outputs]
        self._memory = memory
        self._constants = constants
        self._arena = memory.allocate(image.arena_bytes, "intermediate values")
        self._checks = CheckRows(image.checks)
        self._dispatch_of: list[int] = []
        """The dispatch of each recorded command, checks of indices among them."""
        self._code: LoadedCode | None = LoadedCode(image.objects)
        self._program: Program | None = self._record(self._code)
        self._calls = CallRecord(self._program.address, image.inputs, image.outputs)
        self._native_call = self._calls.call
        self._requests = Requests()
        _modules.add(self)

    @property
    def image(self) -> ModuleImage:
        """The compiled model as values."""
        return self._image

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What a call takes, in order."""
        return self._image.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """What a call returns, in order."""
        return self._image.outputs

    @property
    def dispatches(self) -> tuple[DispatchInfo, ...]:
        """The parts of the model that were compiled as one."""
        return self._image.dispatches

    @property
    def threads(self) -> int:
        """Workers, the calling thread among them."""
        return self._threads

    def __call__(self, *arrays: Any, out: Sequence[NDArray[Any]] | None = None) -> list[NDArray[Any]]:
        """Run the model; returns its outputs in order, freshly allocated unless ``out`` is given.

        Raises InputError for arrays of the wrong number, shape or dtype, BuildError without memory for the outputs.
        """
        return self.call(arrays, None if out is None else [*out])

    def call(self, arrays: tuple[Any, ...], out: list[NDArray[Any]] | None) -> list[NDArray[Any]]:
        """The same with the inputs as a tuple and a list ``out``, which is returned."""
        try:
            outputs = self._native_call(arrays, out)
        except MemoryError as error:
            raise no_memory(sum(spec.nbytes for spec in self.outputs)) from error
        return self._checked_call(arrays, out) if outputs is None else outputs

    def run(self, inputs: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Run the model by name; raises InputError for missing or unknown names too."""
        outputs = self(*self._signature.by_name(inputs))
        return dict(zip(self._output_names, outputs, strict=True))

    def submit(self, *arrays: Any) -> Future[list[NDArray[Any]]]:
        """Run the model in the background; requests of a module run in the order of submission.

        The arrays must not change until the future is done. Its ``result()`` is what a call returns
        or raises.
        """
        if self._program is None:
            raise self._closed()
        return self._requests.submit(self, *arrays)

    def time(
        self,
        inputs: Inputs,
        *,
        out: Sequence[NDArray[Any]] | None = None,
        warmup: int = 1,
        repeat: int = 10,
        min_ns: int = 0,
    ) -> NDArray[np.int64]:
        """Nanoseconds of each run, measured in native code without Python's share.

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
        while count < repeat or (total < min_ns and count < _MAX_RUNS):
            run_ns = max(1, run_ns)
            wanted = max(repeat - count, (min_ns - total) // run_ns + 1)
            times = np.zeros(max(1, min(wanted, _BATCH_NS // run_ns, _MAX_RUNS)), np.int64)
            self._run(arrays, outputs, times.size, times=address_of(times))
            measured.append(times)
            count += times.size
            total += int(times.sum())
            run_ns = total // count
        return np.concatenate(measured)

    def profile(self, inputs: Inputs, repeat: int = 10) -> NDArray[np.float64]:
        """Mean nanoseconds of each dispatch over ``repeat`` runs: see :meth:`profiles`, of which each makes one."""
        if repeat < 1:
            raise UsageError(f"repeat must be at least 1, got {repeat}")
        return np.asarray(sum(self.profiles(inputs, 1)[0] for _ in range(repeat)) / repeat)

    def profiles(self, inputs: Inputs, runs: int) -> NDArray[np.float64]:
        """Nanoseconds [runs, dispatches] of runs that follow each other, each from the end of the dispatch before.

        It ends with its last tile. What the caller saw would be another time where the system halts the
        caller and other workers go on: several dispatches would have ended at once. A run before the first is not
        counted.
        """
        found = np.zeros((runs, len(self.dispatches)), np.float64)
        for taken, events in zip(found, self._events(inputs, runs), strict=True):
            np.add.at(taken, self._dispatch_of, _spent(events))
        return found

    def timeline(self, inputs: Inputs) -> list[Event]:
        """What every worker did in one run, command by command."""
        return [
            Event(
                command=index,
                dispatch=self._dispatch_of[index],
                worker=worker,
                begin_ns=int(row[layout.BEGIN]),
                end_ns=int(row[layout.END]),
                met_ns=int(rows[0, layout.MET]),
                tiles=int(row[layout.TILES_RUN]),
                tiles_stolen=int(row[layout.TILES_STOLEN]),
            )
            for index, rows in enumerate(self._events(inputs)[0])
            for worker, row in enumerate(rows)
            if row[layout.BEGIN]
        ]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the compiled model to a file that :func:`load` reads; raises ArtifactError."""
        from autotune.runtime import artifact

        artifact.save(self._image, path)

    def close(self) -> None:
        """Free the module's memory and code, after the run in progress; later calls fail."""
        self._calls.close()
        self._program = None
        self._constants = []
        self._arena = allocate(0)
        if self._code is not None:
            self._code.close()
            self._code = None

    def __enter__(self) -> Module:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        tuned = sum(dispatch.schedule_source.startswith("tuned") for dispatch in self.dispatches)
        state = ", closed" if self._program is None else ""
        return (
            f"<Module {self._image.name!r} {signature_text(self.inputs, self.outputs)}, "
            f"{tuned} of {len(self.dispatches)} dispatches tuned, threads={self._threads}{state}>"
        )

    def _record(self, code: LoadedCode) -> Program:
        """The program: resolved symbols, fixed addresses, and patches for the rest."""
        arguments = len(self.inputs) + len(self.outputs)
        buffer = ProgramBuilder(self._threads, self._pool.address, arguments, self._memory)
        checks: dict[int, list[int]] = {}
        for number, check in enumerate(self._image.checks):
            checks.setdefault(check.command, []).append(number)
        for index, command in enumerate(self._image.commands):
            for number in checks.get(index, ()):
                self._check_indices(buffer, number)
            self._dispatch_of.append(command.dispatch)
            address = code.address(command.object_index, command.symbol)
            table = [self._pointer(binding) for binding in command.bindings]
            buffer.dispatch(address, table, command.tiles, command.scratch_bytes)
        return buffer.finish(self._checks.memory)

    def _check_indices(self, buffer: ProgramBuilder, number: int) -> None:
        """Record a check; its dispatch need not wait for it, as its kernels clamp what they read."""
        check = self._image.checks[number]
        table = [self._pointer(check.binding), self._checks.address(number)]
        self._dispatch_of.append(check.dispatch)
        buffer.dispatch(executor().check, table, self._checks.tiles(number), 0, awaited=False)

    def _pointer(self, binding: Binding) -> Pointer:
        if binding.space == "input":
            return Argument(binding.index, binding.offset)
        if binding.space == "output":
            return Argument(len(self.inputs) + binding.index, binding.offset)
        if binding.space == "constant":
            return address_of(self._constants[binding.index]) + binding.offset
        return address_of(self._arena) + binding.offset

    def _closed(self) -> UsageError:
        return UsageError(f"module {self._image.name!r} is closed")

    def _checked_call(self, arrays: tuple[Any, ...], out: list[NDArray[Any]] | None) -> list[NDArray[Any]]:
        """A call whose arrays need converting, or an error; raises InputError."""
        bound, outputs = self._prepare(arrays, out)
        self._run(bound, outputs)
        return outputs[0]

    def _prepare(self, inputs: Inputs, out: Sequence[NDArray[Any]] | None = None) -> tuple[Buffers, Buffers]:
        signature = self._signature
        arrays = signature.inputs(signature.by_name(inputs) if isinstance(inputs, Mapping) else inputs)
        return arrays, signature.fresh_outputs() if out is None else signature.given_outputs([*out], arrays)

    def _events(self, inputs: Inputs, runs: int = 1) -> NDArray[np.int64]:
        """Event rows, ``[runs, commands, workers, EVENT_SLOTS]``; zeros where none was made."""
        arrays, outputs = self._prepare(inputs)
        # Without the first: between calls from Python workers fall asleep, in use they are awake.
        shape = (runs + 1, len(self._dispatch_of), self._threads, layout.EVENT_SLOTS)
        events = np.zeros(shape, np.int64)
        self._run(arrays, outputs, runs + 1, events=address_of(events))
        return events[1:]

    def _run(
        self, inputs: Buffers, outputs: Buffers, runs: int = 1, *, times: int = 0, events: int = 0
    ) -> None:
        """Run several times on checked arrays, writing to the addresses given.

        Raises UsageError when closed, InputError for an index out of range.
        """
        addresses = inputs[1] + outputs[1]
        outcome = UNATTENDED
        while outcome != RAN:
            outcome, index = self._calls.run(addresses, runs, times, events)
            if outcome == CLOSED:
                raise self._closed()
            if outcome >= WRONG:
                raise out_of_range(index, subject(self._image, outcome - WRONG))
            if outcome == UNATTENDED:
                self._pool.start()

    def _after_fork(self) -> None:
        self._calls.reset()
        self._requests = Requests()


def load(
    path: str | os.PathLike[str], threads: int | None = None, *, allow_oversubscription: bool = False
) -> Module | PlacedModule:
    """The module of an artifact, a file that `autotune compile` or :meth:`Module.save` wrote.

    One that was compiled for several devices is a :class:`autotune.runtime.placed_module.PlacedModule`, whose devices
    say how many workers there are. ``threads``: see :class:`Module`. Raises UsageError for what is no file and for more
    threads than usable cores without ``allow_oversubscription``, ArtifactError for a file that is no artifact, damaged
    or made for another machine.
    """
    from autotune.runtime.device_program import DeviceProgram
    from autotune.runtime.placed_module import PlacedModule
    from autotune.runtime.program_artifact import load_either

    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"an artifact is given by its path, not as {type(path).__name__}")
    if not os.path.isfile(path):
        raise UsageError(f"{'not a' if os.path.exists(path) else 'no such'} file: {path}")
    if threads is not None:
        check_threads(threads, allow_oversubscription=allow_oversubscription)
    found = load_either(path)
    if not isinstance(found, DeviceProgram):
        return Module(found, threads)
    if threads is not None:
        raise UsageError(
            f"threads were given for {path}, which runs on {', '.join(found.devices)}: those say how many"
        )
    return PlacedModule(found)


def _spent(events: NDArray[np.int64]) -> NDArray[np.int64]:
    """Nanoseconds [commands] from the last tile of the command before (or the beginning) to its own last tile."""
    if not len(events):
        return np.zeros(0, np.int64)
    ends = np.where(events[:, :, layout.TILES_RUN] > 0, events[:, :, layout.END], 0).max(axis=1)
    # Workers may have run all tiles of the first command before the caller, off its core, took a look at it.
    begins = events[0, :, layout.BEGIN]
    begin = begins[begins > 0].min()
    return np.diff(np.maximum.accumulate(np.maximum(ends, begin)), prepend=begin)


def _workers(image: ModuleImage, threads: int | None) -> int:
    """As asked; else the target's, at most one a core."""
    if threads is not None:
        return threads
    wanted, cores = image.target.threads, Host.here().cores
    if wanted > cores:
        _say_fewer(wanted, cores)
    return max(1, min(wanted, cores))


@cache
def _say_fewer(wanted: int, cores: int) -> None:
    """Once a process for the same numbers."""
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

__all__ = ["Event", "Module", "load"]
