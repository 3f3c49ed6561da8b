"""A compiled model that runs: NumPy arrays in, NumPy arrays out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InputError, UsageError
from autotune.foreign import preformatted
from autotune.runtime.arguments import signature_text, wrong_names
from autotune.runtime.compiled import Case, Compiled, SizedTensor, with_images
from autotune.runtime.cpu import layout
from autotune.runtime.cpu.device import HOST_MEMORY, Memory, address_of
from autotune.runtime.cpu.loaded import LoadedHere
from autotune.runtime.image import DispatchInfo, ModuleImage, TensorSpec
from autotune.runtime.loaded import Inputs, LoadedCase, ModelInMemory, Results
from autotune.runtime.programs.device_program import DeviceProgram
from autotune.runtime.recording import Recording, spent
from autotune.runtime.requests.request import Request
from autotune.runtime.targets import choose
from autotune.runtime.verify import verify

if TYPE_CHECKING:
    from autotune.runtime.buckets import OnMiss
    from autotune.runtime.hal.device import Device


@dataclass(frozen=True)
class Event:
    """The times of one command of a run on one worker; in ns of ``time.monotonic_ns``.

    Work lasts from ``begin_ns`` to ``end_ns``; at ``met_ns`` the caller knew all workers done. A worker that came when
    others had taken every tile has an event without tiles, perhaps after ``met_ns``. ``tiles_stolen`` of the ``tiles``
    run came from the range of another worker. ``step`` is that of the program.
    """

    command: int
    dispatch: int
    worker: int
    begin_ns: int
    end_ns: int
    met_ns: int
    tiles: int
    tiles_stolen: int
    step: int = 0


class Module:
    """A model ready to run: what :func:`autotune.compile` and :func:`autotune.load` return. Any thread may call.

    Of a model of one segment that names no device ``threads`` are the workers, the calling thread among them; by
    default those of the target, at most one a usable core. A call that is alone has all workers; several at once, of
    threads or in the background, run beside each other on shares of the workers, at most ``streams`` (by default as
    many as there are workers), each with memory of its own, which comes from ``memory``.

    On the devices that a model names, each part runs as soon as what it reads is there, devices beside each other.
    So many requests as ``in_flight`` run at once, each with memory of its own; by default one more than there are
    devices, so that each has its next part when it ends one. ``devices`` are open ones by name; others are opened.

    With dynamic shapes each request takes the smallest bucket that it fits in. Sizes out of range are refused; or
    ``on_miss`` compiles for them, and the last ``kept`` of such are kept.

    Of several targets the best one is taken that this machine can run. ``room`` requests may be on their way in the
    background. Raises ArtifactError for an inconsistent model, BuildError for code that cannot be loaded, UsageError
    for a wrong number of threads, for ``threads`` where devices say how many, and for a device that is not there, and
    DeviceMemoryError.
    """

    def __init__(
        self,
        model: Compiled | DeviceProgram | ModuleImage,
        threads: int | None = None,
        *,
        memory: Memory = HOST_MEMORY,
        streams: int | None = None,
        in_flight: int | None = None,
        room: int = 1024,
        devices: Mapping[str, Device] | None = None,
        on_miss: OnMiss | None = None,
        kept: int = 4,
    ) -> None:
        found = model if isinstance(model, Compiled) else Compiled.of(model)
        targets = [target for target in found.targets if target is not None]
        if len(targets) > 1:
            found = found.of_target(targets[choose(targets)])
        _check_threads(found.cases[0].program, threads)

        def load(program: DeviceProgram) -> LoadedCase:
            if (image := _image_here(program)) is not None:
                return LoadedHere(image, threads, memory=memory, streams=streams, room=room)
            from autotune.runtime.device_code import on_device
            from autotune.runtime.programs.loaded import LoadedOnDevices

            if program.image is not None:
                program = on_device(program.image)
            return LoadedOnDevices(program, in_flight=in_flight, room=room, devices=devices)

        if found.least:
            found.verify()
        elif (image := _image_here(found.cases[0].program)) is not None:
            verify(image)
        # The only copy of constants that were moved: whoever made the model has no more use for others.
        self._model = found = replace(found, cases=_in_one_place(found.cases, memory))
        self._loaded: ModelInMemory
        if found.least:
            from autotune.runtime.buckets import LoadedBuckets

            self._loaded = LoadedBuckets(
                found,
                load,
                lambda program: load(_in_one_place(Compiled.of(program).cases, memory)[0].program),
                on_miss=on_miss,
                kept=kept,
                room=room,
            )
        else:
            self._loaded = load(found.cases[0].program)
        self._names = dict.fromkeys(tensor.name for tensor in found.inputs)

    @property
    def compiled(self) -> Compiled:
        """The compiled model as values."""
        return self._model

    @property
    def loaded(self) -> ModelInMemory:
        """The model in memory."""
        return self._loaded

    @property
    def image(self) -> ModuleImage:
        """The only segment of a model that has one; raises UsageError for others."""
        if len(self._model.images) != 1:
            raise UsageError(
                f"{self._model.name!r} has {len(self._model.images)} segments: module.compiled has them"
            )
        return self._model.images[0]

    @property
    def inputs(self) -> tuple[TensorSpec, ...] | tuple[SizedTensor, ...]:
        """Return the inputs of a call, in order; with dynamic shapes the axes of each."""
        return self._model.inputs if self._model.least else self._model.cases[0].program.inputs

    @cached_property
    def outputs(self) -> tuple[TensorSpec, ...] | tuple[SizedTensor, ...]:
        """Return the outputs of a call, in order; with dynamic shapes the axes of each."""
        largest = self._model.cases[-1]
        if not self._model.least:
            return largest.program.outputs
        return tuple(
            SizedTensor(spec.name, spec.dtype, axes)
            for spec, axes in zip(largest.program.outputs, largest.outputs, strict=True)
        )

    @property
    def dispatches(self) -> tuple[DispatchInfo, ...]:
        """The parts of the model that were compiled as one, of all segments and sizes."""
        return tuple(dispatch for image in self._model.images for dispatch in image.dispatches)

    @property
    def threads(self) -> int:
        """Workers, those of all its devices; the calling thread among those of this process."""
        return self._loaded.threads

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that it runs on; "cpu" are the cores of this process."""
        return self._loaded.devices

    @property
    def in_flight(self) -> int:
        """Return the limit of requests whose parts run at once on several devices; 1 on one."""
        return self._loaded.in_flight

    @property
    def sizes(self) -> dict[str, list[int]]:
        """Sizes of each dynamic dimension that something was compiled for, ascending."""
        return self._model.sizes

    def specs(self, sizes: Mapping[str, int] | None = None) -> tuple[TensorSpec, ...]:
        """Return the inputs of a request of such sizes; the largest there may be, where none is given."""
        largest = {symbol: found[-1] for symbol, found in self._model.sizes.items()}
        return tuple(tensor.spec({**largest, **(sizes or {})}) for tensor in self._model.inputs)

    def __call__(self, *arrays: Any, out: Sequence[NDArray[Any]] | None = None, **named: Any) -> Results:
        """Run the model; returns its outputs in order, freshly allocated unless ``out`` is given.

        Arrays come in the order of the inputs, or by name: as keywords or in one dictionary, which an input called
        ``out`` needs.

        Tensors of other libraries in CPU memory (with ``__dlpack__``) are read and, in ``out``, written without a copy.
        Raises InputError for arrays of the wrong number, shape or dtype, BuildError without memory for the outputs, and
        what a device failed with.
        """
        if named or (arrays and type(arrays[0]) is not np.ndarray):
            arrays = self._positional(arrays, named)  # costs arrays of NumPy nothing
        return self._loaded.call(arrays, None if out is None else [*out])

    def run(self, inputs: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Run the model by name; raises InputError for missing or unknown names too."""
        outputs = self._loaded.call(tuple(self._in_order(inputs)), None)
        return dict(zip(self._model.outputs, outputs, strict=True))

    def submit(
        self, *arrays: Any, timeout: float | None = None, deadline: float | None = None
    ) -> Request[Results]:
        """Run the model in the background; requests of a module begin in the order of submission.

        Arrays come in order or in one dictionary, and must not change until the request is done. Its ``result()`` is
        what a call returns or raises; in a coroutine, ``await`` gives the same. Cancelled while it runs, it ends behind
        the commands that devices are at. Where too many requests are on their way it waits for room, and, before the
        first one, for devices above their watermarks; at most ``timeout`` seconds. A request that has not ended
        ``deadline`` seconds after this call fails with DeviceTimeoutError. Raises InputError, UsageError when closed or
        for a deadline that is not in the future, DeviceTimeoutError.
        """
        if arrays and type(arrays[0]) is not np.ndarray:
            arrays = self._positional(arrays, {})
        return self._loaded.submit_all([arrays], timeout, deadline)[0]

    def submit_all(
        self,
        requests: Iterable[Sequence[Any]],
        *,
        timeout: float | None = None,
        deadline: float | None = None,
    ) -> list[Request[Results]]:
        """Return the same for several requests, each with its arrays.

        ``timeout`` is for each wait for room; where one ends without, those handed over are cancelled.
        """
        return self._loaded.submit_all(requests, timeout, deadline)

    def time(
        self,
        inputs: Inputs,
        *,
        out: Sequence[NDArray[Any]] | None = None,
        warmup: int = 1,
        repeat: int = 10,
        min_ns: int = 0,
    ) -> NDArray[np.int64]:
        """Return nanoseconds of each run, one after another.

        After ``warmup`` runs: at least ``repeat`` runs, and more until they add up to ``min_ns`` (at most a million).
        On the cores of this process they are measured in native code, elsewhere and with dynamic shapes as a caller
        sees them.
        """
        if repeat < 1 or warmup < 0:
            raise UsageError(f"repeat must be at least 1 and warmup 0, got {repeat} and {warmup}")
        given = None if out is None else [*out]
        return self._loaded.time(self._in_order(inputs), given, warmup, repeat, min_ns)

    def profile(self, inputs: Inputs, repeat: int = 10) -> NDArray[np.float64]:
        """Return mean nanoseconds of each dispatch over ``repeat`` runs: see :meth:`profiles`, of which
        each makes one."""
        if repeat < 1:
            raise UsageError(f"repeat must be at least 1, got {repeat}")
        return np.asarray(sum(self.profiles(inputs, 1)[0] for _ in range(repeat)) / repeat)

    def profiles(self, inputs: Inputs, runs: int) -> NDArray[np.float64]:
        """Return nanoseconds [runs, dispatches] of runs that follow each other, each from the end of the
        dispatch before on its device; with dynamic shapes of the bucket that the request takes.

        It ends with its last tile. What the caller saw would be another time where the system halts the
        caller and other workers go on: several dispatches would have ended at once. A run before the first is not
        counted. Raises UsageError for a device that does not tell what its workers did.
        """
        steps = [step for step in self.recording(inputs, runs).steps if step.image is not None]
        found = [np.zeros((runs, 0), np.float64)]
        for step in steps:
            if step.events is None:
                raise UsageError(f"{step.device} does not tell what each dispatch takes")
            taken = np.zeros((runs, 0 if step.image is None else len(step.image.dispatches)), np.float64)
            for own, events in zip(taken, step.events, strict=True):
                np.add.at(own, [*step.dispatch_of], spent(events))
            found.append(taken)
        return np.concatenate(found, axis=1)

    def timeline(self, inputs: Inputs) -> list[Event]:
        """Return the times of every worker in one run, command by command, of devices that tell them."""
        return [
            Event(
                command=index,
                dispatch=step.dispatch_of[index],
                worker=worker,
                begin_ns=int(row[layout.BEGIN]),
                end_ns=int(row[layout.END]),
                met_ns=int(rows[0, layout.MET]),
                tiles=int(row[layout.TILES_RUN]),
                tiles_stolen=int(row[layout.TILES_STOLEN]),
                step=number,
            )
            for number, step in enumerate(self.recording(inputs).steps)
            if step.events is not None
            for index, rows in enumerate(step.events[0])
            for worker, row in enumerate(rows)
            if row[layout.BEGIN]
        ]

    def recording(self, inputs: Inputs, runs: int = 1, *, in_flight: int = 1) -> Recording:
        """Return runs with what every worker did: what a profile or a trace is made of.

        On devices that are named so many are ``in_flight`` at a time; as many before the first are not counted. Raises
        UsageError for less than one run.
        """
        if runs < 1 or in_flight < 1:
            what, got = ("recorded", runs) if runs < 1 else ("in flight", in_flight)
            raise UsageError(f"at least 1 run is {what}, got {got}")
        return self._loaded.recording(self._in_order(inputs), runs, in_flight)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the compiled model to a file that :func:`autotune.load` reads; raises ArtifactError."""
        from autotune.runtime.artifacts import artifact

        artifact.save(self._model, path)

    def close(self) -> None:
        """Free its memory and code, after the runs in progress; later calls fail. Devices stay open."""
        self._loaded.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _repr_html_(self) -> str:
        ends = [
            f"{way} {each}" for way, some in (("in", self.inputs), ("out", self.outputs)) for each in some
        ]
        return preformatted("\n".join([f"{self._model.name}: {self._loaded.describe()}", *ends]))

    def __repr__(self) -> str:
        signature = signature_text(self.inputs, self.outputs)
        return f"<Module {self._model.name!r} {signature}, {self._loaded.describe()}>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise UsageError(
            "a Module cannot be pickled or copied: it holds machine code and memory of this process\n"
            "  write it by module.save(path), and autotune.load(path) where it is needed"
        )

    def _positional(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the arrays of a call in the order of the inputs; raises InputError for some by place, some by name."""
        if not named and not isinstance(arrays[0], Mapping):
            return arrays
        if len(arrays) + bool(named) != 1:
            raise InputError(
                f"{self._model.name!r} takes its inputs in order, as keywords, or in one dictionary, got a mix of them"
            )
        return tuple(self._in_order(named or arrays[0]))

    def _in_order(self, inputs: Inputs) -> Sequence[Any]:
        """Return the arrays of inputs in order or by name; raises InputError for missing or unknown names."""
        if not isinstance(inputs, Mapping):
            return inputs
        if inputs.keys() != self._names.keys():
            raise wrong_names(self._model.name, inputs, self._model.inputs)
        return [inputs[name] for name in self._names]


def _image_here(program: DeviceProgram) -> ModuleImage | None:
    """Return the image of a program that runs on the cores of this process; None for others."""
    image = program.image
    return None if image is None or image.target.group_items else image


def _check_threads(program: DeviceProgram, threads: int | None) -> None:
    if threads is None or _image_here(program) is not None:
        return
    where = ", ".join(program.devices) if program.image is None else "the device that it was compiled for"
    raise UsageError(
        f"threads were given for {program.name!r}, which runs on {where}: devices say how many there are"
    )


def _in_one_place(cases: Sequence[Case], memory: Memory) -> tuple[Case, ...]:
    """Return the cases with the constants that they share and read here on pages of their own, each once."""
    images = [_image_here(case.program) for case in cases]
    places = {_where(array): array for image in images if image is not None for array in image.constants}
    shared = dict(zip(places, memory.constants(list(places.values())), strict=True))
    placed = [
        case.program.images
        if image is None
        else (replace(image, constants=tuple(shared[_where(array)] for array in image.constants)),)
        for case, image in zip(cases, images, strict=True)
    ]
    return tuple(with_images(cases, [image for own in placed for image in own]))


def _where(array: NDArray[Any]) -> tuple[int, tuple[int, ...], str]:
    return address_of(array), array.shape, str(array.dtype)


__all__ = ["Event", "Module"]
