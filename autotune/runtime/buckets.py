"""Buckets of a model with dynamic shapes: each request takes the smallest that it fits in."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InputError, UsageError
from autotune.runtime.axes import parse_axis, size_of, terms_of
from autotune.runtime.bucket_request import Cut, Place, RequestPlan
from autotune.runtime.compiled import Compiled
from autotune.runtime.loaded import LoadedCase, Results, times_of
from autotune.runtime.programs.device_program import DeviceProgram
from autotune.runtime.recording import Recording
from autotune.runtime.recycled import Recycled
from autotune.runtime.requests.request import Request
from autotune.runtime.requests.streams import Streams
from autotune.suggest import counted

OnMiss: TypeAlias = Callable[[dict[str, int]], DeviceProgram]
"""Compiles for exactly these sizes."""
_PLANS = 4096
"""Plans of requests' shapes that are kept."""
_LOGGER = logging.getLogger(__name__)


class LoadedBuckets:
    """A model with dynamic shapes: see :class:`autotune.runtime.module.Module`.

    A request whose sizes are those of a bucket runs as it is. Another one is copied into arrays of the smallest bucket
    that it fits in, zeros beyond it, and its part of the results is copied out. Buckets share their constants, and are
    loaded by ``load`` when the first request takes them. Sizes out of range are refused; or ``on_miss`` compiles for
    them, ``load_missed`` loads that, and the last ``kept`` of such are kept.
    """

    in_flight = 1

    def __init__(
        self,
        model: Compiled,
        load: Callable[[DeviceProgram], LoadedCase],
        load_missed: Callable[[DeviceProgram], LoadedCase],
        *,
        on_miss: OnMiss | None = None,
        kept: int = 4,
        room: int = 1024,
    ) -> None:
        self._model = model
        self._load = load
        self._load_missed = load_missed
        self._places: dict[int, Place] = {}
        self._plans: dict[tuple[tuple[int, ...], ...], RequestPlan] = {}
        self._outputs = [tuple(tuple(map(parse_axis, axes)) for axes in c.outputs) for c in model.cases]
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
    def threads(self) -> int:
        """Workers, the calling thread among them."""
        return self.bucket(0).threads

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that it runs on."""
        return self.bucket(0).devices

    def bucket(self, number: int) -> LoadedCase:
        """Return a bucket by its number in the cases of the model; its arrays have the bucket's sizes."""
        return self._place(number).case

    def call(self, arrays: tuple[Any, ...], out: Results | None) -> Results:
        """Return the outputs; ``out`` has arrays of the request's shapes. Raises InputError also for sizes out of
        range."""
        return self._call(arrays, out, None)

    def _call(
        self,
        arrays: Sequence[Any],
        out: Sequence[NDArray[Any]] | None,
        request: Request[Results] | None,
    ) -> Results:
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
        self, requests: Iterable[Sequence[Any]], timeout: float | None, deadline: float | None
    ) -> list[Request[Results]]:
        """Run several requests in the background."""
        if self._closed:
            raise UsageError(f"the module {self._model.name!r} is closed")
        if self._streams is None:
            self._streams = Streams(f"module {self._model.name!r}", self.threads, self._room)
        calls = [partial(self._call, tuple(arrays), None) for arrays in requests]
        return self._streams.submit(calls, timeout, deadline)

    def time(
        self, arrays: Sequence[Any], out: Results | None, warmup: int, repeat: int, min_ns: int
    ) -> NDArray[np.int64]:
        """Return nanoseconds of each run, with what it takes to copy a request in and out."""
        return times_of(lambda: self.call(tuple(arrays), out), warmup, repeat, min_ns)

    def recording(self, arrays: Sequence[Any], runs: int, in_flight: int) -> Recording:
        """Return runs of the bucket that a request takes."""
        given = tuple(np.asarray(array) for array in arrays)
        return self._planned(given).recording(given, runs, in_flight)

    def close(self) -> None:
        """Free the memory and code of all buckets, after the runs in progress; later calls fail."""
        self._closed = True
        for place in (*self._places.values(), *self._missed.values()):
            place.case.close()

    def describe(self) -> str:
        """Return the ranges and the number of buckets."""
        spans = (f"{s}={self._model.least[s]}..{found[-1]}" for s, found in self._model.sizes.items())
        return f"{', '.join(spans)}, {counted(len(self._model.cases), 'bucket')}"

    @property
    def _count(self) -> int:
        return len(self._model.inputs)

    @cached_property
    def _shapes(self) -> list[tuple[tuple[int | str, ...], str]]:
        """Of each input: its axes, each a size or a symbol, and dtype."""
        return [
            (tuple(each[0] if each else 1 for each in tensor.shape), tensor.dtype)
            for tensor in self._model.inputs
        ]

    def _place(self, number: int) -> Place:
        if number not in self._places:
            case = self._model.cases[number]
            made = Place(
                self._load(case.program), self._outputs[number], case.sizes, self._count, self._memory
            )
            self._places.setdefault(number, made)  # two threads may make the same: one of them is dropped
        return self._places[number]

    def _plan(self, given: tuple[NDArray[Any], ...]) -> RequestPlan:
        """Return the plan of a request; raises InputError where its arrays are not those of one, or out of range."""
        real = self._sizes(given)
        try:
            number = self._model.bucket_of(real)
        except InputError:
            if self._on_miss is None:
                raise
            place = self._beyond(real, self._on_miss)
            return RequestPlan(place, (), (None,) * len(place.case.outputs), True)
        bucket = self._model.cases[number]
        cuts = tuple(Cut.of(axes, bucket.sizes, real) for axes in self._outputs[number])
        sizes = tuple(np.array(size_of(factor, real), np.int64) for factor in bucket.given)
        plan = RequestPlan(self._place(number), sizes, cuts, bucket.sizes == real)
        if len(self._plans) >= _PLANS:
            self._plans.clear()
        self._plans[tuple(array.shape for array in given)] = plan
        return plan

    def _beyond(self, real: dict[str, int], compiled: OnMiss) -> Place:
        """Return the model compiled for exactly these sizes; the last ``kept`` of such are kept."""
        key = tuple(real.values())
        with self._missing:
            place = self._missed.pop(key, None)
            if place is None:
                begin = time.perf_counter()
                place = Place(self._load_missed(compiled(real)), (), real, self._count, self._memory)
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
        if len(given) != len(self._model.inputs):
            listed = "; ".join(map(str, self._model.inputs))
            raise InputError(
                f"{self._model.name!r} takes {len(self._model.inputs)} inputs, got {len(given)}; expected {listed}"
            )
        real = self._solved(given)
        for tensor, array, (shape, dtype) in zip(self._model.inputs, given, self._shapes, strict=True):
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


_modules: weakref.WeakSet[LoadedBuckets] = weakref.WeakSet()


def _forget_streams() -> None:
    """Forget the requests in the child of a fork, where their threads do not exist."""
    for module in _modules:
        module._streams = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_streams)

__all__ = ["LoadedBuckets", "OnMiss"]
