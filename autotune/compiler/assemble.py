"""From compiled dispatches to the image of a module: memory, constants, commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from autotune.codegen import wire
from autotune.codegen.code import BufferSpec, DispatchCode, Kernel
from autotune.compiler.hoist import (
    Hoisted,
    HoistedKey,
    argument_value,
    code_of_constants,
    hoisted_key,
    run_hoisted,
)
from autotune.compiler.index_checks import guards_of, index_checks, indexed_values
from autotune.compiler.planned import Planned
from autotune.files import is_in_file
from autotune.graph.ir import Array
from autotune.passes.memory.bound_memory import bound_memory
from autotune.passes.memory.dispatch_order import extended, in_order
from autotune.passes.memory.plan_memory import Lifetime, MemoryPlan, plan_memory, value_lifetimes
from autotune.passes.memory.taken_memory import chains, taken_memory, unfolded
from autotune.passes.partition import Condition, Dispatch, Partition
from autotune.passes.repetition import ranges_of_repeats
from autotune.runtime.conflicts import overlapping
from autotune.runtime.cpu.device import Host, scratch_bytes
from autotune.runtime.image import (
    Binding,
    BoundInPlace,
    Command,
    DispatchInfo,
    Guard,
    IndexCheck,
    ModuleImage,
    RepeatedCommands,
    TensorSpec,
)
from autotune.target import Target


@dataclass(frozen=True)
class BuiltWorkload:
    """The schedule and the code of a workload, shared by its dispatches.

    ``packing`` is :func:`packing_code`, where that was made with the code of a device.
    """

    planned: Planned
    code: DispatchCode
    packing: DispatchCode | None = None

    @staticmethod
    def of_wire(planned: Planned, data: Mapping[str, Any]) -> BuiltWorkload:
        """Read what :func:`on_wire` gave."""
        packing = data.get("packing")
        return BuiltWorkload(
            planned, wire.from_json(data), None if packing is None else wire.from_json(packing)
        )


def on_wire(planned: Planned, code: DispatchCode, target: Target) -> dict[str, Any]:
    """Return code as JSON; that of a device with what packs its constants."""
    packing = packing_code(planned, code, target) if target.group_items else None
    return wire.to_json(code) | ({} if packing is None else {"packing": wire.to_json(packing)})


def packing_code(planned: Planned, code: DispatchCode, target: Target) -> DispatchCode | None:
    """Return the code that computes constants here for code of another target: the same kernels for this machine; None
    where there are none."""
    here = _hoisting_target(target)
    if here is None or not any(kernel.hoisted for kernel in code.kernels):
        return None
    return code_of_constants(planned, here)


_MEMORY_FOR_OVERLAP = 1.1
"""The allowed growth of the arena for concurrent dispatches."""


@dataclass(frozen=True)
class MemoryNeeds:
    """Bytes that a model takes beside its inputs and outputs: values between dispatches, scratch memory of all threads,
    and constants as they are stored."""

    arena_bytes: int
    scratch_bytes: int
    constant_bytes: int

    @property
    def peak_bytes(self) -> int:
        """Return the memory that it takes while it runs, beside constants."""
        return self.arena_bytes + self.scratch_bytes


def memory_needs(partition: Partition, built: Mapping[str, BuiltWorkload], target: Target) -> MemoryNeeds:
    """Return the memory that :func:`assemble` would make room for; of the code in ``built`` kernels and
    buffers are looked at alone."""
    return _ImageAssembly(partition, built, target).needs()


def assemble(
    partition: Partition,
    built: Mapping[str, BuiltWorkload],
    target: Target,
    metadata: Mapping[str, str],
    hoisted: Hoisted | None = None,
) -> tuple[ModuleImage, MemoryPlan]:
    """Plan memory, run hoisted kernels and bind every buffer.

    ``built`` has the code of each workload key. What is in ``hoisted`` is not worked out again, and it gets what is.
    """
    return _ImageAssembly(partition, built, target).run(metadata, {} if hoisted is None else hoisted)


class _ImageAssembly:
    def __init__(self, partition: Partition, built: Mapping[str, BuiltWorkload], target: Target) -> None:
        partition = in_order(partition, target.threads)
        self.partition = partition
        self.built = built
        self.target = target
        self.order = list(built)
        self.hoisting_target = _hoisting_target(target)
        self.hoisting = self.hoisting_target is not None
        self.inputs = {name: i for i, name in enumerate(partition.inputs)}
        self.outputs = {partition.placements[name].root: i for i, name in enumerate(partition.outputs)}
        self.bound = bound_memory(partition, self._overwriting) if partition.overwriting else {}
        self.plan = self._memory_plan()
        self.hoisted: Mapping[HoistedKey, Array] = {}
        self.constants: dict[object, tuple[int, Array]] = {}
        self.refused: set[Condition] = set()
        self.trace_text = cache(self._trace_text)

    def run(self, metadata: Mapping[str, str], known: Hoisted) -> tuple[ModuleImage, MemoryPlan]:
        if self.hoisting_target is not None:
            self.hoisted = run_hoisted(self.partition, self._codes(), self.hoisting_target, known)
        commands, checks, starts = list[Command](), list[IndexCheck](), list[int]()
        for number, dispatch in enumerate(self.partition.dispatches):
            starts.append(len(commands))
            checks += self._refusals(number, dispatch, len(commands))
            checks += index_checks(self.partition, dispatch, number, len(commands), self._located)
            commands += [self._command(number, dispatch, kernel) for kernel in self._kernels(dispatch)]
        repeats = tuple(self._repeats([*starts, len(commands)]))
        in_place = tuple(BoundInPlace(self.outputs[o], self.inputs[i]) for o, i in self.bound.items())
        image = ModuleImage(
            name=self.partition.name,
            target=self.target,
            inputs=self._specs(self.partition.inputs, self.partition.inputs),
            outputs=self._specs(self.partition.outputs, self.partition.output_names),
            objects=tuple(self.built[key].code.object_code for key in self.order),
            constants=tuple(array for _, array in self.constants.values()),
            commands=overlapping(commands, checks, repeats, in_place),
            dispatches=tuple(self._info(dispatch) for dispatch in self.partition.dispatches),
            arena_bytes=self.plan.arena_bytes,
            metadata=metadata,
            checks=tuple(checks),
            repeats=repeats,
            in_place=in_place,
        )
        return image, self.plan

    def needs(self) -> MemoryNeeds:
        constants, scratch = dict[object, int](), [0]
        for dispatch in self.partition.dispatches:
            code = self._code(dispatch)
            for kernel in self._kernels(dispatch):
                scratch.append(kernel.scratch_bytes)
                for spec in (code.buffers[i] for i in kernel.buffers):
                    constants |= self._constant_size(dispatch, spec)
        return MemoryNeeds(
            self.plan.arena_bytes, scratch_bytes(scratch, self.target.threads), sum(constants.values())
        )

    def _constant_size(self, dispatch: Dispatch, spec: BufferSpec) -> dict[object, int]:
        """Name and size of the constant behind a buffer; nothing where it is none."""
        if spec.role == "hoisted" and self.hoisting:
            return {hoisted_key(dispatch, self._code(dispatch), spec): spec.nbytes}
        if spec.role in ("workspace", "hoisted"):
            return {}
        root = self.partition.placements[argument_value(dispatch, spec.name)].root
        known = self.partition.constants.keys() - self.outputs.keys() - self.inputs.keys()
        return {root: self.partition.constants[root].nbytes} if root in known else {}

    def _codes(self) -> dict[str, DispatchCode]:
        """Return the code that computes constants: itself, or of code for a device the same kernels for this
        machine."""
        if self.hoisting_target in (None, self.target):
            return {key: built.code for key, built in self.built.items()}
        return {
            key: built.packing or packing_code(built.planned, built.code, self.target) or built.code
            for key, built in self.built.items()
        }

    def _code(self, dispatch: Dispatch) -> DispatchCode:
        return self.built[dispatch.workload.key].code

    def _kernels(self, dispatch: Dispatch) -> Sequence[Kernel]:
        kernels = self._code(dispatch).kernels
        return [kernel for kernel in kernels if not (kernel.hoisted and self.hoisting)]

    def _memory_plan(self) -> MemoryPlan:
        """Put results in the memory of operands where that makes the arena smaller. The bound counts them so
        anyway."""
        lifetimes = self._lifetimes()
        plan = self._planned(lifetimes)
        if not self.partition.overwriting:
            return plan
        taken = taken_memory(self.partition, lifetimes, self._overwriting)
        if not taken:
            return plan
        shared = unfolded(self._planned(chains(lifetimes, taken)), lifetimes, taken)
        if shared.arena_bytes < plan.arena_bytes:
            return shared
        return replace(plan, lower_bound=min(plan.lower_bound, shared.lower_bound))

    def _planned(self, lifetimes: Sequence[Lifetime]) -> MemoryPlan:
        """Return a memory plan in which concurrent dispatches do not reuse each other's memory, unless that
        that takes much more."""
        least = plan_memory(lifetimes)
        if self.partition.order != "concurrency":
            return least
        apart = plan_memory(extended(self.partition, lifetimes))
        return apart if apart.arena_bytes <= _MEMORY_FOR_OVERLAP * least.arena_bytes else least

    def _overwriting(self, dispatch: Dispatch) -> list[tuple[str, str]]:
        """Return the results and operands of a dispatch that its code allows to be the same memory; indices are
        none, as they are checked on their own."""
        code, checked = self._code(dispatch), indexed_values(dispatch)
        names = [[argument_value(dispatch, code.buffers[i].name) for i in pair] for pair in code.overwriting]
        return [(result, operand) for result, operand in names if operand not in checked]

    def _lifetimes(self) -> list[Lifetime]:
        """Return workspaces of each dispatch, and the values between them."""
        workspaces = [
            Lifetime(_workspace(dispatch, spec), spec.nbytes, step, step)
            for step, dispatch in enumerate(self.partition.dispatches)
            for spec in self._workspaces(dispatch)
        ]
        return [*workspaces, *value_lifetimes(self.partition)]

    def _workspaces(self, dispatch: Dispatch) -> list[BufferSpec]:
        """Return buffers that live in the arena while the dispatch runs."""
        roles = ("workspace",) if self.hoisting else ("workspace", "hoisted")
        code = self._code(dispatch)
        used = {i for kernel in self._kernels(dispatch) for i in kernel.buffers}
        return [code.buffers[i] for i in sorted(used) if code.buffers[i].role in roles]

    def _command(self, number: int, dispatch: Dispatch, kernel: Kernel) -> Command:
        code = self._code(dispatch)
        return Command(
            dispatch=number,
            object_index=self.order.index(dispatch.workload.key),
            symbol=kernel.symbol,
            bindings=tuple(self._binding(dispatch, code.buffers[i]) for i in kernel.buffers),
            tiles=kernel.tiles,
            scratch_bytes=kernel.scratch_bytes,
            writes=tuple(
                position
                for position, index in enumerate(kernel.buffers)
                if self._is_written(code.buffers[index])
            ),
            guards=tuple(map(self._guard, guards_of(dispatch))),
        )

    def _repeats(self, starts: Sequence[int]) -> Iterator[RepeatedCommands]:
        """Yield what is repeated, by the numbers of the dispatches' first commands; what has none is not."""
        for repeat, numbers in ranges_of_repeats(self.partition.dispatches):
            begin, end = starts[numbers.start], starts[numbers.stop]
            if begin < end:
                guards = (self._guard(each) for each in repeat.conditions)
                yield RepeatedCommands(begin, end, repeat.count, tuple(guards))

    def _guard(self, condition: Condition) -> Guard:
        return Guard(self._located(condition.value, 0, 1), int(condition.wanted))

    def _refusals(self, number: int, dispatch: Dispatch, command: int) -> Iterator[IndexCheck]:
        """Yield what a dispatch, of which the first one is ``command``, says where a refused branch is chosen; each
        branch says it once."""
        guards = 0
        for condition in dispatch.conditions:
            if not condition.refusal:
                guards += 1
            elif condition not in self.refused:
                self.refused.add(condition)
                where = self._located(condition.value, 0, 1)
                yield IndexCheck(command, number, where, 1, 1, 0, 1, 1, 0, guards, condition.refusal)

    def _is_written(self, spec: BufferSpec) -> bool:
        """Return whether a kernel may write to a buffer: of those that it shares with others of its
        dispatch each may."""
        return spec.role in ("output", "workspace") or (spec.role == "hoisted" and not self.hoisting)

    def _binding(self, dispatch: Dispatch, spec: BufferSpec) -> Binding:
        if spec.role == "hoisted" and self.hoisting:
            key = hoisted_key(dispatch, self._code(dispatch), spec)
            return Binding("constant", self._constant(key, self.hoisted[key]), 0, spec.nbytes)
        if spec.role in ("workspace", "hoisted"):
            offset = self.plan.offsets[_workspace(dispatch, spec)]
            return Binding("arena", 0, offset, spec.nbytes)
        value, width = argument_value(dispatch, spec.name), np.dtype(spec.dtype).itemsize
        reach = self.partition.reach(value)
        return self._memory(value, width, 0, spec.nbytes, reach.period * width, reach.run * width)

    def _located(self, value: str, first: int, elements: int) -> Binding:
        """Return the binding of some elements of a value."""
        width = np.dtype(self.partition.types[value].dtype).itemsize
        return self._memory(value, width, first, elements * width)

    def _memory(
        self, value: str, width: int, first: int, nbytes: int, period: int = 0, run: int = 0
    ) -> Binding:
        """Return memory of a value from an element on, of ``width`` bytes."""
        placement = self.partition.placements[value]
        offset, root = (placement.offset + first) * width, placement.root
        advances = tuple(each.elements * width for each in self.partition.moving.get(value, ()))
        if root in self.outputs:
            return Binding("output", self.outputs[root], offset, nbytes, period, run, advances)
        if root in self.inputs:
            return Binding("input", self.inputs[root], offset, nbytes, period, run, advances)
        if root in self.partition.constants:
            index = self._constant(root, self.partition.constants[root])
            return Binding("constant", index, offset, nbytes, period, run, advances)
        return Binding("arena", 0, self.plan.offsets[root] + offset, nbytes, period, run, advances)

    def _constant(self, key: object, array: Array) -> int:
        """Return the index of a constant of the image; only constants that a kernel reads are in it."""
        if key not in self.constants:
            dense = np.ascontiguousarray(array).reshape(array.shape)
            dense = dense.copy() if is_in_file(dense) else dense  # the file of a model may change later
            self.constants[key] = (len(self.constants), dense)
        return self.constants[key][0]

    def _specs(self, values: Sequence[str], names: Sequence[str]) -> tuple[TensorSpec, ...]:
        types = [self.partition.types[value] for value in values]
        return tuple(TensorSpec(n, t.shape, t.dtype) for n, t in zip(names, types, strict=True))

    def _trace_text(self, key: str) -> str:
        """Return the schedule of a workload as text, which may be that of thousands of steps."""
        return self.built[key].planned.trace.to_json()

    def _info(self, dispatch: Dispatch) -> DispatchInfo:
        planned, workload = self.built[dispatch.workload.key].planned, dispatch.workload
        return DispatchInfo(
            dispatch.name,
            workload.key,
            workload.kind,
            planned.evidence.state.value,
            self.trace_text(workload.key),
            dispatch.origins,
            workload.flops * dispatch.runs,
            workload.dtype,
            dispatch.runs,
        )


def _workspace(dispatch: Dispatch, spec: BufferSpec) -> str:
    return f"{dispatch.name}/{spec.name}"


def _hoisting_target(target: Target) -> Target | None:
    """Return the target for which kernels of constants are compiled, to run here and now; None where each
    run does them.

    Code for a device of groups waits for no device: the same kernels are made for this machine.
    """
    here = Host.here().target
    if target.group_items:
        return here.with_threads(1)
    return None if here.lacks(target) else target


__all__ = ["BuiltWorkload", "MemoryNeeds", "assemble", "memory_needs", "on_wire", "packing_code"]
