"""Runs code of a schedule with a fence around every buffer, tiles one at a time, backwards."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from autotune.codegen.backend import compile_schedule
from autotune.codegen.code import BufferSpec, DispatchCode
from autotune.codegen.jit import LoadedCode
from autotune.codegen.numba.backend import NumbaCode
from autotune.schedule import Schedule
from autotune.target import Target
from autotune.te.tensor import Tensor

FENCE = 256
PATTERN = 0xA5
_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


class FenceError(AssertionError):
    """A kernel wrote outside of a buffer."""


@cache
def host() -> Target:
    """The target of the tests: this machine, one thread."""
    return Target.detect(threads=1)


@cache
def numba_target() -> Target:
    """Code for numba, run by one of its threads."""
    return Target("numba", "numba", (), 128, cores=1, threads=1)


@cache
def runnable_target(name: str) -> Target:
    """The named target where this machine can run its code, else the host."""
    target = Target.parse(name, threads=1)
    return host() if host().lacks(target) else target


class _Fenced:
    """64-byte aligned memory of a buffer between two fences; it starts full of PATTERN."""

    def __init__(self, nbytes: int) -> None:
        self._memory = np.full(nbytes + 2 * FENCE + 64, PATTERN, np.uint8)
        self._first = FENCE + -(self._memory.ctypes.data + FENCE) % 64
        self._last = self._first + nbytes
        self.bytes = self._memory[self._first : self._last]
        self.address = int(self._memory.ctypes.data + self._first)

    def check(self, name: str) -> None:
        for side, part in (("before", self._memory[: self._first]), ("after", self._memory[self._last :])):
            if (part != PATTERN).any():
                raise FenceError(f"machine code wrote {side} {name}")


def run_machine_code(
    schedule: Schedule,
    args: list[Tensor],
    arrays: dict[str, Any],
    *,
    target: Target | None = None,
    constants: frozenset[str] = frozenset(),
    strides: Mapping[str, tuple[int, ...]] | None = None,
) -> dict[str, Any]:
    """Values of the outputs by name; ``arrays`` are the inputs."""
    strides = strides or {}
    code = compile_schedule(
        schedule, args, target or host(), name="fuzz", constants=constants, strides=strides
    )
    memory = [_Fenced(spec.nbytes) for spec in code.buffers]
    views = [
        _view(spec, block, strides.get(spec.name)) for spec, block in zip(code.buffers, memory, strict=True)
    ]
    before = []
    for spec, block, view in zip(code.buffers, memory, views, strict=True):
        if spec.role == "input":
            view[...] = arrays[spec.name]
        before.append(block.bytes.copy())
    if isinstance(code, NumbaCode):
        _run_numba(code, views)
    else:
        _run(code, memory)
    result = {}
    for spec, block, view, old in zip(code.buffers, memory, views, before, strict=True):
        block.check(spec.name)
        if spec.role == "input" and (block.bytes != old).any():
            raise FenceError(f"machine code wrote into the input {spec.name}")
        if spec.role == "output":
            result[spec.name] = view.copy()
            raw = view.view(np.uint8) if view.dtype == bool else view  # as a bool the pattern would become 1
            raw[...] = np.full(1, PATTERN, np.uint8).repeat(raw.itemsize).view(raw.dtype)[0]
            if (block.bytes != PATTERN).any():
                raise FenceError(f"machine code wrote between the elements of {spec.name}")
    return result


def _run(code: DispatchCode, memory: list[_Fenced]) -> None:
    loaded = LoadedCode([code.object_code])
    try:
        for kernel in code.kernels:
            table = np.array([memory[b].address for b in kernel.buffers] or [0], np.int64)
            scratch = _Fenced(max(kernel.scratch_bytes, 1))
            entry = _KERNEL(loaded.address(0, kernel.symbol))
            for tile in reversed(range(kernel.tiles)):
                entry(table.ctypes.data, tile, tile + 1, scratch.address)
            scratch.check(f"the scratch of {kernel.symbol}")
    finally:
        loaded.close()


def _run_numba(code: NumbaCode, views: list[Any]) -> None:
    for number, kernel in enumerate(code.kernels):
        for tile in reversed(range(kernel.tiles)):
            code.run(number, [views[b] for b in kernel.buffers], tile, tile + 1)


def _view(spec: BufferSpec, block: _Fenced, strides: tuple[int, ...] | None) -> Any:
    """The elements of a buffer as an array."""
    flat = block.bytes.view(spec.dtype)
    if strides is None:
        return flat[: math.prod(spec.shape)].reshape(spec.shape)
    steps = tuple(s * flat.itemsize for s in strides)
    return np.lib.stride_tricks.as_strided(flat, spec.shape, steps)
