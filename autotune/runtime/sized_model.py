"""A compiled model of open sizes as values: an image for each bucket of sizes, and where a request lies in it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import ArtifactError, InputError
from autotune.runtime.axes import Axes, extents, parse_axis, shape_text, symbols_of
from autotune.runtime.hashes import DATA, hash_of
from autotune.runtime.image import ModuleImage, TensorSpec


@dataclass(frozen=True)
class SizedTensor:
    """An input or output; ``axes`` as :func:`autotune.runtime.axes.axis_text` writes them."""

    name: str
    dtype: str
    axes: tuple[str, ...]

    @property
    def shape(self) -> Axes:
        """Its axes, with the factors that grow."""
        return tuple(map(parse_axis, self.axes))

    def spec(self, sizes: Mapping[str, int]) -> TensorSpec:
        """Return the tensor for such sizes."""
        return TensorSpec(self.name, extents(self.shape, sizes), self.dtype)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{shape_text(self.shape)}"


@dataclass(frozen=True)
class SizeBucket:
    """For what sizes an image is; after the model's inputs it takes the request's sizes of ``given`` symbols, int64.

    ``outputs`` are the axes of its outputs; symbols are factors of those of which a request may have less.
    """

    sizes: Mapping[str, int]
    given: tuple[str, ...]
    outputs: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class SizedModel:
    """A model for all sizes from ``least`` up to those of its largest bucket; a request takes the smallest that fits.

    ``images`` and ``buckets`` are in the same order: every combination of the buckets of the symbols.
    """

    name: str
    inputs: tuple[SizedTensor, ...]
    outputs: tuple[str, ...]
    least: Mapping[str, int]
    buckets: tuple[SizeBucket, ...]
    images: tuple[ModuleImage, ...]

    @cached_property
    def sizes(self) -> dict[str, list[int]]:
        """Sizes of each symbol that something was compiled for, ascending."""
        return sizes_of(self.buckets, self.least)

    def bucket_of(self, real: Mapping[str, int]) -> int:
        """Return the number of the bucket that a request of such sizes takes. Raises InputError for
        sizes out of range."""
        chosen = []
        for symbol, compiled in self.sizes.items():
            at = bisect_left(compiled, real[symbol])
            if at == len(compiled) or real[symbol] < self.least[symbol]:
                raise InputError(
                    f"{self.name!r} takes {symbol} from {self.least[symbol]} to {compiled[-1]}, got {real[symbol]}; "
                    f"compile it for more: --shape {symbol}={min(self.least[symbol], real[symbol])}.."
                    f"{max(compiled[-1], real[symbol])}"
                )
            chosen.append(compiled[at])
        return self._numbers[tuple(chosen)]

    @cached_property
    def _numbers(self) -> dict[tuple[int, ...], int]:
        """The number of each bucket, by its sizes in the order of ``least``."""
        return {
            tuple(bucket.sizes[symbol] for symbol in self.least): i for i, bucket in enumerate(self.buckets)
        }

    def verify(self) -> None:
        """Raise ArtifactError where buckets and images do not fit each other."""
        symbols = {symbol for tensor in self.inputs for symbol in symbols_of(tensor.shape)}
        if not self.buckets or len(self.buckets) != len(self.images) or {*self.least} != symbols:
            raise ArtifactError("a model of open sizes has an image a bucket, and buckets for each open size")
        combinations = [dict(zip(self.sizes, each, strict=True)) for each in product(*self.sizes.values())]
        for bucket, image in zip(self.buckets, self.images, strict=True):
            wrong = bucket.sizes.keys() != symbols or not {*bucket.given} <= symbols
            wrong = wrong or bucket.sizes not in combinations or len(combinations) != len(self.buckets)
            own = () if wrong else tuple(tensor.spec(bucket.sizes) for tensor in self.inputs)
            more = tuple((spec.shape, spec.dtype) for spec in image.inputs[len(own) :])
            outputs = [tuple(map(parse_axis, axes)) for axes in bucket.outputs]
            factors = {symbol for axes in outputs for symbol in symbols_of(axes)}
            if (
                wrong
                or image.inputs[: len(own)] != own
                or more != (((), "int64"),) * len(bucket.given)
                or tuple(spec.name for spec in image.outputs) != self.outputs
                or not factors <= symbols
                or [extents(axes, bucket.sizes) for axes in outputs] != [spec.shape for spec in image.outputs]
            ):
                raise ArtifactError(f"the image for {dict(bucket.sizes)} is not one of this model")


def with_shared_constants(images: Sequence[ModuleImage]) -> tuple[ModuleImage, ...]:
    """Return the images with equal constants as one array, as those of an artifact are."""
    found: dict[tuple[tuple[int, ...], str, str], NDArray[Any]] = {}

    def shared(array: NDArray[Any]) -> NDArray[Any]:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        return found.setdefault((array.shape, str(array.dtype), hash_of(DATA, data)), array)

    return tuple(replace(image, constants=tuple(map(shared, image.constants))) for image in images)


def sizes_of(buckets: Sequence[SizeBucket], symbols: Mapping[str, int]) -> dict[str, list[int]]:
    """Return sizes of each symbol that there are buckets of, ascending."""
    return {symbol: sorted({bucket.sizes.get(symbol, 0) for bucket in buckets}) for symbol in symbols}


__all__ = ["SizeBucket", "SizedModel", "SizedTensor", "sizes_of", "with_shared_constants"]
