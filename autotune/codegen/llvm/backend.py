"""Code of CPUs: loop kernels to one object file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from autotune.codegen.code import DispatchCode
from autotune.codegen.llvm.kernel import emit_kernel
from autotune.codegen.llvm.module import ModuleText
from autotune.codegen.llvm.objects import compile_ir
from autotune.codegen.lockstep import by_one_thread
from autotune.codegen.manifest import ManifestEntry, with_manifest
from autotune.lower.ir import Buffer, LoopProgram
from autotune.lower.overwriting import overwriting
from autotune.target import Target
from autotune.te.depth import walks_deep

_UNNAMED = "unnamed.kernel"
"""Stands for the symbol prefix where code is generated: its hash does not depend on names."""


class LlvmBackend:
    """Object code of CPUs (see :class:`autotune.codegen.backend.Backend`)."""

    def compile(self, program: LoopProgram, target: Target, name: str = "") -> DispatchCode:
        """Return an ELF object, and the LLVM IR text that it was compiled from."""
        pairs = overwriting(program)
        generated, entries = emit_program(program, target, _UNNAMED, pairs)
        name = name or "k" + hashlib.sha256(generated.encode()).hexdigest()[:16]
        ir = generated.replace(_UNNAMED, name)
        entries = [e._replace(symbol=e.symbol.replace(_UNNAMED, name)) for e in entries]
        return with_manifest(program, entries, compile_ir(ir, target), ir, pairs, generated=generated)

    def fenced(self, program: LoopProgram, target: Target, code: DispatchCode) -> DispatchCode | None:
        """Return the same code with zones around its blocks on the stack and in scratch memory."""
        if " = alloca [" not in code.ir and not any(kernel.scratch_bytes for kernel in code.kernels):
            return None
        name, pairs = code.kernels[0].symbol.rpartition("_")[0], overwriting(program)
        ir, entries = emit_program(program, target, name, pairs, fenced=True)
        return with_manifest(program, entries, compile_ir(ir, target), ir, pairs, generated=ir)

    def manifest(self, program: LoopProgram, target: Target) -> DispatchCode:
        """Return the manifest of the text that would be compiled: it says what lives in registers, and
        what in scratch memory."""
        pairs = overwriting(program)
        generated, entries = emit_program(program, target, _UNNAMED, pairs)
        return with_manifest(program, entries, b"", "", pairs, generated=generated)


@walks_deep
def emit_program(
    program: LoopProgram,
    target: Target,
    name: str,
    overwriting: Sequence[tuple[Buffer, Buffer]] = (),
    *,
    fenced: bool = False,
) -> tuple[str, list[ManifestEntry]]:
    """Return LLVM IR text of a loop program, and its entry points; pairs of buffers that are
    ``overwriting`` may be one."""
    module = ModuleText(target, fenced)
    shared = frozenset(buffer for pair in overwriting for buffer in pair)
    kernels = [replace(kernel, body=by_one_thread(kernel.body)) for kernel in program.kernels]
    entries = [emit_kernel(module, kernel, f"{name}_{n}", shared) for n, kernel in enumerate(kernels)]
    return module.text(), entries


__all__ = ["LlvmBackend", "emit_program"]
