"""Kernels that read constants only (packed weights) run once, here, at compile time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from autotune.codegen.backend import backend_for
from autotune.codegen.code import BufferSpec, DispatchCode
from autotune.compiler.planned import Planned, apply
from autotune.errors import InternalError
from autotune.files import give_up_pages
from autotune.graph.ir import Array
from autotune.lower.program import lower_schedule
from autotune.passes.partition import Dispatch, Partition
from autotune.runtime.image import Binding, Command, DispatchInfo, ModuleImage, TensorSpec
from autotune.target import Target

HoistedKey: TypeAlias = tuple[str, str, tuple[str, ...]]
"""Workload, buffer and the constants that it is made of: equal keys are computed once."""
Hoisted: TypeAlias = dict[tuple[HoistedKey, bytes], Array]
"""Values of hoisted buffers, by their keys and the object code that worked them out."""
_AT_ONCE = 16 << 20
"""Bytes of constants that are laid out densely at a time."""


def argument_value(dispatch: Dispatch, name: str) -> str:
    """Return the model's value that a buffer named like a workload argument stands for."""
    graph = dispatch.workload.region.graph
    for canonical, value in zip(
        (*graph.inputs, *graph.outputs), (*dispatch.inputs, *dispatch.outputs), strict=True
    ):
        if canonical == name:
            return value
    raise InternalError(f"dispatch {dispatch.name!r} has no argument {name!r}")


def hoisted_key(dispatch: Dispatch, code: DispatchCode, spec: BufferSpec) -> HoistedKey:
    """Return the key of a hoisted buffer of a dispatch."""
    indexes = {i for kernel in code.kernels if kernel.hoisted for i in kernel.buffers}
    read = [code.buffers[i].name for i in sorted(indexes) if code.buffers[i].role == "input"]
    return dispatch.workload.key, spec.name, tuple(argument_value(dispatch, n) for n in read)


def code_of_constants(planned: Planned, target: Target) -> DispatchCode:
    """Return the kernels of a schedule that read constants only, for another target than the rest."""
    applied = planned.scheduled or apply(planned.workload, planned.trace)
    made = applied.program
    program = lower_schedule(applied.schedule, made.args, constants=made.constants, strides=made.strides)
    hoisted = replace(program, kernels=tuple(kernel for kernel in program.kernels if kernel.hoisted))
    return backend_for(target.arch).compile(hoisted, target, planned.workload.symbol)


def run_hoisted(
    partition: Partition, codes: Mapping[str, DispatchCode], target: Target, known: Hoisted
) -> dict[HoistedKey, Array]:
    """Return values of all hoisted buffers. Those not in ``known`` are computed, some constants at a time, and added to
    it."""
    builder = _HoistedModule(partition, codes, known)
    for dispatch in partition.dispatches:
        builder.add(dispatch)
        if builder.nbytes > _AT_ONCE:
            builder.run(target)
    builder.run(target)
    return {key: known[key, code] for key, code in builder.needed.items()}


class _HoistedModule:
    """Collects the hoisted kernels: constants are its inputs, hoisted buffers its outputs."""

    def __init__(self, partition: Partition, codes: Mapping[str, DispatchCode], known: Hoisted) -> None:
        self.partition = partition
        self.codes = codes
        self.known = known
        self.needed: dict[HoistedKey, bytes] = {}
        """The object code that works out each buffer, the known ones among them."""
        self._restart()

    def _restart(self) -> None:
        self.order: list[str] = []
        """The workloads whose code is here."""
        self.results: dict[tuple[HoistedKey, bytes], TensorSpec] = {}
        self.inputs: dict[str, int] = {}
        self.arrays: list[Array] = []
        self.commands: list[Command] = []

    @property
    def nbytes(self) -> int:
        """Return the bytes of the constants that are collected."""
        return sum(array.nbytes for array in self.arrays)

    def run(self, target: Target) -> None:
        """Compute what is collected, and start again: constants that were laid out for it are given up."""
        if self.commands:
            from autotune.runtime.module import Module

            with Module(self.image(target), threads=1) as module:
                results = module(*self.arrays)
            self.known |= dict(zip(self.results, results, strict=True))
            for value in self.inputs:
                give_up_pages(self.partition.constants[value])
        self._restart()

    def add(self, dispatch: Dispatch) -> None:
        """Add the hoisted kernels of a dispatch, unless the same were added before or have run."""
        code = self.codes[dispatch.workload.key]
        kernels = [kernel for kernel in code.kernels if kernel.hoisted]
        hoisted = [spec for spec in code.buffers if spec.role == "hoisted"]
        if not kernels or hoisted_key(dispatch, code, hoisted[0]) in self.needed:
            return
        keys = [hoisted_key(dispatch, code, spec) for spec in hoisted]
        self.needed |= dict.fromkeys(keys, code.object_code)
        if all((key, code.object_code) in self.known for key in keys):
            return
        for key, spec in zip(keys, hoisted, strict=True):
            elements = spec.nbytes // np.dtype(spec.dtype).itemsize
            name = f"hoisted{len(self.results)}"
            self.results[key, code.object_code] = TensorSpec(name, (elements,), spec.dtype)
        if dispatch.workload.key not in self.order:
            self.order.append(dispatch.workload.key)
        for kernel in kernels:
            self.commands.append(
                Command(
                    dispatch=0,
                    object_index=self.order.index(dispatch.workload.key),
                    symbol=kernel.symbol,
                    bindings=tuple(self._binding(dispatch, code, code.buffers[i]) for i in kernel.buffers),
                    tiles=kernel.tiles,
                    scratch_bytes=kernel.scratch_bytes,
                )
            )

    def _binding(self, dispatch: Dispatch, code: DispatchCode, spec: BufferSpec) -> Binding:
        if spec.role == "hoisted":
            index = list(self.results).index((hoisted_key(dispatch, code, spec), code.object_code))
            return Binding("output", index, 0, spec.nbytes)
        value = argument_value(dispatch, spec.name)
        if value not in self.inputs:
            self.inputs[value] = len(self.arrays)
            self.arrays.append(np.ascontiguousarray(self.partition.constants[value]))
        return Binding("input", self.inputs[value], 0, spec.nbytes)

    def image(self, target: Target) -> ModuleImage:
        """Return the module of the collected kernels."""
        return ModuleImage(
            name="hoisted",
            target=target,
            inputs=tuple(
                TensorSpec(f"constant{i}", array.shape, str(array.dtype))
                for i, array in enumerate(self.arrays)
            ),
            outputs=tuple(self.results.values()),
            objects=tuple(self.codes[key].object_code for key in self.order),
            constants=(),
            commands=tuple(self.commands),
            dispatches=(DispatchInfo("hoisted", "", "elementwise", "default", ""),),
            arena_bytes=0,
        )


__all__ = ["Hoisted", "HoistedKey", "argument_value", "hoisted_key", "run_hoisted"]
