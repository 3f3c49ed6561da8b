"""The threads that run a kernel together: what backends of CPUs and of GPUs do differently for them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

from autotune.codegen.llvm.writer import Writer
from autotune.errors import BuildError
from autotune.lower.ir import Allocate, Barrier, Intrinsic, Store
from autotune.te.instructions import MatrixMultiply

if TYPE_CHECKING:
    from autotune.codegen.llvm.accesses import Accesses


class ThreadBlock(Protocol):
    """The block of threads that a kernel's code is one of."""

    stack_bytes: int
    """Local memory up to this is on the stack of a thread, more of it in the worker's scratch memory."""

    def barrier(self, node: Barrier, code: Writer) -> None:
        """Let all threads wait for one another."""

    def shared(self, node: Allocate) -> AbstractContextManager[str | None]:
        """Return a pointer to memory of all threads for a buffer in scope "shared"; None where it is
        like other memory."""

    def store(self, node: Store, accesses: Accesses) -> bool:
        """Return whether a store became instructions of the block's own."""

    def multiply(self, node: Intrinsic, step: MatrixMultiply, accesses: Accesses) -> None:
        """Multiply on tensor cores, by the threads of a warp together."""


class OneThread:
    """A worker of a CPU: threads run one at a time (:mod:`autotune.codegen.lockstep`), and shared memory is local
    memory."""

    stack_bytes = 16 << 10

    def barrier(self, node: Barrier, code: Writer) -> None:
        """Do nothing: there is nobody to wait for."""

    def shared(self, node: Allocate) -> AbstractContextManager[None]:
        """Return the like other local memory."""
        return nullcontext()

    def store(self, node: Store, accesses: Accesses) -> bool:
        """Return False: all threads are like others."""
        return False

    def multiply(self, node: Intrinsic, step: MatrixMultiply, accesses: Accesses) -> None:
        """Refuse: no CPU has warps."""
        raise BuildError(f"intrinsic {node.name} is of tensor cores, which a CPU does not have")


__all__ = ["OneThread", "ThreadBlock"]
