"""CPU code of a schedule: loop kernels to one object file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from autotune.codegen.code import BufferSpec, DispatchCode, Kernel, Role
from autotune.codegen.kernel import KernelEmitter
from autotune.codegen.llvm import compile_ir
from autotune.codegen.module import ModuleText
from autotune.lower.ir import Buffer, LoopProgram
from autotune.lower.program import lower_schedule
from autotune.schedule.schedule import Schedule
from autotune.target import ITEM_BYTES, Target
from autotune.te.depth import walks_deep
from autotune.te.tensor import Tensor

_UNNAMED = "unnamed.kernel"
"""Stands for the symbol prefix until the code, and with it its hash, is known."""


@walks_deep
def emit_program(program: LoopProgram, target: Target, name: str) -> tuple[str, list[KernelEmitter]]:
    """LLVM IR text of a loop program, and the emitters that know the kernels' buffers."""
    module = ModuleText(target)
    emitters = []
    for number, kernel in enumerate(program.kernels):
        emitter = KernelEmitter(module, kernel, f"{name}_{number}")
        emitter.emit()
        emitters.append(emitter)
    return module.text(), emitters


def compile_schedule(
    schedule: Schedule,
    args: Sequence[Tensor],
    target: Target,
    *,
    name: str = "",
    constants: frozenset[str] = frozenset(),
    strides: Mapping[str, tuple[int, ...]] | None = None,
) -> DispatchCode:
    """Object code of a schedule.

    ``args`` are inputs, then outputs; ``constants`` and ``strides`` are as in ``lower_schedule``. Symbols start
    with ``name``, or with a hash of the code, so that objects of different programs can be loaded together.
    Raises LoweringError or BuildError.
    """
    program = lower_schedule(schedule, args, constants=constants, strides=strides)
    ir, emitters = emit_program(program, target, name or _UNNAMED)
    if not name:
        name = "k" + hashlib.sha256(ir.encode()).hexdigest()[:16]
        ir = ir.replace(_UNNAMED, name)
    buffers: list[Buffer] = [*program.arguments, *program.workspaces]
    hoisted = {b for k in program.kernels if k.hoisted for b in k.writes}
    numbers = {b: n for n, b in enumerate(buffers)}
    kernels = tuple(
        Kernel(
            emitter.symbol.replace(_UNNAMED, name),
            tuple(numbers[b] for b in emitter.buffers),
            emitter.kernel.tiles,
            emitter.kernel.hoisted,
            emitter.scratch_bytes,
        )
        for emitter in emitters
    )
    specs = tuple(_spec(b, b in program.outputs, b in hoisted) for b in buffers)
    return DispatchCode(compile_ir(ir, target), kernels, specs, ir)


def _spec(buffer: Buffer, is_output: bool, is_hoisted: bool) -> BufferSpec:
    role: Role = "hoisted" if is_hoisted else "workspace"
    if buffer.scope == "argument":
        role = "output" if is_output else "input"
    nbytes = max(buffer.elements, 1) * ITEM_BYTES[buffer.dtype]
    return BufferSpec(buffer.name, buffer.shape, buffer.dtype, role, nbytes)


__all__ = ["compile_schedule", "emit_program"]
