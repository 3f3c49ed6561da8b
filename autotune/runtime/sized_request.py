"""Requests of certain shapes in a bucket: arrays that they are copied into, and copies out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.runtime.axes import Axes, Sizes, extents, real_part
from autotune.runtime.image import TensorSpec
from autotune.runtime.module import Module
from autotune.runtime.recycled import Recycled

Arrays = list[NDArray[Any]]


@dataclass
class Workspace:
    """Arrays of a bucket's sizes for one request at a time: of the inputs, and of the outputs that are cut (else None).

    ``filled`` are the shapes that requests have left in those of the inputs; beyond are zeros.
    """

    inputs: Arrays
    outputs: list[NDArray[Any] | None]
    filled: list[tuple[int, ...]]

    def take(self, given: Sequence[NDArray[Any]]) -> None:
        """Copy a request's arrays in."""
        for place, (whole, array) in enumerate(zip(self.inputs, given, strict=True)):
            before = self.filled[place]
            if before != array.shape and any(old > new for old, new in zip(before, array.shape, strict=True)):
                whole.fill(0)
            self.filled[place] = array.shape  # first: Ctrl-C may come in between
            whole[tuple(map(slice, array.shape))] = array


@dataclass(frozen=True)
class Cut:
    """The request's part of an output: an axis for each factor, slices of these, and the part's shape."""

    factors: tuple[int, ...]
    slices: tuple[slice, ...]
    shape: tuple[int, ...]

    @staticmethod
    def of(axes: Axes, sizes: Sizes, real: Sizes) -> Cut | None:
        """Return the cut; None where all of the output is the request's."""
        factors, slices, shape = real_part(axes, sizes, real)
        return None if shape == extents(axes, sizes) else Cut(factors, slices, shape)

    def part(self, array: NDArray[Any], memory: Recycled) -> NDArray[Any]:
        """Return the part, in memory of its own."""
        part = array.reshape(self.factors)[self.slices]
        found = memory.array(part.shape, array.dtype)
        found[...] = part
        return found.reshape(self.shape)


@dataclass
class Place:
    """A loaded bucket, with workspaces that wait for requests: as many as there were requests at once."""

    module: Module
    axes: tuple[Axes, ...]
    sizes: Sizes
    count: int
    """Inputs of the model: those behind are sizes."""
    memory: Recycled
    """The destination of parts of outputs."""
    waiting: list[Workspace] = field(default_factory=list)

    def workspace(self) -> Workspace:
        """Return one that no other request has; it is given back to ``waiting``."""
        try:
            return self.waiting.pop()
        except IndexError:
            specs = self.module.inputs[: self.count]
            grown = [any(isinstance(f, str) for each in axes for f in each) for axes in self.axes]
            made = zip(self.module.outputs, grown, strict=True)
            return Workspace(
                [np.zeros(spec.shape, spec.dtype) for spec in specs],
                [_empty(spec) if grows else None for spec, grows in made],
                [(0,) * len(spec.shape) for spec in specs],
            )


@dataclass(frozen=True)
class Plan:
    """The plan of requests of certain shapes: in a place, with these sizes behind their arrays."""

    place: Place
    given: tuple[NDArray[np.int64], ...]
    cuts: tuple[Cut | None, ...]
    is_whole: bool
    """True if a request has exactly the bucket's sizes."""

    def run(self, arrays: tuple[NDArray[Any], ...]) -> Arrays:
        """Return the outputs of a request, freshly allocated; raises what the module does."""
        if self.is_whole:
            return self.place.module.call((*arrays, *self.given), None)
        workspace = self.place.workspace()
        try:
            workspace.take(arrays)
            outputs = [
                _empty(spec) if cut is None or array is None else array
                for spec, cut, array in zip(
                    self.place.module.outputs, self.cuts, workspace.outputs, strict=True
                )
            ]
            found = self.place.module.call((*workspace.inputs, *self.given), outputs)
            return [
                array if cut is None else cut.part(array, self.place.memory)
                for array, cut in zip(found, self.cuts, strict=True)
            ]
        finally:
            self.place.waiting.append(workspace)


def _empty(spec: TensorSpec) -> NDArray[Any]:
    return np.empty(spec.shape, spec.dtype)


__all__ = ["Cut", "Place", "Plan"]
