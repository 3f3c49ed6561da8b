"""Taps of depthwise windows by dot products of bytes, as tensor intrinsics.

``taps_vpdpbusd_16x3`` adds to ``c[j]`` the products ``a[k, j] * b[k, j]`` for 16 neighbouring channels ``j`` and
three taps ``k``, exact modulo 2**32. Channels are the lanes, so the taps of one are rows apart; the instruction wants
them next to one another. Four rows are interleaved for that, which is one permutation; with fewer the weights of the
others are 0. Rows of ``b`` are the same for all pixels: code hoists them interleaved.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from autotune.errors import ScheduleError
from autotune.te.dot_products import DOT_PRODUCTS, DotProduct, accumulated, dot_product
from autotune.te.expr import cast
from autotune.te.instructions import Lanes, LaneStore, Operand, interleave, splat
from autotune.te.intrinsic import INTRINSICS, BufferDecl, TensorIntrin, decl_tensor_intrin
from autotune.te.operations import compute, placeholder, reduce_axis
from autotune.te.reductions import sum as te_sum

if TYPE_CHECKING:
    from autotune.target import Target

MOST = 8
"""Taps of one intrinsic at most."""

_NAME = re.compile(r"taps_(\w+?)_(\d+)x(\d+)")
_INSTRUCTIONS = {
    (dot.name, dot.lanes): dot for dot in DOT_PRODUCTS if dot.name == "vpdpbusd" and dot.lanes == 16
}


def taps_product(target: Target, left: str, right: str, channels: int) -> DotProduct | None:
    """Return the instruction for windows of these types, or None: with 512 bits a permutation of bytes pays."""
    found = dot_product(target, left, right, channels)
    return found if found is not None and _INSTRUCTIONS.get((found.name, found.lanes)) == found else None


def taps_name(dot: DotProduct, taps: int) -> str:
    """Return the name of the intrinsic for so many taps."""
    return f"taps_{dot.name}_{dot.lanes}x{taps}"


def by_name(name: str) -> TensorIntrin:
    """Return the intrinsic that a trace names; raises ScheduleError for a name that is none of ours."""
    if name in INTRINSICS:
        return INTRINSICS[name]
    found = _NAME.fullmatch(name)
    dot = _INSTRUCTIONS.get((found[1], int(found[2]))) if found else None
    if found is None or dot is None or not 2 <= int(found[3]) <= MOST:
        raise ScheduleError(
            f"no taps {name!r}; they would be written like 'taps_vpdpbusd_16x3', 2 to {MOST} of them"
        )
    return _declare(dot, name, int(found[3]))


def _declare(dot: DotProduct, name: str, taps: int) -> TensorIntrin:
    a = placeholder((taps, dot.lanes), dot.left, name="a")
    b = placeholder((taps, dot.lanes), dot.right, name="b")
    k = reduce_axis((0, taps), name="k")
    c: Any = compute(
        (dot.lanes,), lambda j: te_sum(cast(a[k, j], dot.total) * cast(b[k, j], dot.total), axis=k), name="c"
    )

    def instructions(ins: list[Operand], outs: list[Operand]) -> tuple[None, None, LaneStore]:
        total = outs[0].vload(0, f"{dot.total}x{dot.lanes}")
        for first in range(0, taps, dot.group):
            count = min(dot.group, taps - first)
            total = accumulated(
                dot, total, _rows(dot, ins[0], first, count), _weights(dot, ins[1], first, count)
            )
        return None, None, outs[0].vstore(0, total)

    return decl_tensor_intrin(
        c.op,
        instructions,
        kinds={"j": "vectorized", "k": "unrolled"},
        binds={a: BufferDecl((None, 1)), b: BufferDecl((None, 1))},
        requires=dot.requires,
        name=name,
    )


def _rows(dot: DotProduct, operand: Operand, first: int, count: int) -> Lanes:
    """Return the rows of a group interleaved; the last one stands in for those beyond the window."""
    places = [first + min(place, count - 1) for place in range(dot.group)]
    return interleave(*(operand.vload((place, 0), f"{dot.left}x{dot.lanes}") for place in places))


def _weights(dot: DotProduct, operand: Operand, first: int, count: int) -> Lanes:
    kind = f"{dot.right}x{dot.lanes}"
    rows = [operand.vload((first + place, 0), kind) for place in range(count)]
    return interleave(*rows, *[splat(0, kind)] * (dot.group - count))


__all__ = ["MOST", "by_name", "taps_name", "taps_product"]
