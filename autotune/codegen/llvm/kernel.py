"""Loop kernels to LLVM functions: which code each statement becomes, and the runtime's calling convention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotune.codegen.llvm.control_flow import FlowEmitter
from autotune.codegen.llvm.lanes import masks_fit, settle_lanes
from autotune.codegen.llvm.module import ModuleText
from autotune.codegen.llvm.streams import alignment_test
from autotune.errors import BuildError
from autotune.lower.ir import (
    Allocate,
    Barrier,
    For,
    If,
    Intrinsic,
    Let,
    LoopKernel,
    Prefetch,
    Seq,
    Stmt,
    Store,
)


class KernelEmitter(FlowEmitter):
    """Emits one kernel: ``symbol`` with the runtime's calling convention."""

    def __init__(self, module: ModuleText, kernel: LoopKernel, symbol: str) -> None:
        super().__init__(module, kernel)
        self.symbol = symbol

    def emit(self) -> None:
        """Emit the kernel into the module; one that streams also as it is for arrays that are not aligned."""
        self._emit_body("body")
        if self.streamed:
            plain = KernelEmitter(self.module, self.kernel, self.symbol)
            plain.may_stream = False
            plain._emit_body("plain")
            self.scratch_bytes = max(self.scratch_bytes, plain.scratch_bytes)
        self._emit_entry()

    def _emit_body(self, name: str) -> None:
        body = settle_lanes(self.kernel.body, self.form)
        self.masks_rests = masks_fit(body, self.form, self.module.target)
        if isinstance(body, For) and body.kind == "parallel":
            with self.streams_of(body):
                self._parallel(body)
        else:
            self.stmt(body)
        self.end_of_streams()
        arguments = "".join(
            f"ptr noalias {'readonly ' if b in self.kernel.reads else ''}{self._pointers[b]}, "
            for b in self.buffers
        )
        self.module.define(
            f'define internal void @"{self.symbol}.{name}"'
            f"({arguments}i64 %begin, i64 %end, ptr noalias %scratch) #0 {{\n"
            "entry:\n" + "\n".join(self.entry + self.flat_lines()) + "\n  ret void\n}"
        )

    def _emit_entry(self) -> None:
        """The function that the runtime calls: pointers from the table, then one of the bodies."""
        lines = []
        for n, _ in enumerate(self.buffers):
            lines.append(f"  %p{n} = getelementptr i64, ptr %table, i64 {n}")
            lines.append(f"  %b{n} = load ptr, ptr %p{n}, align 8")
        arguments = "".join(f"ptr %b{n}, " for n in range(len(self.buffers)))
        arguments = f"({arguments}i64 %begin, i64 %end, ptr %scratch)"
        if self.streamed:
            lines += alignment_test([n for n, b in enumerate(self.buffers) if b in self.streamed])
            lines += [f'  call void @"{self.symbol}.plain"{arguments}', "  ret void", "streams:"]
        lines.append(f'  call void @"{self.symbol}.body"{arguments}')
        self.module.define(
            f"define void @{self.symbol}(ptr %table, i64 %begin, i64 %end, ptr %scratch) #0 {{\n"
            + "\n".join(lines)
            + "\n  ret void\n}"
        )

    # -- statements ------------------------------------------------------------------------------------------

    def stmt(self, node: Stmt) -> None:
        """Emit a statement."""
        emit = _EMIT.get(type(node))
        if emit is None:
            raise BuildError(f"no code for statement {type(node).__name__}")
        emit(self, node)

    def _seq(self, node: Seq) -> None:
        for part in node.stmts:
            self.stmt(part)

    def _let(self, node: Let) -> None:
        with self.statement(), self._terms:
            value = self.env[node.var] = self.expr(node.value)
            self.available(value.text, self.depth)
            self.divisible(node.var, node.value)
            self.stmt(node.body)

    def _intrinsic(self, node: Intrinsic) -> None:
        if node.instructions:
            self.replacement(node)
        else:
            self.stmt(node.body)

    def _allocate(self, node: Allocate) -> None:
        with self.allocated(node):
            self.stmt(node.body)

    def _prefetch(self, node: Prefetch) -> None:
        """Fetch for reading, to be kept in all levels of the cache."""
        if self.lanes > 1 or node.buffer not in self._pointers:  # what nothing reads needs no fetching
            return
        with self.statement():
            pointer = self.pointer(node.buffer, self.address(self.form(node, node.buffer, node.indices)))
        self.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.lines.append(f"  call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 3, i32 1)")

    def _barrier(self, _: Barrier) -> None:
        if self._threads:
            raise BuildError(
                f"threads of {', '.join(self._threads)} exchange data through shared memory: a CPU runs bound "
                f"loops one after another; build for a GPU, or attach the shared stage outside of those loops"
            )


_EMIT: dict[type[Stmt], Callable[[KernelEmitter, Any], None]] = {
    Seq: KernelEmitter._seq,
    For: KernelEmitter._for,
    Store: KernelEmitter._store,
    Allocate: KernelEmitter._allocate,
    Let: KernelEmitter._let,
    If: KernelEmitter._if,
    Intrinsic: KernelEmitter._intrinsic,
    Prefetch: KernelEmitter._prefetch,
    Barrier: KernelEmitter._barrier,
}
"""How each kind of statement is emitted."""

__all__ = ["KernelEmitter"]
