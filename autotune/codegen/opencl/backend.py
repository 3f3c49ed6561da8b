"""Code of OpenCL devices: loop kernels to one source of OpenCL C."""

from __future__ import annotations

import hashlib

from autotune.codegen.code import DispatchCode
from autotune.codegen.manifest import Entry, with_manifest
from autotune.codegen.opencl.functions import definitions
from autotune.codegen.opencl.kernel import emit_kernel
from autotune.codegen.opencl.launch import Launch, with_launches
from autotune.errors import BuildError
from autotune.lower.ir import LoopProgram
from autotune.target import Target
from autotune.te.depth import walks_deep

_UNNAMED = "unnamed_kernel"
"""Stands for the symbol prefix until the code, and with it its hash, is known."""


class OpenclBackend:
    """OpenCL C (see :class:`autotune.codegen.backend.Backend`): object code is the source that a driver compiles."""

    def compile(self, program: LoopProgram, target: Target, name: str = "") -> DispatchCode:
        """The source, whose first line says how each kernel is started (:mod:`autotune.codegen.opencl.launch`)."""
        text, entries = emit_program(program, target, name or _UNNAMED)
        if not name:
            name = "k" + hashlib.sha256(text.encode()).hexdigest()[:16]
            text = text.replace(_UNNAMED, name)
            entries = [e._replace(symbol=e.symbol.replace(_UNNAMED, name)) for e in entries]
        return with_manifest(program, entries, text.encode(), text)

    def manifest(self, program: LoopProgram, target: Target) -> DispatchCode:
        """Its kernels need no scratch memory."""
        return with_manifest(program, [Entry(kernel, "") for kernel in program.kernels], b"", "")


@walks_deep
def emit_program(program: LoopProgram, target: Target, name: str) -> tuple[str, list[Entry]]:
    """OpenCL C of a loop program, and its entry points; raises BuildError where there is no code for a part of it."""
    functions = set[str]()
    texts, entries, launches = list[str](), list[Entry](), dict[str, Launch]()
    for number, kernel in enumerate(program.kernels):
        symbol = f"{name}_{number}"
        text, launches[symbol] = emit_kernel(kernel, symbol, target, functions)
        texts.append(text)
        entries.append(Entry(kernel, symbol))
    source = "\n".join([definitions(functions), *texts, ""])
    if "double" in source:
        if "fp64" not in target.features:
            raise BuildError(f"the program computes in float64, which {target.name} has not; use float32")
        source = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n" + source
    return with_launches(launches, source), entries


__all__ = ["OpenclBackend", "emit_program"]
