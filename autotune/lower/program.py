"""Lowering: a schedule and its arguments to loop kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from autotune.errors import LoweringError
from autotune.lower.inlining import Inlined, inlined_bodies
from autotune.lower.ir import Buffer, For, LoopKernel, LoopProgram, Stmt, kernel_of, walk
from autotune.lower.linear import Simplifier, constant_form
from autotune.lower.nest import NestBuilder
from autotune.lower.partition import partition
from autotune.lower.translate import StageBuffers, Translator
from autotune.schedule.schedule import Schedule
from autotune.schedule.stage import Stage
from autotune.strides import aligned_strides
from autotune.te.accesses import checked
from autotune.te.depth import walks_deep
from autotune.te.sequential import SequentialOp
from autotune.te.sizes import SizeVar
from autotune.te.tensor import ComputeOp, PlaceholderOp, Tensor
from autotune.te.traversal import reads


@walks_deep
def lower_schedule(
    schedule: Schedule,
    args: Sequence[Tensor],
    *,
    constants: frozenset[str] = frozenset(),
    strides: Mapping[str, tuple[int, ...]] | None = None,
    with_origins: bool = False,
) -> LoopProgram:
    """Return the loop kernels of a schedule, one a stage at the root.

    ``args`` are the inputs and outputs in calling order; ``constants`` names inputs that are known at compile
    time (stages that read only those are hoisted); ``strides`` gives arguments a layout in elements. With
    ``with_origins`` stores know the statement instance that they belong to, for the verifier. Raises
    LoweringError when arguments are missing or a stage is attached where a reader cannot see it.
    """
    order = schedule.order()
    arguments = _argument_buffers(schedule, args, order, strides or {})
    bodies, epilogues = inlined_bodies(order, source=as_checked)
    live = [s for s in order if s.attach_type != "inline"]
    for stage in live:
        _check_attachment(stage, live)
    simplifier = Simplifier()
    places: dict[Stage, StageBuffers] = {}
    translator = Translator(simplifier, lambda tensor: _visible(places, schedule[tensor]))
    builder = NestBuilder(bodies, epilogues, live, places, translator, with_origins=with_origins)
    workspaces: list[Buffer] = []
    for stage in live:
        if stage.attach_type == "root":
            places[stage] = _root_place(stage, arguments, workspaces)
    kernels: list[LoopKernel] = []
    constant_stages = {s for s in live if s.op.name in constants and isinstance(s.op, PlaceholderOp)}
    for stage in live:
        if isinstance(stage.op, PlaceholderOp) or stage.attach_type != "root":
            continue
        body = builder.root(stage)
        # Conditions of statements that follow one another depend on what is stored before.
        kernel = _kernel(stage, body if isinstance(stage.op, SequentialOp) else partition(body))
        group = _group(stage, live)
        exprs = [e for s in group for e in bodies[s]] + [epilogues[s] for s in group if s in epilogues]
        sources = {schedule[r.tensor] for e in exprs for r in reads(e)}
        known = constant_stages | group
        hoisted = bool(sources) and sources <= known and not stage.is_output
        if hoisted:
            constant_stages.add(stage)
        kernels.append(
            replace(kernel, hoisted=hoisted, in_order=any(isinstance(s.op, SequentialOp) for s in group))
        )
    outputs = tuple(b for stage in live if stage.is_output for b in places[stage].buffers)
    return LoopProgram(tuple(kernels), tuple(arguments.values()), outputs, tuple(workspaces))


def _visible(places: Mapping[Stage, StageBuffers], stage: Stage) -> StageBuffers:
    if stage in places:
        return places[stage]
    assert stage.attach_stage is not None
    assert stage.attach_ivar is not None
    raise LoweringError(
        f"stage {stage.op.name} is computed at {stage.attach_stage.op.name}, {stage.attach_ivar.name}, "
        f"but is read outside of that loop; attach it where all its readers are, or compute it at the root"
    )


def _check_attachment(stage: Stage, live: Sequence[Stage]) -> None:
    parent, iv = stage.attach_stage, stage.attach_ivar
    if stage.attach_type != "scope" or parent is None or iv is None:
        return
    if parent not in live:
        raise LoweringError(
            f"stage {stage.op.name} is computed at {parent.op.name}, {iv.name}, but {parent.op.name} is inlined "
            f"or no longer used; attach it to a stage that has loops"
        )
    if iv not in parent.leaf_iter_vars:
        names = ", ".join(v.name for v in parent.leaf_iter_vars)
        raise LoweringError(
            f"stage {stage.op.name} is computed at {parent.op.name}, {iv.name}, which is no longer a loop; "
            f"the loops are {names}"
        )


def _group(stage: Stage, live: Sequence[Stage]) -> set[Stage]:
    """Return a root stage and all stages attached inside of it."""
    group = {stage}
    for other in reversed(live):
        parent = other.attach_stage
        while parent is not None and parent not in group:
            parent = parent.attach_stage
        if parent is not None:
            group.add(other)
    return group


def _argument_buffers(
    schedule: Schedule,
    args: Sequence[Tensor],
    order: Sequence[Stage],
    strides: Mapping[str, tuple[int, ...]],
) -> dict[Tensor, Buffer]:
    buffers: dict[Tensor, Buffer] = {}
    for tensor in args:
        if isinstance(tensor, SizeVar):  # a size among the arguments of a program at its examples
            continue
        if tensor in buffers:
            raise LoweringError(f"argument {tensor.name} is given twice")
        name = _argument_name(schedule, tensor, buffers)
        shape = schedule[tensor].op.shape if tensor.op in schedule else tensor.op.shape
        buffers[tensor] = Buffer(name, shape, tensor.dtype, "argument", strides.get(name))
    given = {(schedule[t], t.value_index) for t in buffers if t.op in schedule}
    for stage in order:
        if isinstance(stage.op, PlaceholderOp) or stage.is_output:
            for index in range(len(stage.op.dtypes)):
                if (stage, index) not in given:
                    role = "output" if stage.is_output else "input"
                    raise LoweringError(
                        f"{role} {stage.op.output(index).name} is not among the arguments; "
                        f"got {', '.join(t.name for t in args)}"
                    )
    return buffers


def _argument_name(schedule: Schedule, tensor: Tensor, buffers: Mapping[Tensor, Buffer]) -> str:
    """Return the name of an argument in the code; an input that nothing reads is no part of the schedule."""
    if not isinstance(tensor.op, PlaceholderOp) or tensor.op in schedule:
        schedule[tensor]
        return schedule.name_of(tensor)
    taken = {buffer.name for buffer in buffers.values()}
    name, number = schedule.unique_name(tensor.name), 0
    while name in taken:
        name, number = schedule.unique_name(f"{tensor.name}.unused{number}"), number + 1
    return name


def _root_place(stage: Stage, arguments: Mapping[Tensor, Buffer], workspaces: list[Buffer]) -> StageBuffers:
    buffers: list[Buffer] = []
    for index in range(len(stage.op.dtypes)):
        buffer = next(
            (b for t, b in arguments.items() if stage.computes(t) and t.value_index == index),
            None,
        )
        if buffer is None:
            tensor = stage.op.output(index)
            strides = aligned_strides(tensor.shape, stage.alignments) if stage.alignments else None
            buffer = Buffer(tensor.name, tensor.shape, tensor.dtype, "workspace", strides)
            workspaces.append(buffer)
        buffers.append(buffer)
    return StageBuffers(tuple(buffers), tuple(constant_form(0) for _ in stage.op.shape))


def as_checked(op: ComputeOp) -> Inlined:
    """Return the computation of an operation, its indices inside of the tensors that it reads."""
    known = checked(op)
    return known.body, known.epilogue


def _kernel(stage: Stage, body: Stmt) -> LoopKernel:
    for number, part in enumerate(walk(body)):
        if isinstance(part, For) and part.kind == "parallel" and number:
            raise LoweringError(
                f"loop {part.var.name} of stage {stage.op.name} is parallel but not the outermost loop; "
                f"reorder it outwards or fuse it with the loops around it"
            )
    return kernel_of(stage.op.name, body)
