"""Code of NVIDIA's GPUs: loop kernels to one module of PTX."""

from __future__ import annotations

import hashlib

from autotune.codegen.code import DispatchCode
from autotune.codegen.gpu.launches import launches
from autotune.codegen.gpu.starts import Start, with_starts
from autotune.codegen.gpu.threads import as_threads
from autotune.codegen.llvm.module import ModuleText
from autotune.codegen.llvm.objects import assembly
from autotune.codegen.manifest import ManifestEntry, with_manifest
from autotune.codegen.nvptx.kernel import emit_kernel
from autotune.lower.ir import LoopProgram
from autotune.target import Target
from autotune.te.depth import walks_deep

_UNNAMED = "unnamed_kernel"
"""Stands for the symbol prefix where code is generated: its hash does not depend on names."""


class NvptxBackend:
    """PTX of a program (see :class:`autotune.codegen.backend.Backend`): a kernel has an entry point for each launch."""

    def compile(self, program: LoopProgram, target: Target, name: str = "") -> DispatchCode:
        """Return the PTX, which a driver compiles for its device, and the LLVM IR that it was made from."""
        generated, entries = emit_program(program, target, _UNNAMED)
        if not name:
            sizes = [e.launch for e in entries]
            name = "k" + hashlib.sha256(f"{target.cpu}\n{sizes}\n{generated}".encode()).hexdigest()[:16]
        ir = generated.replace(_UNNAMED, name)
        entries = [e._replace(symbol=e.symbol.replace(_UNNAMED, name)) for e in entries]
        starts = {e.symbol: Start(e.launch, len(e.kernel.buffers)) for e in entries if e.launch}
        code = with_starts("ptx", starts, assembly(ir, target))
        return with_manifest(program, entries, code, ir, generated=generated)

    def fenced(self, program: LoopProgram, target: Target, code: DispatchCode) -> None:
        """Return none: local memory is the driver's."""

    def manifest(self, program: LoopProgram, target: Target) -> DispatchCode:
        """Return launches, without code."""
        generated, entries = emit_program(program, target, _UNNAMED)
        return with_manifest(program, entries, b"", "", generated=generated)


@walks_deep
def emit_program(program: LoopProgram, target: Target, name: str) -> tuple[str, list[ManifestEntry]]:
    """Return LLVM IR text of a loop program, and its entry points."""
    module = ModuleText(target)
    parts = [part for kernel in program.kernels for part in launches(kernel)]
    entries = [emit_kernel(module, as_threads(part, target), f"{name}_{n}") for n, part in enumerate(parts)]
    return module.text(), entries


__all__ = ["NvptxBackend", "emit_program"]
