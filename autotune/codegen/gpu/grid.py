"""Kernels as grids of threads: what one thread does, and how many there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.codegen.code import Launch, Size
from autotune.errors import BuildError
from autotune.lower.ir import For, LoopKernel, Stmt, walk
from autotune.te.expr import Var

TILE_THREADS = 128
"""Threads of a block that runs tiles of a kernel without thread axes, a tile a thread."""

WARP = 32
"""Threads that run an instruction of a tensor core together: neighbours along threadIdx.x."""

_MAX_GRID: Size = ((1 << 31) - 1, 65535, 65535)
_MAX_BLOCK: Size = (1024, 1024, 64)
_MAX_THREADS = 1024


@dataclass(frozen=True)
class GridKernel:
    """A kernel as each thread of a grid runs it: no loop in ``body`` is bound to a thread axis.

    ``indices`` are the variables in ``body`` that stand for the thread's place, by tag of the thread axis. ``kernel``
    says which buffers it takes.
    """

    kernel: LoopKernel
    body: Stmt
    indices: Mapping[str, Var]
    launch: Launch


def has_blocks(stmt: Stmt) -> bool:
    """Whether loops inside of a statement are bound to blocks."""
    return any(isinstance(part, For) and part.kind.startswith("blockIdx") for part in walk(stmt))


def checked_size(name: str, extents: Mapping[str, int]) -> Launch:
    """Blocks and threads of a kernel, from the extents of its thread axes; raises BuildError for what no GPU runs."""
    grid, block = _size("blockIdx", extents), _size("threadIdx", extents)
    threads = block[0] * block[1] * block[2]
    for axis, limits, size in (("blockIdx", _MAX_GRID, grid), ("threadIdx", _MAX_BLOCK, block)):
        for letter, count, most in zip("xyz", size, limits, strict=True):
            if count > most:
                raise BuildError(
                    f"kernel {name}: {axis}.{letter} has {count} iterations, a GPU has at most {most} there; split "
                    f"the loop, and bind its parts to different axes"
                )
    if threads > _MAX_THREADS:
        shape = " x ".join(map(str, block))
        raise BuildError(
            f"kernel {name}: its blocks have {shape} = {threads} threads, a GPU runs at most {_MAX_THREADS}; bind "
            f"smaller loops to threadIdx"
        )
    return Launch(grid, block)


def _size(axis: str, extents: Mapping[str, int]) -> Size:
    x, y, z = (extents.get(f"{axis}.{letter}", 1) for letter in "xyz")
    return x, y, z


__all__ = ["TILE_THREADS", "WARP", "GridKernel", "checked_size", "has_blocks"]
