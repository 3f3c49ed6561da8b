"""Loop kernels to LLVM functions: which code each statement becomes, and the runtime's calling convention."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

from autotune.codegen.llvm.accesses import Accesses
from autotune.codegen.llvm.addresses import Addresses
from autotune.codegen.llvm.arithmetic import ArithmeticEmitter
from autotune.codegen.llvm.block import OneThread, ThreadBlock
from autotune.codegen.llvm.blocks import Blocks
from autotune.codegen.llvm.control_flow import ControlFlow
from autotune.codegen.llvm.expressions import Expressions
from autotune.codegen.llvm.instructions import Instructions
from autotune.codegen.llvm.lanes import masks_fit, settle_lanes
from autotune.codegen.llvm.memory import MemoryAccesses
from autotune.codegen.llvm.module import ModuleText
from autotune.codegen.llvm.places import BufferPlaces
from autotune.codegen.llvm.streams import StreamingStores, alignment_test
from autotune.codegen.llvm.tiles import TileRegisters
from autotune.codegen.llvm.writer import Writer
from autotune.codegen.manifest import ManifestEntry
from autotune.errors import BuildError
from autotune.lower import ir


def emit_kernel(
    module: ModuleText, kernel: ir.LoopKernel, symbol: str, shared: Set[ir.Buffer] = frozenset()
) -> ManifestEntry:
    """Emit a kernel into a module; one that streams also as it is for arrays that are not aligned.

    Of buffers that are ``shared`` one may be the same memory as another.
    """
    scratch_bytes, streamed = _define_body(module, kernel, f"{symbol}.body", shared, may_stream=True)
    if streamed:
        plain, _ = _define_body(module, kernel, f"{symbol}.plain", shared, may_stream=False)
        scratch_bytes = max(scratch_bytes, plain)
    _define_entry(module, kernel, symbol, streamed)
    return ManifestEntry(kernel, symbol, scratch_bytes)


def _define_body(
    module: ModuleText, kernel: ir.LoopKernel, name: str, shared: Set[ir.Buffer], *, may_stream: bool
) -> tuple[int, Set[ir.Buffer]]:
    """Return a function that runs tiles on buffers whose addresses are its arguments.

    Returns the bytes of its scratch memory, and the buffers that it streams to.
    """
    body = KernelEmitter(Writer(module), kernel, may_stream)
    lines = body.emit()
    found = body.places.scratch_bytes, body.streams.buffers
    body.close()
    arguments = "".join(
        f"ptr {'' if b in shared else 'noalias '}{'readonly ' if b in kernel.reads else ''}%b{n}, "
        for n, b in enumerate(kernel.buffers)
    )
    module.define(
        f'define internal void @"{name}"'
        f"({arguments}i64 %begin, i64 %end, ptr noalias %scratch) #0 {{\n"
        "entry:\n" + "\n".join(lines) + "\n  ret void\n}"
    )
    return found


def _define_entry(module: ModuleText, kernel: ir.LoopKernel, symbol: str, streamed: Set[ir.Buffer]) -> None:
    """Define the function that the runtime calls: pointers from the table, then one of the bodies."""
    lines = []
    for n, _ in enumerate(kernel.buffers):
        lines.append(f"  %p{n} = getelementptr i64, ptr %table, i64 {n}")
        lines.append(f"  %b{n} = load ptr, ptr %p{n}, align 8")
    pointers = "".join(f"ptr %b{n}, " for n in range(len(kernel.buffers)))
    arguments = f"({pointers}i64 %begin, i64 %end, ptr %scratch)"
    if streamed:
        lines += alignment_test([n for n, b in enumerate(kernel.buffers) if b in streamed])
        lines += [f'  call void @"{symbol}.plain"{arguments}', "  ret void", "streams:"]
    lines.append(f'  call void @"{symbol}.body"{arguments}')
    module.define(
        f"define void @{symbol}(ptr %table, i64 %begin, i64 %end, ptr %scratch) #0 {{\n"
        + "\n".join(lines)
        + "\n  ret void\n}"
    )


class KernelEmitter:
    """Emits the statements of a kernel, by parts that know only those named in their constructors."""

    def __init__(
        self, code: Writer, kernel: ir.LoopKernel, may_stream: bool, block: ThreadBlock | None = None
    ) -> None:
        self.code = code
        self.block = block or OneThread()
        self.kernel = kernel
        arithmetic = ArithmeticEmitter(code)
        # A load in an expression has an address, and that expressions in it: the one circle among the parts.
        self.expressions = Expressions(arithmetic, {}, lambda node: self.accesses.load(node), self._written)
        self.addresses = Addresses(code, self.expressions.env, self.expressions.value)
        self.places = BufferPlaces(code, self.addresses, kernel, self.block)
        self.memory = MemoryAccesses(arithmetic, self.places.pointers.__getitem__, frozenset(kernel.reads))
        blocks = Blocks(self.memory, self.addresses)
        self.streams = StreamingStores(code, self.addresses, may_stream)
        self.accesses = Accesses(
            self.expressions, self.addresses, self.places, self.memory, blocks, self.streams
        )
        self.tiles = TileRegisters(code, kernel.body)
        self.instructions = Instructions(arithmetic, self.accesses, self.block, self.tiles)
        self.flow = ControlFlow(self.expressions, self.accesses, self.statement)
        self._emit: dict[type[ir.Stmt], Callable[[Any], None]] = {
            ir.Seq: self._sequence,
            ir.For: self.flow.loop,
            ir.While: self.flow.repeat_while,
            ir.Store: self.accesses.store,
            ir.Allocate: self._allocate,
            ir.Let: self._let,
            ir.If: self.flow.branch,
            ir.Intrinsic: self._intrinsic,
            ir.External: self.instructions.external,
            ir.Prefetch: self._prefetch,
            ir.Barrier: self._barrier,
        }

    def emit(self) -> list[str]:
        """Return the lines of the function."""
        form = self.addresses.form
        body = settle_lanes(self.kernel.body, form)
        self.places.masks_rests = masks_fit(body, form, self.code.module.target)
        if isinstance(body, ir.For) and body.kind == "parallel":
            self.flow.tiles(body)
        else:
            self.statement(body)
        self.streams.end()
        end = () if self.places.fences is None else self.places.fences.told()
        return [*self.code.entry, *self.tiles.begin(), *self.code.flat_lines(), *self.tiles.end(), *end]

    def close(self) -> None:
        """Free the parts, which refer to each other: the collector of such garbage is paused while models compile."""
        vars(self).clear()

    def _written(self, buffer: ir.Buffer) -> list[tuple[str, str]]:
        """Return the pointer of a buffer with that of each which the kernel writes to."""
        pointers = self.places.pointers
        return [(pointers[buffer], pointers[each]) for each in self.kernel.writes if buffer in pointers]

    def statement(self, node: ir.Stmt) -> None:
        """Emit a statement."""
        emit = self._emit.get(type(node))
        if emit is None:
            raise BuildError(f"no code for statement {type(node).__name__}")
        emit(node)

    def _sequence(self, node: ir.Seq) -> None:
        for part in node.stmts:
            self.statement(part)

    def _let(self, node: ir.Let) -> None:
        with self.code.memo, self.addresses.terms:
            value = self.expressions.env[node.var] = self.expressions.value(node.value)
            self.code.available(value.text, self.code.depth)
            self.addresses.named(node.var, node.value)
            self.statement(node.body)

    def _intrinsic(self, node: ir.Intrinsic) -> None:
        if node.instructions:
            self.instructions.replacement(node)
        else:
            self.statement(node.body)

    def _allocate(self, node: ir.Allocate) -> None:
        with self.places.allocated(node):
            self.statement(node.body)

    def _prefetch(self, node: ir.Prefetch) -> None:
        """Fetch for reading, to be kept in the caches of the level and beyond."""
        if self.code.module.target.is_nvidia:
            return  # other threads run while this one waits
        if self.code.lanes > 1 or node.buffer not in self.places.pointers:
            return  # what nothing reads needs no fetching
        with self.code.memo:
            form = self.addresses.form(node, node.buffer, node.indices)
            pointer = self.memory.pointer(node.buffer, self.addresses.address(form))
        how = ("i32", "0"), ("i32", str(4 - node.level)), ("i32", "1")
        self.code.lines.append("  " + self.code.call("void", "@llvm.prefetch.p0", ("ptr", pointer), *how))

    def _barrier(self, node: ir.Barrier) -> None:
        self.block.barrier(node, self.code)


__all__ = ["KernelEmitter", "emit_kernel"]
