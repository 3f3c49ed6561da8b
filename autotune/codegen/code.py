"""The result of code generation: object code of one dispatch and the manifest for its calls.

A dispatch is one or more kernels that run in order, each a range of independent tiles::

    void symbol(int64_t *table, int64_t begin, int64_t end, void *scratch)

``table[k]`` is the address of buffer ``kernel.buffers[k]``; the call runs the tiles
``begin <= t < end`` of ``0 <= t < kernel.tiles``. Different tiles of one kernel may run at the same
time on different workers, each with scratch memory of its own; the next kernel starts when all
tiles of the one before are done.

On a GPU an entry point is started as its :class:`Launch` says. One of PTX takes the addresses of its buffers, each a
multiple of 16 bytes, and nothing else; one of OpenCL C memory and an offset in bytes for each buffer, then the tiles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

Size = tuple[int, int, int]
"""Along x, y and z."""

Role = Literal["input", "output", "workspace", "hoisted"]


@dataclass(frozen=True)
class BufferSpec:
    """A buffer that the kernels of a dispatch read or write.

    ``role`` is ``hoisted`` for values computed once, at compile time, from constant inputs;
    ``workspace`` for values that live only while the dispatch runs. ``nbytes`` is the size of the
    memory behind it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Role
    nbytes: int


@dataclass(frozen=True)
class Launch:
    """The launch of a kernel on a GPU: blocks of a grid and threads of a block, along x, y and z.

    No ``grid`` stands for a thread a tile, in as many blocks as these need.
    """

    grid: Size | None
    block: Size

    def blocks(self, tiles: int = 1) -> Size:
        """Return the grid for so many tiles (at least one).

        >>> Launch(None, (64, 1, 1)).blocks(100)
        (2, 1, 1)
        """
        return self.grid or (-(-tiles // self.block[0]), 1, 1)


@dataclass(frozen=True)
class Kernel:
    """One entry point of the object code.

    ``buffers`` are indexes into :attr:`DispatchCode.buffers`; ``scratch_bytes`` is per worker. A
    ``hoisted`` kernel runs once, at compile time. One of a GPU has a ``launch``, which runs all of it,
    or the tiles that it is told where it has no grid.
    """

    symbol: str
    buffers: tuple[int, ...]
    tiles: int
    hoisted: bool
    scratch_bytes: int
    launch: Launch | None = None


@dataclass(frozen=True)
class DispatchCode:
    """Code of one dispatch, its manifest, and the text that it was compiled from.

    ``object_code`` is what is loaded: for a CPU a relocatable ELF file, for a GPU of NVIDIA a text in PTX,
    whose ``ir`` is LLVM's, for a device of OpenCL its source. ``overwriting`` are pairs of an output and an input, by
    their indexes, that may be the same memory: each element of the input is read before the output's takes its place.

    ``key`` is the SHA-256 (hex) of what was generated: the text before a compiler sees it, without the names of
    symbols, and the manifest. It is the same on every machine and with every version of LLVM, and another as soon as
    what generates code makes anything else of the same schedule. By it a timing is known to be of this code.
    """

    object_code: bytes
    kernels: tuple[Kernel, ...]
    buffers: tuple[BufferSpec, ...]
    ir: str
    overwriting: tuple[tuple[int, int], ...] = ()
    key: str = ""


class RunnableCode(DispatchCode, ABC):
    """Code that runs on arrays of the process that made it: the interpreter's, and numba's."""

    @abstractmethod
    def run(self, number: int, arrays: Sequence[Array], begin: int, end: int) -> None:
        """Run some tiles of a kernel; ``arrays`` are those of its buffers, in their shapes."""

    @abstractmethod
    def workspaces(self) -> list[Array]:
        """Return fresh memory for the buffers behind the arguments."""


__all__ = ["BufferSpec", "DispatchCode", "Kernel", "Launch", "Role", "RunnableCode", "Size"]
