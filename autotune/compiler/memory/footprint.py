"""The footprint of a dispatch's code: memory while it runs, and bytes of the artifact."""

from __future__ import annotations

from collections.abc import Collection

from autotune.codegen.code import BufferSpec, DispatchCode, Role
from autotune.database.records import Footprint
from autotune.passes.memory.plan_memory import align
from autotune.runtime.cpu.device import scratch_bytes


def footprint_of(code: DispatchCode, constants: Collection[str], threads: int) -> Footprint:
    """Return the footprint of a dispatch with this code; ``constants`` names those of its inputs that are known at
    compile time.

    What is packed of constants at compile time counts as it is stored, and the constants themselves only where a
    kernel reads them when the model runs.
    """
    running = [kernel for kernel in code.kernels if not kernel.hoisted]
    buffers = [code.buffers[i] for i in sorted({i for kernel in running for i in kernel.buffers})]
    scratch = scratch_bytes((kernel.scratch_bytes for kernel in running), threads)
    stored = _with_role(buffers, "hoisted")
    stored += [spec for spec in _with_role(buffers, "input") if spec.name in constants]
    return Footprint(
        memory_bytes=scratch + sum(align(spec.nbytes) for spec in _with_role(buffers, "workspace")),
        artifact_bytes=len(code.object_code) + sum(spec.nbytes for spec in stored),
        scratch_bytes=scratch,
    )


def _with_role(buffers: Collection[BufferSpec], role: Role) -> list[BufferSpec]:
    return [spec for spec in buffers if spec.role == role]


__all__ = ["footprint_of"]
