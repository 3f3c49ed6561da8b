"""Dot products of neighbouring small elements, as tensor intrinsics.

Each adds to ``c[j]`` the products of a few neighbouring elements ``a[k]`` with ``b[j, k]``: the weights lie in groups
of that size next to one another, and the group of ``a`` is copied into all lanes. Those of bytes are exact modulo
2**32: VNNI's ``vpdpbusd`` without saturation, of AVX-512 and of AVX, ``vpmaddwd`` on bytes widened to 16 bits
(``vpmaddubsw`` would saturate), AArch64's ``sdot`` and ``udot``. ``vdpbf16ps`` of AVX-512 BF16 adds pairs of products
of bfloat16 to float32; it takes subnormal numbers for 0 and rounds to the nearest after each product.

Those of AMX do so for a tile: 16 rows of ``a`` by 16 columns of ``b`` at once, at a depth of 16 groups
(:mod:`autotune.te.tiles`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autotune.te.expr import cast
from autotune.te.instructions import Lanes, LaneStore, Operand, call_llvm_pure_intrin, reinterpret
from autotune.te.intrinsic import TensorIntrin, decl_tensor_intrin
from autotune.te.operations import compute, placeholder, reduce_axis
from autotune.te.reductions import sum as te_sum

if TYPE_CHECKING:
    from autotune.target import Target


@dataclass(frozen=True)
class DotProduct:
    """An instruction: ``lanes`` sums of ``group`` products each, in ``total``; of a tile for each of ``rows``, and of
    ``depth`` groups. Its sums are complete after ``latency`` cycles; a core has one unit of tiles."""

    name: str
    arch: str
    requires: tuple[str, ...]
    left: str
    right: str
    lanes: int
    group: int
    llvm: str
    total: str = "int32"
    rows: int = 1
    depth: int = 1
    latency: int = 5

    @property
    def exact(self) -> bool:
        """Return whether sums are exact, modulo 2**32; those in float32 are rounded."""
        return self.total == "int32"

    @property
    def of_pairs(self) -> bool:
        """Return whether it multiplies vectors of pairs of bfloat16 numbers, which have a rate of their own."""
        return self.rows == 1 and self.left == "bfloat16"

    @property
    def intrinsic(self) -> str:
        """Name of the declared intrinsic."""
        signs = "" if self.name in _ONE_TYPE else f"_{self.left}_{self.right}"
        form = "_vex" if "avxvnni" in self.requires else ""
        return f"{self.name}{form}_{self.lanes}x{self.group}{signs}"


_ONE_TYPE = ("vpdpbusd", "vdpbf16ps")


def _vnni(bits: int, requires: tuple[str, ...]) -> DotProduct:
    llvm = f"llvm.x86.avx512.vpdpbusd.{bits}"  # of both encodings: LLVM takes the one that the target has
    return DotProduct("vpdpbusd", "x86_64", requires, "uint8", "int8", bits // 32, 4, llvm)


def _bf16(bits: int, requires: tuple[str, ...]) -> DotProduct:
    llvm = f"llvm.x86.avx512bf16.dpbf16ps.{bits}"
    kind = "bfloat16"
    return DotProduct("vdpbf16ps", "x86_64", requires, kind, kind, bits // 32, 2, llvm, total="float32")


def _madd(bits: int, requires: tuple[str, ...], llvm: str) -> list[DotProduct]:
    bytes_ = ("uint8", "int8")
    return [
        DotProduct("vpmaddwd", "x86_64", requires, left, right, bits // 32, 2, llvm)
        for left in bytes_
        for right in bytes_
    ]


_TILE = 16
"""Rows of a tile, and four-byte groups in each."""


def _tile(name: str, unit: str, left: str, right: str, total: str = "int32") -> DotProduct:
    """Return a product of tiles; its latency is that of Intel's optimization manual, chapter on AMX."""
    group = 4 if total == "int32" else 2
    sizes = {"rows": _TILE, "depth": _TILE, "latency": 52}
    needs = ("amx-tile", unit)
    return DotProduct(name, "x86_64", needs, left, right, _TILE, group, f"llvm.x86.{name}", total, **sizes)


DOT_PRODUCTS: tuple[DotProduct, ...] = (
    _vnni(512, ("avx512vnni",)),
    _vnni(256, ("avx512vnni", "avx512vl")),
    _vnni(128, ("avx512vnni", "avx512vl")),
    _vnni(256, ("avxvnni",)),
    _vnni(128, ("avxvnni",)),
    _bf16(512, ("avx512bf16",)),
    _bf16(256, ("avx512bf16", "avx512vl")),
    _bf16(128, ("avx512bf16", "avx512vl")),
    *_madd(512, ("avx512bw",), "llvm.x86.avx512.pmaddw.d.512"),
    *_madd(256, ("avx2",), "llvm.x86.avx2.pmadd.wd"),
    *_madd(128, ("sse2",), "llvm.x86.sse2.pmadd.wd"),
    DotProduct("sdot", "aarch64", ("dotprod",), "int8", "int8", 4, 4, "llvm.aarch64.neon.sdot.v4i32.v16i8"),
    DotProduct("udot", "aarch64", ("dotprod",), "uint8", "uint8", 4, 4, "llvm.aarch64.neon.udot.v4i32.v16i8"),
    _tile("tdpbf16ps", "amx-bf16", "bfloat16", "bfloat16", "float32"),
    _tile("tdpfp16ps", "amx-fp16", "float16", "float16", "float32"),
    _tile("tdpbssd", "amx-int8", "int8", "int8"),
    _tile("tdpbsud", "amx-int8", "int8", "uint8"),
    _tile("tdpbusd", "amx-int8", "uint8", "int8"),
    _tile("tdpbuud", "amx-int8", "uint8", "uint8"),
)
"""Best first, those of vectors before those of tiles."""

TILE_PRODUCTS = {dot.name: dot for dot in DOT_PRODUCTS if dot.rows > 1}
"""Those of tiles by name."""


_ALONE = 6
"""Instructions that a column takes which no whole vector holds, about: its products are computed one by one."""


def dot_product(
    target: Target, left: str, right: str, columns: int, most: int | None = None
) -> DotProduct | None:
    """Return the best instruction of a target for operands of these types that is at most ``columns`` wide and has
    one row; None if it has none.

    Narrower ones are better where wide ones leave columns over: 24 columns are three times eight lanes. ``most`` is
    how many lanes it may have.
    """
    found = [
        dot
        for dot in DOT_PRODUCTS
        if dot.arch == target.arch
        and dot.rows == 1
        and (dot.left, dot.right) == (left, right)
        and set(dot.requires) <= set(target.features)
        and dot.lanes * 32 <= target.vector_bits
        and dot.lanes <= (columns if most is None else min(columns, most))
    ]
    alike = [dot for dot in found if dot.name == found[0].name]
    return min(alike, key=lambda dot: columns // dot.lanes + _ALONE * (columns % dot.lanes), default=None)


def tile_product(target: Target, left: str, right: str) -> DotProduct | None:
    """Return the instruction of a target that multiplies tiles of these types; None if it has none."""
    found = (dot for dot in TILE_PRODUCTS.values() if (dot.left, dot.right) == (left, right))
    return next((dot for dot in found if set(dot.requires) <= set(target.features)), None)


def _declare(dot: DotProduct) -> TensorIntrin:
    a = placeholder((dot.group,), dot.left, name="a")
    b = placeholder((dot.lanes, dot.group), dot.right, name="b")
    k = reduce_axis((0, dot.group), name="k")
    c: Any = compute(
        (dot.lanes,), lambda j: te_sum(cast(a[k], dot.total) * cast(b[j, k], dot.total), axis=k), name="c"
    )

    def instructions(ins: list[Operand], outs: list[Operand]) -> tuple[None, None, LaneStore]:
        total = outs[0].vload(0, f"{dot.total}x{dot.lanes}")
        left, right = _operands(dot, ins)
        return None, None, outs[0].vstore(0, accumulated(dot, total, left, right))

    return decl_tensor_intrin(
        c.op,
        instructions,
        kinds={"j": "vectorized", "k": "unrolled"},
        requires=dot.requires,
        name=dot.intrinsic,
    )


def _operands(dot: DotProduct, ins: list[Operand]) -> tuple[Lanes, Lanes]:
    """Return the group of ``a`` in all lanes, and the groups of ``b``, in the types that the instruction takes."""
    count = dot.lanes * dot.group
    left = ins[0].vload(0, f"{dot.left}x{dot.group}")
    right = ins[1].vload((0, 0), f"{dot.right}x{count}")
    if dot.name == "vpmaddwd":
        left, right = left.astype(f"int16x{dot.group}"), right.astype(f"int16x{count}")
    copied = reinterpret("int32", left).astype(f"int32x{dot.lanes}")
    return reinterpret(f"{left.type.dtype}x{count}", copied), right


def accumulated(dot: DotProduct, total: Lanes, left: Lanes, right: Lanes) -> Lanes:
    """Return the sums with the products of a group each added; lanes of both factors are in groups."""
    kind = f"{dot.total}x{dot.lanes}"
    if dot.name == "vpdpbusd":
        left, right = reinterpret(kind, left), reinterpret(kind, right)
    if dot.name == "vpmaddwd":
        return total + call_llvm_pure_intrin(kind, dot.llvm, left, right)
    return call_llvm_pure_intrin(kind, dot.llvm, total, left, right)


for _dot in DOT_PRODUCTS:
    if _dot.rows == 1:
        _declare(_dot)


__all__ = ["DOT_PRODUCTS", "TILE_PRODUCTS", "DotProduct", "accumulated", "dot_product", "tile_product"]
