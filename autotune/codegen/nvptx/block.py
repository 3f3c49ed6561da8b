"""Blocks of threads on NVIDIA's GPUs: barriers, and the memory that the threads of a block share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autotune.codegen.llvm.accesses import Accesses
from autotune.codegen.llvm.memory import VECTOR_BYTES
from autotune.codegen.llvm.writer import Writer
from autotune.codegen.nvptx.copies import Copies
from autotune.codegen.nvptx.tensor_cores import TensorCores
from autotune.errors import BuildError
from autotune.lower.ir import AHEAD, Allocate, Barrier, Intrinsic, Store
from autotune.rounding import round_up
from autotune.target import ITEM_BYTES
from autotune.te.instructions import MatrixMultiply

SHARED_BYTES = 48 << 10
"""Shared memory that every kernel may have without asking the driver."""

LOCAL_BYTES = 512 << 10
"""Local memory of a thread at most."""


class CudaBlock:
    """Shared memory is one array a kernel, ``symbol``; buffers that do not live at the same time share places in it."""

    stack_bytes = LOCAL_BYTES

    def __init__(self, code: Writer, kernel: str, symbol: str) -> None:
        self.code = code
        self.kernel = kernel
        self.symbol = symbol
        self.shared_bytes = 0
        self._top = 0
        self._copies = Copies(code)

    def barrier(self, node: Barrier, code: Writer) -> None:
        """Let all threads wait, and see what the others wrote and copied."""
        if node.in_flight is not None:
            self._copies.wait(node.in_flight)
        line = "  " + code.call("void", "@llvm.nvvm.barrier0")
        if not code.lines or code.lines[-1] != line:
            code.lines.append(line)
        code.held.clear()

    @contextmanager
    def shared(self, node: Allocate) -> Iterator[str]:
        """Yield a place in shared memory; raises BuildError where there is no more."""
        buffer = node.buffer
        if AHEAD in node.note:
            self._copies.ahead.add(buffer)
        before, size = self._top, max(buffer.elements, 1) * ITEM_BYTES[buffer.dtype]
        self._top += round_up(size, VECTOR_BYTES)
        self.shared_bytes = max(self.shared_bytes, self._top)
        if self._top > SHARED_BYTES:
            raise BuildError(
                f"kernel {self.kernel}: shared memory for {buffer.name} brings it to {self._top} bytes, a block has "
                f"{SHARED_BYTES}; use smaller tiles"
            )
        name = "%" + self.code.fresh("shared")
        place = f"getelementptr (i8, ptr addrspace(3) @{self.symbol}, i64 {before})"
        self.code.entry.append(f"  {name} = addrspacecast ptr addrspace(3) {place} to ptr")
        yield name
        self._top = before

    def store(self, node: Store, accesses: Accesses) -> bool:
        """Return a copy that runs behind what follows, where the store can be one."""
        return self._copies.started(node, accesses)

    def multiply(self, node: Intrinsic, step: MatrixMultiply, accesses: Accesses) -> None:
        """Multiply by ``mma.sync``."""
        TensorCores(self.code, accesses).multiply(node, step)

    def definition(self) -> str:
        """Return the array, where there is one."""
        if not self.shared_bytes:
            return ""
        kind = f"[{self.shared_bytes} x i8]"
        return f"@{self.symbol} = internal addrspace(3) global {kind} undef, align {VECTOR_BYTES}"


__all__ = ["LOCAL_BYTES", "SHARED_BYTES", "CudaBlock"]
