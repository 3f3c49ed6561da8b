"""Products of tensor cores: ``mma.sync`` on the registers of a warp, and how its lanes get their parts of the factors.

Lane ``l``, with ``g = l // 4`` and ``t = l % 4``, has of the left factor rows ``g`` and ``g + 8``, of the right one
column ``g``. In 32 bits it holds two neighbours along the depth from ``2 * t`` on, or of TF32 the one at ``t``, and
after these what is half of the depth further (PTX ISA, "Matrix fragments for mma"). From shared memory ``ldmatrix``
brings eight rows of eight halves to all lanes at once, transposed where the depth goes down the columns.
"""

from __future__ import annotations

from typing import NamedTuple

from autotune.codegen.llvm.accesses import Accesses
from autotune.codegen.llvm.addresses import Address
from autotune.codegen.llvm.memory import VECTOR_BYTES
from autotune.codegen.llvm.types import Value, memory_type
from autotune.codegen.llvm.writer import Writer
from autotune.lower.ir import Buffer, Intrinsic
from autotune.te.instructions import MatrixMultiply

LANE = "%threadIdx.x"

_PRODUCTS = {
    "float16": "@llvm.nvvm.mma.m16n8k16.row.col.f32.f32",
    "bfloat16": "@llvm.nvvm.mma.m16n8k16.row.col.bf16",
    "float32": "@llvm.nvvm.mma.m16n8k8.row.col.tf32",
}
_FACTOR = {"float16": "<2 x half>", "bfloat16": "i32", "float32": "i32"}
"""Type of 32 bits of a factor."""

_SUMS = "{ float, float, float, float }"
_ROW_BYTES = 16
"""Of a matrix that ``ldmatrix`` reads."""


class _Factor(NamedTuple):
    """A factor in memory: where it starts, and elements from one row (or column) and depth to the next."""

    buffer: Buffer
    address: Address
    pointer: str
    along: int
    depth: int


class TensorCores:
    """Emits products."""

    def __init__(self, code: Writer, accesses: Accesses) -> None:
        self.code = code
        self.accesses = accesses

    def multiply(self, node: Intrinsic, step: MatrixMultiply) -> None:
        """Add a product to the sums that this lane holds."""
        rows, depth = node.strides[1]
        left = self._parts(self._factor(node, 1, rows, depth), step, (0, 8))
        depth, columns = reversed(node.strides[2]) if step.transposed else node.strides[2]
        right = self._parts(self._factor(node, 2, columns, depth), step, (0,))
        sums = node.operands[0]
        form = self.accesses.addresses.form(sums, sums.buffer, sums.indices)
        held = [self.accesses.load_lanes(sums.buffer, form + 2 * n, 2) for n in range(2)]
        numbers = [self._lane_of(pair, n) for pair in held for n in range(2)]
        kind = _FACTOR[step.dtype]
        factors = [(kind, self._as(part, kind)) for part in (*left, *right)]
        call = self.code.call(_SUMS, _PRODUCTS[step.dtype], *factors, *[("float", n) for n in numbers])
        result = self.code.op(call)
        for half in range(2):
            both = "poison"
            for n in range(2):
                part = self.code.op(f"extractvalue {_SUMS} {result}, {2 * half + n}")
                both = self.code.op(f"insertelement <2 x float> {both}, float {part}, i64 {n}")
            self.accesses.store_lanes(sums.buffer, form + 2 * half, Value(both, "float32", 2))

    def _factor(self, node: Intrinsic, number: int, along: int, depth: int) -> _Factor:
        load = node.operands[number]
        address = self.accesses.addresses.address(
            self.accesses.addresses.form(load, load.buffer, load.indices)
        )
        pointer = self.accesses.memory.pointer(load.buffer, address)
        return _Factor(load.buffer, address, pointer, along, depth)

    def _parts(self, factor: _Factor, step: MatrixMultiply, firsts: tuple[int, ...]) -> list[str]:
        """Return this lane's parts of a factor, of 32 bits each: for each depth, those of rows ``first + g``."""
        if step.dtype != "float32":
            found = self._from_shared(factor, 2 * len(firsts))
            if found is not None:
                return found
            return [self._pair(factor, first, depth) for depth in (0, 8) for first in firsts]
        return [self._tf32(factor, first, depth) for depth in (0, 4) for first in firsts]

    def _from_shared(self, factor: _Factor, matrices: int) -> list[str] | None:
        """Load by ``ldmatrix``: the address of one row from each lane; None where rows do not lie as it takes them."""
        across = factor.depth != 1
        step = factor.depth if across else factor.along
        if factor.buffer.scope != "shared" or (across and factor.along != 1) or step * 2 % _ROW_BYTES:
            return None
        if self.accesses.memory.alignment(factor.buffer, factor.address, 8) % VECTOR_BYTES:
            return None
        eighth = self._lane("lshr", LANE, 3)
        if (
            matrices == 4
        ):  # of the left factor: eight rows, the next eight, then both again at half of the depth
            low, high = self._lane("and", eighth, 1), self._lane("lshr", eighth, 1)
            rows = self._lane("add", self._lane("and", LANE, 7), self._lane("mul", low, 8))
            places = (rows, self._lane("mul", high, 8))
        else:
            places = (self._lane("and", LANE, 7), self._lane("mul", self._lane("and", eighth, 1), 8))
        along, depth = places
        if across:  # the eight rows that a lane group names go down the depth
            along, depth = self._swapped(matrices)
        pointer = self._moved(factor, self._offset((along, factor.along), (depth, factor.depth)))
        shared = self.code.op(f"addrspacecast ptr {pointer} to ptr addrspace(3)")
        kind = "{ " + ", ".join(["i32"] * matrices) + " }"
        name = f"@llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{matrices}{'.trans' if across else ''}.b16.p3"
        result = self.code.op(self.code.call(kind, name, ("ptr addrspace(3)", shared)))
        return [self.code.op(f"extractvalue {kind} {result}, {n}") for n in range(matrices)]

    def _swapped(self, matrices: int) -> tuple[str, str]:
        """Return the row (or column) and depth of the address that a lane gives for transposed matrices."""
        eighth = self._lane("lshr", LANE, 3)
        if matrices == 4:
            along = self._lane("mul", self._lane("and", eighth, 1), 8)
            later = self._lane("mul", self._lane("lshr", eighth, 1), 8)
            return along, self._lane("add", self._lane("and", LANE, 7), later)
        return "0", self._lane("and", LANE, 15)

    def _pair(self, factor: _Factor, first: int, depth: int) -> str:
        """Return two neighbours along the depth."""
        group, pair = self._lane("lshr", LANE, 2), self._lane("mul", self._lane("and", LANE, 3), 2)
        offset = self._offset((group, factor.along), (pair, factor.depth))
        pointer = self._moved(factor, offset, first * factor.along + depth * factor.depth)
        aligned = self.accesses.memory.alignment(factor.buffer, factor.address, 2) % 4 == 0
        if factor.depth == 1 and aligned and factor.along % 2 == 0:
            return self.code.op(f"load i32, ptr {pointer}, align 4")
        other = self.code.op(f"getelementptr i16, ptr {pointer}, i64 {factor.depth}")
        low, high = (self.code.op(f"load i16, ptr {p}, align 2") for p in (pointer, other))
        low, high = (self.code.op(f"zext i16 {part} to i32") for part in (low, high))
        return self.code.op(f"or i32 {low}, {self.code.op(f'shl i32 {high}, 16')}")

    def _tf32(self, factor: _Factor, first: int, depth: int) -> str:
        """Return one number, rounded to the nearest of TF32."""
        group, own = self._lane("lshr", LANE, 2), self._lane("and", LANE, 3)
        offset = self._offset((group, factor.along), (own, factor.depth))
        pointer = self._moved(factor, offset, first * factor.along + depth * factor.depth)
        number = self.code.op(f"load float, ptr {pointer}, align 4")
        return self.code.op(self.code.call("i32", "@llvm.nvvm.f2tf32.rna", ("float", number)))

    def _offset(self, *terms: tuple[str, int]) -> str:
        """Return elements: a sum of places of this lane, each times a step."""
        total = "0"
        for place, step in terms:
            if place != "0":
                part = self._lane("mul", place, step)
                total = part if total == "0" else self._lane("add", total, part)
        return total

    def _moved(self, factor: _Factor, offset: str, constant: int = 0) -> str:
        """Return the pointer to a factor moved by a lane's offset, and by a number of elements."""
        kind = memory_type(factor.buffer.dtype)
        moved = self.code.cached(
            ("lane", factor.pointer, offset), f"getelementptr {kind}, ptr {factor.pointer}, i64 {offset}"
        )
        if not constant:
            return moved
        key = ("lane", moved, constant)
        return self.code.cached(key, f"getelementptr {kind}, ptr {moved}, i64 {constant}")

    def _lane(self, op: str, a: str, b: str | int) -> str:
        """Return a number that depends on the lane alone, worked out once."""
        return self.code.cached(("lane", op, a, b), f"{op} i64 {a}, {b}", 0)

    def _lane_of(self, value: Value, number: int) -> str:
        return self.code.op(f"extractelement <2 x float> {value.text}, i64 {number}")

    def _as(self, text: str, kind: str) -> str:
        return text if kind == "i32" else self.code.op(f"bitcast i32 {text} to {kind}")


__all__ = ["LANE", "TensorCores"]
