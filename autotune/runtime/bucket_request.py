"""Requests of certain shapes in a bucket: arrays that they are copied into, and copies out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InputError
from autotune.runtime.arguments import shared
from autotune.runtime.axes import Axes, Sizes, extents, real_part
from autotune.runtime.cpu.device import address_of
from autotune.runtime.image import TensorSpec
from autotune.runtime.loaded import LoadedCase
from autotune.runtime.recording import Recording
from autotune.runtime.recycled import Recycled
from autotune.runtime.requests.request import Request

Arrays = list[NDArray[Any]]


@dataclass
class Workspace:
    """Arrays of a bucket's sizes for one request at a time: of the inputs, and of the outputs that are cut (else None).

    ``filled`` are the shapes that requests have left in those of the inputs; beyond are zeros.
    """

    inputs: Arrays
    outputs: list[NDArray[Any] | None]
    filled: list[tuple[int, ...]]

    def take(self, given: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """Return a request's arrays in the bucket's sizes: those of other sizes are copied in."""
        return [self._taken(place, array) for place, array in enumerate(given)]

    def _taken(self, place: int, array: NDArray[Any]) -> NDArray[Any]:
        whole, before = self.inputs[place], self.filled[place]
        if array.shape == whole.shape:
            return array
        if before != array.shape and any(old > new for old, new in zip(before, array.shape, strict=True)):
            whole.fill(0)
        self.filled[place] = array.shape  # first: Ctrl-C may come in between
        whole[tuple(map(slice, array.shape))] = array
        return whole


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

    case: LoadedCase
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
            specs = self.case.inputs[: self.count]
            grown = [any(isinstance(f, str) for each in axes for f in each) for axes in self.axes]
            made = zip(self.case.outputs, grown, strict=True)
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
        out: Sequence[Any] | None = None,
        request: Request[Arrays] | None = None,
    ) -> Arrays:
        """Return the outputs of a request, in ``out`` if it is given; raises what its call does."""
        if out is not None:
            wanted = [shared(each) for each in out]
            self._check(wanted)
            self._run(arrays, wanted, request)
            return [*out]
        if self.is_whole:
            return self._call((*arrays, *self.given), None, request)
        return self._run(arrays, [None] * len(self.cuts), request)

    def _run(
        self,
        arrays: tuple[NDArray[Any], ...],
        wanted: Sequence[NDArray[Any] | None],
        request: Request[Arrays] | None,
    ) -> Arrays:
        """Return the outputs, those that are wanted somewhere there, also where that is memory that is read or strided:
        the way of a cache that is bound."""
        workspace = None if self.is_whole else self.place.workspace()
        try:
            read: Sequence[NDArray[Any]] = arrays
            rooms: Sequence[NDArray[Any] | None] = wanted  # there are cuts in a workspace only
            if workspace is not None:
                read, rooms = workspace.take(arrays), workspace.outputs
            case = self.place.case
            written = zip(case.outputs, self.cuts, rooms, wanted, strict=True)
            outputs = [_written(*each, read, case.in_place.get(n, -1)) for n, each in enumerate(written)]
            found = self._call((*read, *self.given), outputs, request)
            return [
                _put(array, own) if cut is None else cut.part(array, self.place.memory, own)
                for array, cut, own in zip(found, self.cuts, wanted, strict=True)
            ]
        finally:
            if workspace is not None:
                self.place.waiting.append(workspace)

    def recording(self, arrays: tuple[NDArray[Any], ...], runs: int, in_flight: int) -> Recording:
        """Return runs of the bucket on a request's arrays."""
        if self.is_whole:
            return self.place.case.recording((*arrays, *self.given), runs, in_flight)
        workspace = self.place.workspace()
        try:
            return self.place.case.recording((*workspace.take(arrays), *self.given), runs, in_flight)
        finally:
            self.place.waiting.append(workspace)

    def _call(
        self, arrays: tuple[NDArray[Any], ...], out: Arrays | None, request: Request[Arrays] | None
    ) -> Arrays:
        case = self.place.case
        return case.call(arrays, out) if request is None else case.answer(arrays, out, request)

    def _check(self, out: Sequence[NDArray[Any]]) -> None:
        """Raise InputError for arrays that are not those of the outputs; a call checks those that it writes."""
        specs = self.place.case.outputs
        if len(out) != len(specs):
            raise InputError(f"there are {len(specs)} outputs, and {len(out)} arrays were given for them")
        for spec, cut, array in zip(specs, self.cuts, out, strict=True):
            shape = spec.shape if cut is None else cut.shape
            if array.shape != shape or array.dtype != np.dtype(spec.dtype):
                raise InputError(
                    f"output {spec.name}: expected {spec.dtype}{[*shape]}, got {array.dtype}{[*array.shape]}"
                )


def _written(
    spec: TensorSpec,
    cut: Cut | None,
    room: NDArray[Any] | None,
    own: NDArray[Any] | None,
    read: Sequence[NDArray[Any]],
    place: int,
) -> NDArray[Any]:
    """Return the array that a run writes an output to: the caller's, if all of it is the request's, dense, and not
    memory that is read, other than all of input ``place``."""
    if cut is not None:
        return _empty(spec) if room is None else room
    if own is None or not own.flags.c_contiguous:
        return _empty(spec)
    for number, array in enumerate(read):
        in_place = number == place and address_of(own) == address_of(array) and array.flags.c_contiguous
        if not in_place and np.may_share_memory(own, array):
            return _empty(spec)
    return own


def _put(array: NDArray[Any], own: NDArray[Any] | None) -> NDArray[Any]:
    """Return the array, or what is wanted in its place with its values."""
    if own is None or own is array:
        return array
    own[...] = array
    return own


def _empty(spec: TensorSpec) -> NDArray[Any]:
    return np.empty(spec.shape, spec.dtype)


__all__ = ["Cut", "Place", "RequestPlan"]
