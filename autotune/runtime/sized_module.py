"""A compiled model that runs requests of any size: each takes the smallest bucket that it fits in."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InputError
from autotune.runtime.axes import extents, parse_axis, real_part, size_of, terms_of
from autotune.runtime.device import HOST_MEMORY, Memory
from autotune.runtime.hashes import DATA, hash_of
from autotune.runtime.image import ModuleImage, TensorSpec
from autotune.runtime.module import Module
from autotune.runtime.sized_model import SizeBucket, SizedModel, SizedTensor
from autotune.suggest import did_you_mean


class SizedModule:
    """A model of open sizes, ready to run on this machine.

    A request whose sizes are those of a bucket runs as it is. Another one is copied into arrays of the smallest bucket
    that it fits in, zeros beyond it, and its part of the results is copied out. Buckets share their constants, and are
    loaded when the first request takes them. Any thread may call. Arguments and errors: see
    :class:`autotune.runtime.module.Module`.
    """

    def __init__(self, model: SizedModel, threads: int | None = None) -> None:
        model.verify()
        self._model = replace(model, images=_sharing(model.images))
        self._threads = threads
        self._modules: dict[int, Module] = {}
        self._outputs = [tuple(tuple(map(parse_axis, axes)) for axes in b.outputs) for b in model.buckets]

    @property
    def inputs(self) -> tuple[SizedTensor, ...]:
        """What a call takes, in order."""
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
        """The inputs of a request of such sizes; the largest there may be, where none is given."""
        largest = {symbol: compiled[-1] for symbol, compiled in self.sizes.items()}
        return tuple(tensor.spec({**largest, **(sizes or {})}) for tensor in self.inputs)

    def module(self, bucket: int) -> Module:
        """The module of a bucket, by its number in ``model.buckets``; its arrays have the bucket's sizes."""
        if bucket not in self._modules:
            image = self._model.images[bucket]
            # Two threads may make the same: one of them is dropped.
            self._modules.setdefault(bucket, Module(image, self._threads, memory=_AsTheyAre()))
        return self._modules[bucket]

    def __call__(self, *arrays: Any) -> list[NDArray[Any]]:
        """Run the model; returns its outputs in order, freshly allocated.

        Raises InputError for arrays of the wrong number, shape or dtype, and for sizes out of range.
        """
        real, given = self._sizes(arrays)
        number = self._model.bucket_of(real)
        bucket = self._model.buckets[number]
        sizes = [np.array(real[symbol], np.int64) for symbol in bucket.given]
        if bucket.sizes == real:
            return self.module(number)(*given, *sizes)
        found = self.module(number)(*self._padded(bucket, given), *sizes)
        return [
            _cut(a, axes, bucket.sizes, real) for a, axes in zip(found, self._outputs[number], strict=True)
        ]

    def run(self, inputs: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Run the model by name; raises InputError for missing or unknown names too."""
        names = [tensor.name for tensor in self.inputs]
        for name in inputs:
            if name not in names:
                raise InputError(
                    f"{self._model.name!r} has no input {name!r}{did_you_mean(str(name), names)}"
                )
        missing = [str(tensor) for tensor in self.inputs if tensor.name not in inputs]
        if missing:
            raise InputError(f"{self._model.name!r} takes {'; '.join(missing)} too")
        found = self(*(inputs[name] for name in names))
        return dict(zip(self._model.outputs, found, strict=True))

    def time(self, inputs: Mapping[str, Any], *, warmup: int = 1, repeat: int = 10) -> NDArray[np.int64]:
        """Nanoseconds of each of ``repeat`` runs, with what it takes to copy a request in and out."""
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
        for module in self._modules.values():
            module.close()

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

    def _sizes(self, arrays: Sequence[Any]) -> tuple[dict[str, int], list[NDArray[Any]]]:
        """Sizes of a request, and its arrays; raises InputError where they contradict one another."""
        if len(arrays) != len(self.inputs):
            listed = "; ".join(map(str, self.inputs))
            raise InputError(
                f"{self._model.name!r} takes {len(self.inputs)} inputs, got {len(arrays)}; expected {listed}"
            )
        given = [np.asarray(array) for array in arrays]
        real = self._solved(given)
        for tensor, array, (shape, dtype) in zip(self.inputs, given, self._shapes, strict=True):
            fits = array.dtype == dtype and array.ndim == len(shape)
            fits = fits and array.shape == tuple(size_of(wanted, real) for wanted in shape)
            if not fits:
                got = f"{array.dtype}{list(array.shape)}"
                where = f" with {', '.join(f'{s} = {n}' for s, n in real.items())}" if real else ""
                raise InputError(f"{self._model.name!r}: input {tensor} got {got}{where}")
        return real, given

    def _solved(self, given: Sequence[NDArray[Any]]) -> dict[str, int]:
        """The size of each symbol by the first axis that says it; sums say what is left of them."""
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

    def _padded(self, bucket: SizeBucket, given: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        found = []
        for tensor, array in zip(self.inputs, given, strict=True):
            whole = np.zeros(extents(tensor.shape, bucket.sizes), array.dtype)
            whole[tuple(map(slice, array.shape))] = array
            found.append(whole)
        return found


class _AsTheyAre(Memory):
    """Constants stay where :func:`_sharing` has put them."""

    def constants(self, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        return list(arrays)


def _sharing(images: Sequence[ModuleImage]) -> tuple[ModuleImage, ...]:
    """The images with equal constants in one place."""
    places: dict[tuple[tuple[int, ...], str, str], NDArray[Any]] = {}
    keys = [
        [
            (
                array.shape,
                str(array.dtype),
                hash_of(DATA, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data),
            )
            for array in image.constants
        ]
        for image in images
    ]
    for image, named in zip(images, keys, strict=True):
        places.update(zip(named, image.constants, strict=True))
    shared = dict(zip(places, HOST_MEMORY.constants(list(places.values())), strict=True))
    return tuple(
        replace(image, constants=tuple(shared[key] for key in named))
        for image, named in zip(images, keys, strict=True)
    )


def _cut(array: NDArray[Any], axes: Any, sizes: Mapping[str, int], real: Mapping[str, int]) -> NDArray[Any]:
    """The part of a bucket's result that is a request's, in memory of its own."""
    factors, slices, shape = real_part(axes, sizes, real)
    return np.array(array.reshape(factors)[slices].reshape(shape), order="C")


__all__ = ["SizedModule"]
