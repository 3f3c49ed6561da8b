"""A compiled model that runs requests of any size: each takes the smallest bucket that it fits in."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InputError
from autotune.runtime.axes import parse_axis, size_of, terms_of
from autotune.runtime.compiled_model import refuse_pickling
from autotune.runtime.device import HOST_MEMORY, Memory, address_of
from autotune.runtime.image import ModuleImage, TensorSpec
from autotune.runtime.module import Module
from autotune.runtime.recycled import Recycled
from autotune.runtime.sized_model import SizedModel, SizedTensor
from autotune.runtime.sized_request import Cut, Place, Plan
from autotune.suggest import did_you_mean

_PLANS = 4096
"""Plans of requests' shapes that are kept."""
_LOGGER = logging.getLogger(__name__)


class SizedModule:
    """A model of open sizes, ready to run on this machine.

    A request whose sizes are those of a bucket runs as it is. Another one is copied into arrays of the smallest bucket
    that it fits in, zeros beyond it, and its part of the results is copied out. Buckets share their constants, and are
    loaded when the first request takes them. Sizes out of range are refused; or ``on_miss`` compiles for them, and the
    last ``kept`` modules of such are kept. Any thread may call. Arguments and errors: see
    :class:`autotune.runtime.module.Module`.
    """

    __reduce_ex__ = refuse_pickling

    def __init__(
        self,
        model: SizedModel,
        threads: int | None = None,
        *,
        on_miss: Callable[[dict[str, int]], ModuleImage] | None = None,
        kept: int = 4,
    ) -> None:
        model.verify()
        self._model = replace(model, images=_in_one_place(model.images))
        self._threads = threads
        self._places: dict[int, Place] = {}
        self._plans: dict[tuple[tuple[int, ...], ...], Plan] = {}
        self._outputs = [tuple(tuple(map(parse_axis, axes)) for axes in b.outputs) for b in model.buckets]
        self._names = {tensor.name: None for tensor in model.inputs}
        self._dtypes = [np.dtype(tensor.dtype) for tensor in model.inputs]
        self._memory = Recycled(2 * len(model.outputs))  # a cache given, and the longer one
        self._on_miss = on_miss
        self._kept = kept
        self._missed: dict[tuple[int, ...], Place] = {}
        """Of sizes out of the ranges, the last ones used at the end."""
        self._missing = threading.Lock()

    @property
    def inputs(self) -> tuple[SizedTensor, ...]:
        """Return the inputs of a call, in order."""
        return self._model.inputs

    @property
    def sizes(self) -> dict[str, list[int]]:
        """Sizes of each symbol that something was compiled for, ascending."""
        return self._model.sizes

    @property
    def model(self) -> SizedModel:
        """The compiled model as values."""
        return self._model

    @property
    def threads(self) -> int:
        """Workers, the calling thread among them."""
        return self.module(0).threads

    def specs(self, sizes: Mapping[str, int] | None = None) -> tuple[TensorSpec, ...]:
        """Return the inputs of a request of such sizes; the largest there may be, where none is given."""
        largest = {symbol: compiled[-1] for symbol, compiled in self.sizes.items()}
        return tuple(tensor.spec({**largest, **(sizes or {})}) for tensor in self.inputs)

    def module(self, bucket: int) -> Module:
        """Return the module of a bucket, by its number in ``model.buckets``; its arrays have the bucket's sizes."""
        return self._place(bucket).module

    def __call__(self, *arrays: Any) -> list[NDArray[Any]]:
        """Run the model; returns its outputs in order, freshly allocated.

        Raises InputError for arrays of the wrong number, shape or dtype, and for sizes out of range.
        """
        given = tuple([np.asarray(array) for array in arrays])
        plan = self._plans.get(tuple([array.shape for array in given]))
        if plan is None or any(
            array.dtype != dtype for array, dtype in zip(given, self._dtypes, strict=True)
        ):
            plan = self._plan(given)
        return plan.run(given)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Run the model by name; raises InputError for missing or unknown names too."""
        if inputs.keys() != self._names.keys():
            self._check_names(inputs)
        found = self(*[inputs[name] for name in self._names])
        return dict(zip(self._model.outputs, found, strict=True))

    def time(self, inputs: Mapping[str, Any], *, warmup: int = 1, repeat: int = 10) -> NDArray[np.int64]:
        """Return nanoseconds of each of ``repeat`` runs, with what it takes to copy a request in and out."""
        for _ in range(warmup):
            self.run(inputs)
        times = []
        for _ in range(repeat):
            begin = time.perf_counter_ns()
            self.run(inputs)
            times.append(time.perf_counter_ns() - begin)
        return np.array(times, np.int64)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the compiled model to a file that :func:`autotune.load` reads; raises ArtifactError."""
        from autotune.runtime import sized_artifact

        sized_artifact.save(self._model, path)

    def close(self) -> None:
        """Free the memory and code of all buckets, after the runs in progress; later calls fail."""
        for place in (*self._places.values(), *self._missed.values()):
            place.module.close()

    def __enter__(self) -> SizedModule:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        spans = (f"{s}={self._model.least[s]}..{compiled[-1]}" for s, compiled in self.sizes.items())
        return (
            f"<SizedModule {self._model.name!r} ({'; '.join(map(str, self.inputs))}), {', '.join(spans)}, "
            f"{len(self._model.buckets)} buckets>"
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
            module = Module(self._model.images[number], self._threads, memory=_AsTheyAre())
            sizes = self._model.buckets[number].sizes
            # Two threads may make the same: one of them is dropped.
            self._places.setdefault(
                number, Place(module, self._outputs[number], sizes, len(self.inputs), self._memory)
            )
        return self._places[number]

    def _plan(self, given: tuple[NDArray[Any], ...]) -> Plan:
        """Return the plan of a request; raises InputError where its arrays are not those of one, or out of range."""
        real = self._sizes(given)
        try:
            number = self._model.bucket_of(real)
        except InputError:
            if self._on_miss is None:
                raise
            return Plan(self._beyond(real, self._on_miss), (), (), True)
        bucket = self._model.buckets[number]
        cuts = tuple(Cut.of(axes, bucket.sizes, real) for axes in self._outputs[number])
        sizes = tuple(np.array(real[symbol], np.int64) for symbol in bucket.given)
        plan = Plan(self._place(number), sizes, cuts, bucket.sizes == real)
        if len(self._plans) >= _PLANS:
            self._plans.clear()
        self._plans[tuple(array.shape for array in given)] = plan
        return plan

    def _beyond(self, real: dict[str, int], compiled: Callable[[dict[str, int]], ModuleImage]) -> Place:
        """Return the model compiled for exactly these sizes; the last ``kept`` of such are kept."""
        key = tuple(real.values())
        with self._missing:
            place = self._missed.pop(key, None)
            if place is None:
                begin = time.perf_counter()
                place = Place(Module(compiled(real), self._threads), (), real, len(self.inputs), self._memory)
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


__all__ = ["SizedModule"]
