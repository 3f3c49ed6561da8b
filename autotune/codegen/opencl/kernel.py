"""Loop kernels to OpenCL C: the function that the device runs.

A kernel without thread axes has a work item a tile. One with them is what :mod:`autotune.codegen.gpu` makes of it: a
group a block, whose work items all run the same.
"""

from __future__ import annotations

from dataclasses import replace

from autotune.codegen.code import Launch, Size
from autotune.codegen.gpu.threads import as_threads
from autotune.codegen.manifest import ManifestEntry
from autotune.codegen.opencl.statements import Statements
from autotune.codegen.opencl.types import memory_type
from autotune.codegen.opencl.writer import Writer
from autotune.errors import BuildError
from autotune.lower.ir import For, Intrinsic, LoopKernel, Prefetch, Stmt, has_thread_axes, sequence
from autotune.lower.rewrite import with_parts
from autotune.target import Target

ITEMS = 64
"""Work items of a group of a kernel that has one a tile."""
PRIVATE_BYTES = 1 << 10
"""With more memory than that of its own, a work item is a group."""

_PLACES = {"blockIdx": "get_group_id", "threadIdx": "get_local_id"}
"""Functions by thread axis."""


def emit_kernel(
    kernel: LoopKernel, symbol: str, target: Target, functions: set[str]
) -> tuple[str, ManifestEntry]:
    """Return the text of a kernel or launch, and its entry point; functions of ours that it calls are
    added to ``functions``.

    Raises BuildError for what the device cannot run.
    """
    body = _Kernel(kernel, target, functions)
    launch = body.groups() if has_thread_axes(kernel.body) else body.tiles()
    return body.text(symbol, launch.block), ManifestEntry(kernel, symbol, 0, launch)


def _plain(stmt: Stmt) -> Stmt:
    """Return the declared instructions as the loops that they stand for; nothing is prefetched."""
    if isinstance(stmt, Intrinsic):
        return _plain(stmt.body)
    return sequence([]) if isinstance(stmt, Prefetch) else with_parts(stmt, _plain)


class _Kernel:
    def __init__(self, kernel: LoopKernel, target: Target, functions: set[str]) -> None:
        self.kernel = kernel
        self.target = target
        self.code = Writer(functions)
        self.inner = Statements(
            self.code,
            target.lanes("float32"),
            together=has_thread_axes(kernel.body),
            pointed="cpu" in target.features,
        )
        for number, buffer in enumerate(kernel.buffers):
            self.inner.pointers[buffer], self.inner.spaces[buffer] = f"b{number}", "__global"

    def tiles(self) -> Launch:
        """Write a kernel without thread axes."""
        body = self.kernel.body
        if isinstance(body, For) and body.kind == "parallel":
            self.code.line("const long tile = begin + (long)get_global_id(0);")
            self.code.line("if (tile >= end) return;")
            self.inner.counted(body.var, body.extent, "tile")
            self.inner.statement(body.body)
        else:
            self.code.line("if (begin >= end || get_global_id(0) > 0) return;")
            self.inner.statement(body)
        most = min(ITEMS, self.target.group_items or ITEMS, self.kernel.tiles)
        # A core runs the items of a group one after another, and its compiler loops over them.
        alone = "cpu" in self.target.features or self.inner.private_bytes > PRIVATE_BYTES
        return Launch(None, (1 if alone else most, 1, 1))

    def groups(self) -> Launch:
        """Write a kernel with thread axes."""
        found = as_threads(replace(self.kernel, body=_plain(self.kernel.body)), self.target)
        self.code.line("if (begin >= end) return;")
        sizes = {"blockIdx": found.launch.blocks(), "threadIdx": found.launch.block}
        for tag, variable in found.indices.items():
            axis, letter = tag.split(".")
            number = "xyz".index(letter)
            self.inner.counted(variable, sizes[axis][number], f"{_PLACES[axis]}({number})")
        self.inner.statement(found.body)
        shared = self.inner.local_bytes
        if self.target.shared_bytes and shared > self.target.shared_bytes:
            raise BuildError(
                f"kernel {self.kernel.name} shares {shared} bytes among the threads of a block; the device has "
                f"{self.target.shared_bytes}: compute smaller parts of the shared stages"
            )
        return found.launch

    def text(self, symbol: str, items: Size) -> str:
        """Return the kernel: memory and an offset for each buffer, then the tiles."""
        buffers = self.kernel.buffers
        arguments = [f"__global uchar *p{n}, const ulong o{n}" for n, _ in enumerate(buffers)]
        inner = [
            f"__global {'const ' if b in self.kernel.reads else ''}{memory_type(b.dtype)} *restrict b{n}"
            for n, b in enumerate(buffers)
        ]
        inner += [f"__local {ctype} *restrict {name}" for ctype, name, _ in self.code.local]
        given = [
            f"(__global {'const ' if b in self.kernel.reads else ''}{memory_type(b.dtype)} *)(p{n} + o{n})"
            for n, b in enumerate(buffers)
        ]
        given += [name for _, name, _ in self.code.local]
        required = ", ".join(map(str, items))
        fixed = f"__attribute__((reqd_work_group_size({required})))\n"
        lines = [
            f"static inline void {symbol}_body({', '.join([*inner, 'const long begin', 'const long end'])}) {{",
            *self.code.lines,
            "}",
            f"{fixed}__kernel void {symbol}({', '.join([*arguments, 'const long begin', 'const long end'])}) {{",
            *(f"  __local {ctype} {name}[{count}];" for ctype, name, count in self.code.local),
            f"  {symbol}_body({', '.join([*given, 'begin', 'end'])});",
            "}",
        ]
        return "\n".join(lines)


__all__ = ["ITEMS", "emit_kernel"]
