"""Launches to LLVM functions: the entry points that a driver starts, each for all threads of a grid."""

from __future__ import annotations

from dataclasses import replace

from autotune.codegen.gpu.grid import GridKernel
from autotune.codegen.llvm.kernel import KernelEmitter
from autotune.codegen.llvm.memory import VECTOR_BYTES
from autotune.codegen.llvm.module import ModuleText
from autotune.codegen.llvm.types import Value
from autotune.codegen.llvm.writer import Writer
from autotune.codegen.manifest import ManifestEntry
from autotune.codegen.nvptx.block import LOCAL_BYTES, CudaBlock
from autotune.errors import BuildError

_REGISTERS = {"blockIdx": "ctaid", "threadIdx": "tid"}
"""Special registers by thread axis."""


def emit_kernel(module: ModuleText, launch: GridKernel, symbol: str) -> ManifestEntry:
    """Emit the entry point of a launch into a module; raises BuildError for what a thread cannot have."""
    kernel, size = launch.kernel, launch.launch
    code = Writer(module)
    block = CudaBlock(code, kernel.name, f"{symbol}_shared")
    emitter = KernelEmitter(code, replace(kernel, body=launch.body), may_stream=False, block=block)
    for tag, var in launch.indices.items():
        emitter.expressions.env[var] = _place(code, tag)
    lines = emitter.emit()
    scratch_bytes = emitter.places.scratch_bytes
    emitter.close()
    if scratch_bytes:
        raise BuildError(
            f"kernel {kernel.name}: each thread needs more than {LOCAL_BYTES} bytes of local memory; compute stages at "
            f"the root, or in smaller parts"
        )
    if block.shared_bytes:
        module.define(block.definition())
    arguments = ", ".join(
        f"ptr noalias {'readonly ' if b in kernel.reads else ''}align {VECTOR_BYTES} %b{n}"
        for n, b in enumerate(kernel.buffers)
    )
    # One block must fit a multiprocessor: without a word on that the assembler stops at 64 registers and may spill.
    threads = ",".join(map(str, size.block))
    attributes = f'"nvvm.reqntid"="{threads}" "nvvm.minctasm"="1"'
    module.define(
        f"define ptx_kernel void @{symbol}({arguments}) #0 {attributes} {{\n"
        "entry:\n" + "\n".join(lines) + "\n  ret void\n}"
    )
    return ManifestEntry(kernel, symbol, 0, size)


def _place(code: Writer, tag: str) -> Value:
    """Return the thread's or block's place along an axis."""
    axis, letter = tag.split(".")
    name = f"%{axis}.{letter}"
    call = code.call("i32", f"@llvm.nvvm.read.ptx.sreg.{_REGISTERS[axis]}.{letter}")
    code.entry += [f"  {name}.register = {call}", f"  {name} = zext nneg i32 {name}.register to i64"]
    code.available(name, 0)
    return Value(name, "int64")


__all__ = ["emit_kernel"]
