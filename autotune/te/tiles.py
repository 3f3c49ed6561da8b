"""Products of tile registers (Intel's AMX), as tensor intrinsics.

``tdpbf16ps_32x32x1024`` adds a product of 32 rows, 32 columns and a depth of 1024 to ``c``. Rows and columns are those
of one tile, up to 16, or of two of half as many. The depth is a multiple of the group, in tiles of up to 64 bytes, all
of one size. ``tdpbusd_2.14x32x3.3.64`` has loops for two tiles of 14 rows, and for a window of 3 x 3 around the depth:
each of these moves ``a`` by a distance of its own. Sums stay in tile registers for the whole depth and window. The
instructions are those of tiles in :data:`autotune.te.dot_products.DOT_PRODUCTS`: of bfloat16 and half to float32, and
of bytes with and without signs, exact modulo 2**32.

Rows of ``a`` have their elements next to one another. Of ``b`` a group of neighbouring steps, two or four, lies
together, and groups of the same steps in the order of their columns: ``b[k, j]`` is at ``[k // group, j, k % group]``
(VNNI's layout). A schedule splits the reduction into groups, so the pattern has two loops for it.

Sums of floats are those of Intel's manual (SDM, TDPBF16PS and TDPFP16PS): first and second members of the groups of one
tile are summed apart, from 0, each product fused; then both sums are added, and that to ``c``. Each step is rounded to
the nearest, ties to even. Subnormal float32 numbers are taken for 0 and become 0: of bfloat16 as well, not of half.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from autotune.errors import ScheduleError
from autotune.te.dot_products import TILE_PRODUCTS
from autotune.te.expr import cast
from autotune.te.instructions import TileMultiply
from autotune.te.intrinsic import INTRINSICS, BufferDecl, decl_tensor_intrin
from autotune.te.operations import compute, placeholder, reduce_axis
from autotune.te.reductions import sum as te_sum

if TYPE_CHECKING:
    from autotune.te.dot_products import DotProduct
    from autotune.te.intrinsic import TensorIntrin

SIDE = 16
"""The most rows and columns of a tile, and groups of its depth."""

BLOCKS = (16, 32)
"""Rows and columns of a product of whole tiles: of one, or of two."""

_NAME = re.compile(r"(\w+?)_((?:2\.)?\d+)x(\d+)x((?:\d+\.)*\d+)")


def by_name(name: str) -> TensorIntrin:
    """Return the product that a trace names; raises ScheduleError for a name that is none of ours."""
    if name in INTRINSICS:
        return INTRINSICS[name]
    found = _NAME.fullmatch(name)
    dot = TILE_PRODUCTS.get(found[1]) if found else None
    if found is None or dot is None:
        raise ScheduleError(
            f"no product of tiles {name!r}; it would be written like 'tdpbf16ps_32x32x64', "
            f"with one of {', '.join(TILE_PRODUCTS)}"
        )
    rows, columns, depth = (tuple(map(int, found[number].split("."))) for number in (2, 3, 4))
    halves = rows[-1] if len(rows) > 1 else in_tiles(rows[0])[1], in_tiles(columns[0])[1]
    if (
        0 in (*rows, *columns, *depth)
        or max(halves) > SIDE
        or in_tiles(columns[0])[0] * halves[1] != columns[0]
    ):
        raise _refused(name, dot)
    if (
        math.prod(rows) != (rows[0] if len(rows) > 1 else in_tiles(rows[0])[0]) * halves[0]
        or depth[-1] % dot.group
    ):
        raise _refused(name, dot)
    return _declare(dot, name, rows, columns[0], depth)


def _refused(name: str, dot: DotProduct) -> ScheduleError:
    return ScheduleError(
        f"{name}: rows and columns of a product of tiles are up to {SIDE} each, or twice as many, "
        f"its depth is a multiple of {dot.group}"
    )


def in_tiles(size: int) -> tuple[int, int]:
    """Return how many tiles rows or columns are, one or two, and the size of each."""
    return (1, size) if size <= SIDE else (2, size // 2)


def depth_in_tiles(depth: int, group: int) -> tuple[int, int]:
    """Return how many tiles a depth is, and the depth of each: as few as have one size in whole groups."""
    groups = depth // group
    count = next(n for n in range(-(-groups // SIDE), groups + 1) if groups % n == 0)
    return count, depth // count


def _declare(
    dot: DotProduct, name: str, rows: tuple[int, ...], columns: int, depths: tuple[int, ...]
) -> TensorIntrin:
    *window, depth = depths
    a = placeholder((*rows, *window, depth), dot.left, name="a")
    b = placeholder((*window, depth // dot.group, columns, dot.group), dot.right, name="b")
    taps = [reduce_axis((0, size), name=f"tap{n}") for n, size in enumerate(window)]
    group = reduce_axis((0, depth // dot.group), name="group")
    place = reduce_axis((0, dot.group), name="place")

    def element(*axes: Any) -> Any:
        *i, j = axes
        left, right = a[(*i, *taps, group * dot.group + place)], b[(*taps, group, j, place)]
        return te_sum(cast(left, dot.total) * cast(right, dot.total), axis=[*taps, group, place])

    c: Any = compute((*rows, columns), element, name="c")
    height = rows if len(rows) > 1 else in_tiles(rows[0])
    deep = depth_in_tiles(depth, dot.group)

    def part(accumulates: bool, *, empty: bool = False) -> TileMultiply:
        size = (0, deep[1]) if empty else deep
        return TileMultiply(
            dot.name, (height[0], height[1]), in_tiles(columns), tuple(window), size, accumulates
        )

    # A step for each loop: None stands for any.
    binds = {
        c: BufferDecl((*(None for _ in rows), 1)),
        a: BufferDecl((*(None for _ in (*rows, *window)), dot.group, 1)),
        b: BufferDecl((*(None for _ in window), None, dot.group, 1)),
    }
    return decl_tensor_intrin(
        c.op,
        lambda ins, outs: (part(False), part(False, empty=True), part(True)),
        kinds={c.op.axis[-1].name: "vectorized"},
        binds=binds,
        requires=dot.requires,
        name=name,
    )


__all__ = ["BLOCKS", "SIDE", "by_name", "depth_in_tiles", "in_tiles"]
