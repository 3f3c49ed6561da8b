"""Kernels as grids of threads: what one thread does, and how many there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.codegen.code import Launch, Size
from autotune.errors import BuildError
from autotune.lower.ir import For, LoopKernel, Stmt, is_block_axis, walk
from autotune.target import Target
from autotune.te.expr import Var

TILE_THREADS = 128
"""Threads of a block that runs tiles of a kernel without thread axes, a tile a thread."""

WARP = 32
"""Threads that run an instruction of a tensor core together: neighbours along threadIdx.x."""

_MOST = (1 << 31) - 1
_CUDA_GRID: Size = (_MOST, 65535, 65535)
_CUDA_BLOCK: Size = (1024, 1024, 64)
_ANY: Size = (_MOST, _MOST, _MOST)


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
    """Return whether loops inside of a statement are bound to blocks."""
    return any(isinstance(part, For) and is_block_axis(part.kind) for part in walk(stmt))


def checked_size(name: str, extents: Mapping[str, int], target: Target) -> Launch:
    """Return blocks and threads of a kernel, from the extents of its thread axes.

    Raises BuildError for what the target does not run.
    """
    grid, block = _size("blockIdx", extents), _size("threadIdx", extents)
    threads, most_threads = block[0] * block[1] * block[2], target.group_items
    for axis, limits, size in _limits(target, grid, block):
        for letter, count, most in zip("xyz", size, limits, strict=True):
            if count > most:
                raise BuildError(
                    f"kernel {name}: {axis}.{letter} has {count} iterations, the device has at most {most} there; "
                    f"split the loop, and bind its parts to different axes"
                )
    if most_threads and threads > most_threads:
        shape = " x ".join(map(str, block))
        raise BuildError(
            f"kernel {name}: its blocks have {shape} = {threads} threads, the device runs at most {most_threads}; "
            f"bind smaller loops to threadIdx"
        )
    return Launch(grid, block)


def _limits(target: Target, grid: Size, block: Size) -> tuple[tuple[str, Size, Size], ...]:
    """Return the allowed extent of each axis along x, y and z, and the extent that there is."""
    most = (_CUDA_GRID, _CUDA_BLOCK) if target.is_nvidia else (_ANY, _ANY)
    return ("blockIdx", most[0], grid), ("threadIdx", most[1], block)


def _size(axis: str, extents: Mapping[str, int]) -> Size:
    x, y, z = (extents.get(f"{axis}.{letter}", 1) for letter in "xyz")
    return x, y, z


__all__ = ["TILE_THREADS", "WARP", "GridKernel", "checked_size", "has_blocks"]
