"""Products of tile registers (Intel's AMX), as tensor intrinsics.

``tdpbf16ps_32x32x1024`` adds a product of 32 rows, 32 columns and a depth of 1024 to ``c``: rows and columns are those
of one tile or of two, 16 or 32, and the depth that of whole tiles, in multiples of 64 bytes. Sums stay in tile
registers for the whole depth. The instructions are those of tiles in :data:`autotune.te.dot_products.DOT_PRODUCTS`: of
bfloat16 and half to float32, and of bytes with and without signs, exact modulo 2**32.

Rows of ``a`` have their elements next to one another. Of ``b`` a group of neighbouring steps, two or four, lies
together, and groups of the same steps in the order of their columns: ``b[k, j]`` is at ``[k // group, j, k % group]``
(VNNI's layout). A schedule splits the reduction into groups, so the pattern has two loops for it.

Sums of floats are those of Intel's manual (SDM, TDPBF16PS and TDPFP16PS): first and second members of the groups of one
tile are summed apart, from 0, each product fused; then both sums are added, and that to ``c``. Each step is rounded to
the nearest, ties to even. Subnormal float32 numbers are taken for 0 and become 0: of bfloat16 as well, not of half.
"""

from __future__ import annotations

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

BLOCKS = (16, 32)
"""Rows and columns of a product: of one tile, or of two."""

_NAME = re.compile(r"(\w+?)_(\d+)x(\d+)x(\d+)")


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
    rows, columns, depth = (int(found[number]) for number in (2, 3, 4))
    step = dot.group * dot.depth
    if rows not in BLOCKS or columns not in BLOCKS or not depth or depth % step:
        raise ScheduleError(
            f"{name}: rows and columns of a product of tiles are 16 or 32 each, its depth is a multiple of {step}"
        )
    return _declare(dot, name, rows, columns, depth)


def _declare(dot: DotProduct, name: str, rows: int, columns: int, depth: int) -> TensorIntrin:
    a = placeholder((rows, depth), dot.left, name="a")
    b = placeholder((depth // dot.group, columns, dot.group), dot.right, name="b")
    group = reduce_axis((0, depth // dot.group), name="group")
    place = reduce_axis((0, dot.group), name="place")

    def element(i: Any, j: Any) -> Any:
        left, right = a[i, group * dot.group + place], b[group, j, place]
        return te_sum(cast(left, dot.total) * cast(right, dot.total), axis=[group, place])

    c: Any = compute((rows, columns), element, name="c")

    def part(depth: int, accumulates: bool) -> TileMultiply:
        return TileMultiply(dot.name, rows, columns, depth, accumulates)

    # A step for each loop: None stands for any.
    binds = {
        c: BufferDecl((None, 1)),
        a: BufferDecl((None, dot.group, 1)),
        b: BufferDecl((None, dot.group, 1)),
    }
    return decl_tensor_intrin(
        c.op,
        lambda ins, outs: (part(depth, False), part(0, False), part(depth, True)),
        kinds={"j": "vectorized"},
        binds=binds,
        requires=dot.requires,
        name=name,
    )


__all__ = ["BLOCKS", "by_name"]
