"""Requests of certain shapes in a bucket: arrays that they are copied into, and copies out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InputError
from autotune.runtime.axes import Axes, Sizes, extents, real_part
from autotune.runtime.image import TensorSpec
from autotune.runtime.module import Module
from autotune.runtime.recording import Recording
from autotune.runtime.recycled import Recycled
from autotune.runtime.requests.request import Request

if TYPE_CHECKING:
    from autotune.runtime.placed_module import PlacedModule

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

    def part(self, array: NDArray[Any], memory: Recycled, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the part, in ``out`` or else in memory of its own."""
        part = array.reshape(self.factors)[self.slices]
        if out is not None:
            if out.flags.c_contiguous:
                out.reshape(part.shape)[...] = part
            else:
                out[...] = part.reshape(self.shape)
            return out
        found = memory.array(part.shape, array.dtype)
        found[...] = part
        return found.reshape(self.shape)


@dataclass
class Place:
    """A loaded bucket, with workspaces that wait for requests: as many as there were requests at once."""

    module: Module | PlacedModule
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
class RequestPlan:
    """The plan of requests of certain shapes: in a place, with these sizes behind their arrays."""

    place: Place
    given: tuple[NDArray[np.int64], ...]
    cuts: tuple[Cut | None, ...]
    is_whole: bool
    """True if a request has exactly the bucket's sizes."""

    def run(
        self,
        arrays: tuple[NDArray[Any], ...],
        out: Sequence[NDArray[Any]] | None = None,
        request: Request[Arrays] | None = None,
    ) -> Arrays:
        """Return the outputs of a request, in ``out`` if it is given; raises what the module does."""
        if self.is_whole:
            return self._call((*arrays, *self.given), None if out is None else [*out], request)
        if out is not None:
            self._check(out)
        workspace = self.place.workspace()
        try:
            workspace.take(arrays)
            wanted: Sequence[NDArray[Any] | None] = [None] * len(self.cuts) if out is None else out
            outputs = [
                array
                if cut is not None and array is not None
                else _empty(spec)
                if cut is not None or own is None
                else own
                for spec, cut, array, own in zip(
                    self.place.module.outputs, self.cuts, workspace.outputs, wanted, strict=True
                )
            ]
            found = self._call((*workspace.inputs, *self.given), outputs, request)
            return [
                array if cut is None else cut.part(array, self.place.memory, own)
                for array, cut, own in zip(found, self.cuts, wanted, strict=True)
            ]
        finally:
            self.place.waiting.append(workspace)

    def recording(self, arrays: tuple[NDArray[Any], ...], runs: int) -> Recording:
        """Return runs of the module on a request's arrays."""
        if self.is_whole:
            return self.place.module.recording((*arrays, *self.given), runs)
        workspace = self.place.workspace()
        try:
            workspace.take(arrays)
            return self.place.module.recording((*workspace.inputs, *self.given), runs)
        finally:
            self.place.waiting.append(workspace)

    def _call(
        self, arrays: tuple[NDArray[Any], ...], out: Arrays | None, request: Request[Arrays] | None
    ) -> Arrays:
        module = self.place.module
        return module.call(arrays, out) if request is None else module.answer(arrays, out, request)

    def _check(self, out: Sequence[NDArray[Any]]) -> None:
        """Raise InputError for arrays that are not those of the outputs; the module checks those that it writes."""
        specs = self.place.module.outputs
        if len(out) != len(specs):
            raise InputError(f"there are {len(specs)} outputs, and {len(out)} arrays were given for them")
        for spec, cut, array in zip(specs, self.cuts, out, strict=True):
            shape = spec.shape if cut is None else cut.shape
            if array.shape != shape or array.dtype != np.dtype(spec.dtype):
                raise InputError(
                    f"output {spec.name}: expected {spec.dtype}{[*shape]}, got {array.dtype}{[*array.shape]}"
                )


def _empty(spec: TensorSpec) -> NDArray[Any]:
    return np.empty(spec.shape, spec.dtype)


__all__ = ["Cut", "Place", "RequestPlan"]
