"""Code of OpenCL devices: loop kernels to one source of OpenCL C."""

from __future__ import annotations

import hashlib

from autotune.codegen.code import DispatchCode
from autotune.codegen.gpu.launches import launches
from autotune.codegen.gpu.starts import Start, with_starts
from autotune.codegen.manifest import ManifestEntry, with_manifest
from autotune.codegen.opencl.functions import definitions
from autotune.codegen.opencl.kernel import emit_kernel
from autotune.errors import BuildError
from autotune.lower.ir import LoopKernel, LoopProgram, has_thread_axes
from autotune.target import Target
from autotune.te.depth import walks_deep

_UNNAMED = "unnamed_kernel"
"""Stands for the symbol prefix where code is generated: its hash does not depend on names."""


class OpenclBackend:
    """OpenCL C (see :class:`autotune.codegen.backend.Backend`): object code is the source that a driver compiles."""

    def compile(self, program: LoopProgram, target: Target, name: str = "") -> DispatchCode:
        """Return the source, whose first line says how each kernel is started (:mod:`autotune.codegen.gpu.starts`)."""
        generated, entries = emit_program(program, target, _UNNAMED)
        starts = {e.symbol: Start(e.launch, len(e.kernel.buffers)) for e in entries if e.launch}
        code = with_starts("opencl", starts, generated)
        name = name or "k" + hashlib.sha256(code).hexdigest()[:16]
        code = code.replace(_UNNAMED.encode(), name.encode())
        entries = [e._replace(symbol=e.symbol.replace(_UNNAMED, name)) for e in entries]
        return with_manifest(program, entries, code, code.decode(), generated=generated)

    def fenced(self, program: LoopProgram, target: Target, code: DispatchCode) -> None:
        """Return none: local memory is the driver's."""

    def manifest(self, program: LoopProgram, target: Target) -> DispatchCode:
        """Return the manifest; its entry points need no scratch memory."""
        generated, entries = emit_program(program, target, _UNNAMED)
        return with_manifest(program, entries, b"", "", generated=generated)


def _parts(program: LoopProgram) -> list[LoopKernel]:
    """Return the parts that are started by themselves: kernels whose tiles are work items, and launches of
    loops over threads."""
    return [
        part
        for kernel in program.kernels
        for part in (launches(kernel) if has_thread_axes(kernel.body) else [kernel])
    ]


@walks_deep
def emit_program(program: LoopProgram, target: Target, name: str) -> tuple[str, list[ManifestEntry]]:
    """Return OpenCL C of a loop program, and its entry points; raises BuildError where there is no code
    for a part of it."""
    functions = set[str]()
    texts, entries = list[str](), list[ManifestEntry]()
    for number, part in enumerate(_parts(program)):
        text, entry = emit_kernel(part, f"{name}_{number}", target, functions)
        texts.append(text)
        entries.append(entry)
    source = "\n".join([definitions(functions), *texts, ""])
    if "double" in source:
        if "fp64" not in target.features:
            raise BuildError(f"the program computes in float64, which {target.name} has not; use float32")
        source = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n" + source
    return source, entries


__all__ = ["OpenclBackend", "emit_program"]
