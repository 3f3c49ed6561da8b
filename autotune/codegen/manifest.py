"""The manifest of a program's code: its entry points, and all buffers by role."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from autotune.codegen.code import BufferSpec, DispatchCode, Kernel, Launch, Role
from autotune.lower.ir import Buffer, LoopKernel, LoopProgram
from autotune.target import ITEM_BYTES


class ManifestEntry(NamedTuple):
    """The code of a kernel by a backend, whose pointer table has the kernel's buffers in their order."""

    kernel: LoopKernel
    symbol: str
    scratch_bytes: int = 0
    """For each worker."""
    launch: Launch | None = None
    """On a GPU."""


def with_manifest(
    program: LoopProgram,
    entries: Sequence[ManifestEntry],
    object_code: bytes,
    text: str,
    overwriting: Sequence[tuple[Buffer, Buffer]] = (),
    *,
    generated: str,
) -> DispatchCode:
    """Return the code of a program, whose kernels became ``entries``, with its manifest.

    In it ``overwriting`` are outputs and inputs that may be the same memory. The key of the code follows from what was
    ``generated``: the text under a prefix of symbols that is always the same.
    """
    buffers = [*program.arguments, *program.workspaces]
    hoisted = {b for k in program.kernels if k.hoisted for b in k.writes}
    numbers = {b: n for n, b in enumerate(buffers)}
    kernels = tuple(
        Kernel(
            e.symbol,
            tuple(numbers[b] for b in e.kernel.buffers),
            e.kernel.tiles,
            e.kernel.hoisted,
            e.scratch_bytes,
            e.launch,
        )
        for e in entries
    )
    specs = tuple(_spec(b, b in program.outputs, b in hoisted) for b in buffers)
    pairs = tuple((numbers[output], numbers[source]) for output, source in overwriting)
    return DispatchCode(object_code, kernels, specs, text, pairs, _key(generated, kernels, specs, pairs))


def _key(
    generated: str,
    kernels: Sequence[Kernel],
    specs: Sequence[BufferSpec],
    pairs: Sequence[tuple[int, int]],
) -> str:
    """Return the SHA-256 (hex) of generated text, under a prefix of symbols that stands for all, and its manifest."""
    calls = [(k.buffers, k.tiles, k.hoisted, k.scratch_bytes, k.launch) for k in kernels]
    memory = [(spec.shape, spec.dtype, spec.role, spec.nbytes) for spec in specs]
    return hashlib.sha256(f"{calls}{memory}{pairs}\n{generated}".encode()).hexdigest()


def _spec(buffer: Buffer, is_output: bool, is_hoisted: bool) -> BufferSpec:
    role: Role = "hoisted" if is_hoisted else "workspace"
    if buffer.scope == "argument":
        role = "output" if is_output else "input"
    nbytes = max(buffer.elements, 1) * ITEM_BYTES[buffer.dtype]
    return BufferSpec(buffer.name, buffer.shape, buffer.dtype, role, nbytes)


__all__ = ["ManifestEntry", "with_manifest"]
