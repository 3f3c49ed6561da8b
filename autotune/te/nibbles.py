"""Dot products of a word of eight weights of four bits with eight bytes, as tensor intrinsics.

``nibbles_vpdpbusd_16x8`` adds to ``c[j]`` the products of ``a[k]`` with the weights of the word ``b[j]``, exact modulo
2**32. A mask takes every second weight out of a word, and a shift and a mask the others, so the bytes are in the
order 0, 2, 4, 6, 1, 3, 5, 7. Weights have no sign, bytes have one: VNNI's ``vpdpbusd`` multiplies those four at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.te.dot_products import DOT_PRODUCTS, DotProduct, accumulated, dot_product
from autotune.te.expr import Expr, cast, const
from autotune.te.functions import bitwise_and, right_shift
from autotune.te.instructions import LaneOperation, Lanes, LaneStore, Operand, reinterpret, splat
from autotune.te.intrinsic import decl_tensor_intrin
from autotune.te.operations import compute, placeholder, reduce_axis
from autotune.te.reductions import sum as te_sum

if TYPE_CHECKING:
    from autotune.target import Target

PLACES = 8
"""Weights of a word."""
_GROUP, _BITS, _BYTE = 4, 4, 8
_MASK = (1 << _BITS) - 1
_IN_BYTES = 0x0F0F0F0F


def nibble(word: Expr, place: Expr) -> Expr:
    """Return the weight of a word, int32, that byte number ``place`` is multiplied with."""
    bits = place // _GROUP * _BITS + place % _GROUP * _BYTE
    return bitwise_and(right_shift(word, cast(bits, "int32")), const(_MASK, "int32"))


def nibble_product(target: Target, columns: int) -> DotProduct | None:
    """Return the instruction that multiplies words of ``columns`` columns; None if a target has none."""
    found = dot_product(target, "uint8", "int8", columns)
    return found if found is not None and found.name == "vpdpbusd" else None


def nibbles_name(dot: DotProduct) -> str:
    """Return the name of the intrinsic that is made of an instruction."""
    return f"nibbles_{dot.intrinsic.removesuffix(f'x{dot.group}')}x{PLACES}"


def _declare(dot: DotProduct) -> None:
    kind = f"int32x{dot.lanes}"
    a = placeholder((PLACES,), "int8", name="a")
    b = placeholder((dot.lanes,), "int32", name="b")
    k = reduce_axis((0, PLACES), name="k")
    c: Any = compute((dot.lanes,), lambda j: te_sum(cast(a[k], "int32") * nibble(b[j], k), axis=k), name="c")

    def instructions(ins: list[Operand], outs: list[Operand]) -> tuple[None, None, LaneStore]:
        total, words = outs[0].vload(0, kind), ins[1].vload(0, kind)
        for first, shifted in ((0, words), (_GROUP, _lane("right_shift", words, splat(_BITS, kind)))):
            weights = reinterpret(
                f"uint8x{4 * dot.lanes}", _lane("bitwise_and", shifted, splat(_IN_BYTES, kind))
            )
            group = reinterpret("int32", ins[0].vload(first, f"int8x{_GROUP}")).astype(kind)
            total = accumulated(dot, total, weights, group)
        return None, None, outs[0].vstore(0, total)

    decl_tensor_intrin(
        c.op,
        instructions,
        kinds={"j": "vectorized", "k": "unrolled"},
        requires=dot.requires,
        name=nibbles_name(dot),
    )


def _lane(op: str, a: Lanes, b: Lanes) -> Lanes:
    return LaneOperation(a.type, op, a, b)


for _dot in DOT_PRODUCTS:
    if _dot.name == "vpdpbusd":
        _declare(_dot)

__all__ = ["PLACES", "nibble", "nibble_product", "nibbles_name"]
