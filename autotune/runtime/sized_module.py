"""A compiled model that runs requests of any size: each takes the smallest bucket that it fits in."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InputError, UsageError
from autotune.runtime.axes import parse_axis, size_of, terms_of
from autotune.runtime.compiled import Compiled, SizedTensor, with_images
from autotune.runtime.compiled_model import CompiledModel, Inputs, Results, times_of
from autotune.runtime.cpu.device import HOST_MEMORY, Memory, address_of
from autotune.runtime.executable import module_of_program
from autotune.runtime.image import ModuleImage
from autotune.runtime.module import Module
from autotune.runtime.programs.device_program import DeviceProgram
from autotune.runtime.recording import Recording
from autotune.runtime.recycled import Recycled
from autotune.runtime.requests.request import Request
from autotune.runtime.requests.streams import Streams
from autotune.runtime.sized_request import Cut, Place, RequestPlan
from autotune.suggest import did_you_mean

if TYPE_CHECKING:
    from autotune.runtime.placed_module import PlacedModule

_PLANS = 4096
"""Plans of requests' shapes that are kept."""
_LOGGER = logging.getLogger(__name__)


class SizedModule(CompiledModel):
    """A model with dynamic shapes, ready to run on this machine.

    A request whose sizes are those of a bucket runs as it is. Another one is copied into arrays of the smallest bucket
    that it fits in, zeros beyond it, and its part of the results is copied out. Buckets share their constants, and are
    loaded when the first request takes them. Sizes out of range are refused; or ``on_miss`` compiles for them, and the
    last ``kept`` modules of such are kept. Any thread may call. Arguments and errors: see
    :class:`autotune.runtime.module.Module`.
    """

    def __init__(
        self,
        model: Compiled,
        threads: int | None = None,
        *,
        on_miss: Callable[[dict[str, int]], DeviceProgram] | None = None,
        kept: int = 4,
        room: int = 1024,
    ) -> None:
        model.verify()
        self._model = replace(model, cases=tuple(with_images(model.cases, _in_one_place(model.images))))
        self._threads = threads
        self._places: dict[int, Place] = {}
        self._plans: dict[tuple[tuple[int, ...], ...], RequestPlan] = {}
        self._outputs = [tuple(tuple(map(parse_axis, axes)) for axes in c.outputs) for c in model.cases]
        self._names = {tensor.name: None for tensor in model.inputs}
        self._dtypes = [np.dtype(tensor.dtype) for tensor in model.inputs]
        self._memory = Recycled(2 * len(model.outputs))  # a cache given, and the longer one
        self._on_miss = on_miss
        self._kept = kept
        self._missed: dict[tuple[int, ...], Place] = {}
        """Of sizes out of the ranges, the last ones used at the end."""
        self._missing = threading.Lock()
        self._room = room
        self._streams: Streams | None = None
        self._closed = False
        _modules.add(self)

    @property
    def inputs(self) -> tuple[SizedTensor, ...]:
        """Return the inputs of a call, in order."""
        return self._model.inputs

    @property
    def sizes(self) -> dict[str, list[int]]:
        """Sizes of each symbol that something was compiled for, ascending."""
        return self._model.sizes

    @property
    def compiled(self) -> Compiled:
        """The compiled model as values."""
        return self._model

    @property
    def threads(self) -> int:
        """Workers, the calling thread among them."""
        return self.module(0).threads

    @cached_property
    def outputs(self) -> tuple[SizedTensor, ...]:
        """Return the outputs of a call, in order."""
        largest = self._model.cases[-1]
        return tuple(
            SizedTensor(spec.name, spec.dtype, axes)
            for spec, axes in zip(largest.program.outputs, largest.outputs, strict=True)
        )

    def module(self, bucket: int) -> Module | PlacedModule:
        """Return the module of a bucket, by its number in ``compiled.cases``; its arrays have the bucket's sizes."""
        return self._place(bucket).module

    def call(self, arrays: tuple[Any, ...], out: Results | None) -> Results:
        """Run the model with the inputs as a tuple; a list ``out`` has arrays of the request's shapes.

        Raises InputError also for sizes out of range.
        """
        return self._call(arrays, out, None)

    def by_name(self, inputs: Mapping[str, Any]) -> list[Any]:
        """Return the inputs in order; raises InputError for missing or unknown names."""
        if inputs.keys() != self._names.keys():
            self._check_names(inputs)
        return [inputs[name] for name in self._names]

    def _call(
        self,
        arrays: Sequence[Any],
        out: Sequence[NDArray[Any]] | None,
        request: Request[list[NDArray[Any]]] | None,
    ) -> list[NDArray[Any]]:
        given = tuple([np.asarray(array) for array in arrays])
        return self._planned(given).run(given, out, request)

    def _planned(self, given: tuple[NDArray[Any], ...]) -> RequestPlan:
        plan = self._plans.get(tuple([array.shape for array in given]))
        if plan is None or any(
            array.dtype != dtype for array, dtype in zip(given, self._dtypes, strict=True)
        ):
            plan = self._plan(given)
        return plan

    def submit_all(
        self,
        requests: Iterable[Sequence[Any]],
        *,
        timeout: float | None = None,
        deadline: float | None = None,
    ) -> list[Request[list[NDArray[Any]]]]:
        """Run several requests in the background, each with its arrays.

        On several devices one that has begun is not ended by its deadline.
        """
        if self._closed:
            raise UsageError(f"the module {self._model.name!r} is closed")
        if self._streams is None:
            self._streams = Streams(f"module {self._model.name!r}", self.threads, self._room)
        calls = [partial(self._call, tuple(arrays), None) for arrays in requests]
        return self._streams.submit(calls, timeout, deadline)

    def time(
        self, inputs: Inputs, *, warmup: int = 1, repeat: int = 10, min_ns: int = 0
    ) -> NDArray[np.int64]:
        """Return nanoseconds of each run, with what it takes to copy a request in and out."""
        arrays = tuple(self.in_order(inputs))
        return times_of(lambda: self.call(arrays, None), warmup, repeat, min_ns)

    def recording(self, inputs: Inputs, runs: int = 1) -> Recording:
        """Return runs of the bucket that the request takes, with what every worker did."""
        given = tuple(np.asarray(array) for array in self.in_order(inputs))
        return self._planned(given).recording(given, runs)

    def close(self) -> None:
        """Free the memory and code of all buckets, after the runs in progress; later calls fail."""
        self._closed = True
        for place in (*self._places.values(), *self._missed.values()):
            place.module.close()

    def __repr__(self) -> str:
        spans = (f"{s}={self._model.least[s]}..{compiled[-1]}" for s, compiled in self.sizes.items())
        return (
            f"<SizedModule {self._model.name!r} ({'; '.join(map(str, self.inputs))}), {', '.join(spans)}, "
            f"{len(self._model.cases)} buckets>"
        )

    @cached_property
    def _shapes(self) -> list[tuple[tuple[int | str, ...], str]]:
        """Of each input: its axes, each a size or a symbol, and dtype."""
        return [
            (tuple(each[0] if each else 1 for each in tensor.shape), tensor.dtype) for tensor in self.inputs
        ]

    def _check_names(self, inputs: Mapping[str, Any]) -> None:
        for name in inputs:
            if name not in self._names:
                raise InputError(
                    f"{self._model.name!r} has no input {name!r}{did_you_mean(str(name), [*self._names])}"
                )
        missing = [str(tensor) for tensor in self.inputs if tensor.name not in inputs]
        raise InputError(f"{self._model.name!r} takes {'; '.join(missing)} too")

    def _place(self, number: int) -> Place:
        if number not in self._places:
            case = self._model.cases[number]
            module = module_of_program(case.program, self._threads, _AsTheyAre())
            # Two threads may make the same: one of them is dropped.
            self._places.setdefault(
                number, Place(module, self._outputs[number], case.sizes, len(self.inputs), self._memory)
            )
        return self._places[number]

    def _plan(self, given: tuple[NDArray[Any], ...]) -> RequestPlan:
        """Return the plan of a request; raises InputError where its arrays are not those of one, or out of range."""
        real = self._sizes(given)
        try:
            number = self._model.bucket_of(real)
        except InputError:
            if self._on_miss is None:
                raise
            return RequestPlan(self._beyond(real, self._on_miss), (), (), True)
        bucket = self._model.cases[number]
        cuts = tuple(Cut.of(axes, bucket.sizes, real) for axes in self._outputs[number])
        sizes = tuple(np.array(real[symbol], np.int64) for symbol in bucket.given)
        plan = RequestPlan(self._place(number), sizes, cuts, bucket.sizes == real)
        if len(self._plans) >= _PLANS:
            self._plans.clear()
        self._plans[tuple(array.shape for array in given)] = plan
        return plan

    def _beyond(self, real: dict[str, int], compiled: Callable[[dict[str, int]], DeviceProgram]) -> Place:
        """Return the model compiled for exactly these sizes; the last ``kept`` of such are kept."""
        key = tuple(real.values())
        with self._missing:
            place = self._missed.pop(key, None)
            if place is None:
                begin = time.perf_counter()
                module = module_of_program(compiled(real), self._threads)
                place = Place(module, (), real, len(self.inputs), self._memory)
                text = ", ".join(f"{symbol} = {size}" for symbol, size in real.items())
                _LOGGER.warning(
                    "%r was compiled for %s, out of its ranges, in %.1f s",
                    self._model.name,
                    text,
                    time.perf_counter() - begin,
                )
            self._missed[key] = place
            while len(self._missed) > self._kept:  # requests that run in it keep it alive
                del self._missed[next(iter(self._missed))]
            return place

    def _sizes(self, given: Sequence[NDArray[Any]]) -> dict[str, int]:
        """Return sizes of a request; raises InputError where its arrays contradict one another."""
        if len(given) != len(self.inputs):
            listed = "; ".join(map(str, self.inputs))
            raise InputError(
                f"{self._model.name!r} takes {len(self.inputs)} inputs, got {len(given)}; expected {listed}"
            )
        real = self._solved(given)
        for tensor, array, (shape, dtype) in zip(self.inputs, given, self._shapes, strict=True):
            fits = array.dtype == dtype and array.ndim == len(shape)
            fits = fits and array.shape == tuple(size_of(wanted, real) for wanted in shape)
            if not fits:
                got = f"{array.dtype}{list(array.shape)}"
                where = f" with {', '.join(f'{s} = {n}' for s, n in real.items())}" if real else ""
                raise InputError(f"{self._model.name!r}: input {tensor} got {got}{where}")
        return real

    def _solved(self, given: Sequence[NDArray[Any]]) -> dict[str, int]:
        """Return the size of each symbol by the first axis that says it; sums say what is left of them."""
        real: dict[str, int] = {}
        sums: list[tuple[str, int]] = []
        for array, (shape, _) in zip(given, self._shapes, strict=True):
            for wanted, size in zip(shape, array.shape, strict=False):
                if isinstance(wanted, str):
                    if wanted in self._model.least:
                        real.setdefault(wanted, size)
                    else:
                        sums.append((wanted, size))
        for wanted, size in sums:
            symbols, number = terms_of(wanted)
            unknown = [symbol for symbol in symbols if symbol not in real]
            if len(unknown) == 1:
                rest = size - number - sum(real[symbol] for symbol in symbols if symbol in real)
                real[unknown[0]] = rest
        return {symbol: real.get(symbol, 0) for symbol in self._model.least}


class _AsTheyAre(Memory):
    """Constants stay where :func:`_in_one_place` has put them."""

    def constants(self, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        return list(arrays)


def _in_one_place(images: Sequence[ModuleImage]) -> tuple[ModuleImage, ...]:
    """Return the images with the constants that they share on pages of their own, each once."""
    places = {_where(array): array for image in images for array in image.constants}
    shared = dict(zip(places, HOST_MEMORY.constants(list(places.values())), strict=True))
    return tuple(
        replace(image, constants=tuple(shared[_where(array)] for array in image.constants))
        for image in images
    )


def _where(array: NDArray[Any]) -> tuple[int, tuple[int, ...], str]:
    return address_of(array), array.shape, str(array.dtype)


_modules: weakref.WeakSet[SizedModule] = weakref.WeakSet()


def _forget_streams() -> None:
    """Forget the requests in the child of a fork, where their threads do not exist."""
    for module in _modules:
        module._streams = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_streams)

__all__ = ["SizedModule"]
