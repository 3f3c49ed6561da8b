"""Products of tile registers as LLVM IR: a block of one or two by one or two tiles stays in them for its whole depth.

Tiles 0 to 3 hold sums, 4 and 5 rows of the left factor, 6 and 7 columns of the right one. LLVM's intrinsics name the
registers, so nothing is in them between two products, and functions that are called may use them in between; but those
may leave them without a configuration, which is loaded again then.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from autotune.codegen.llvm.writer import Writer
from autotune.codegen.process_symbols import TILE_CONFIGURATION
from autotune.lower.ir import Intrinsic, Stmt, walk
from autotune.target import ITEM_BYTES
from autotune.te.instructions import TileMultiply

_SIDE = 16
"""Rows of a tile, and its columns of sums."""

_ROW_BYTES = 64
_LEFT, _RIGHT = 4, 6
"""The first tiles of the factors."""


class _Matrix(NamedTuple):
    """An operand in memory: pointers to its tiles, with the tile of each, and bytes from a row to the next."""

    pointers: list[str]
    first: int
    row_bytes: int


def uses_tiles(stmt: Stmt) -> bool:
    """Return whether code of a statement uses tile registers."""
    calls = (part for part in walk(stmt) if isinstance(part, Intrinsic))
    return any(isinstance(step, TileMultiply) for call in calls for step in call.instructions)


class TileRegisters:
    """Emits products, the configuration at the start of a kernel that has some, and the release at its end."""

    def __init__(self, code: Writer, body: Stmt) -> None:
        self.code = code
        self.used = uses_tiles(body)

    def begin(self) -> list[str]:
        """Return the lines that configure the registers, none where they are not used."""
        if not self.used:
            return []
        self.code.module.declare(f"@{TILE_CONFIGURATION} = external global [64 x i8]")
        return [self._call("ldtilecfg", ("ptr", f"@{TILE_CONFIGURATION}"))]

    def end(self) -> list[str]:
        """Return the lines that release the registers, so that threads are switched without them."""
        return [self._call("tilerelease")] if self.used else []

    def multiply(self, node: Intrinsic, step: TileMultiply, pointers: Sequence[str]) -> None:
        """Emit a product; ``pointers`` are those to the first elements of the operands."""
        sums = self._sums(node, step, pointers[0])
        for number, pointer in enumerate(sums.pointers):
            if step.accumulates:
                self._load(sums, number, pointer)
            else:
                self._emit("tilezero", _tile(number))
        if step.depth:
            left, right = self._left(node, step, pointers[1]), self._right(node, step, pointers[2])
            self._along_depth(node, step, left, right)
        for number, pointer in enumerate(sums.pointers):
            self._emit("tilestored64", _tile(number), ("ptr", pointer), ("i64", str(sums.row_bytes)))
        self.code.held.clear()

    def _sums(self, node: Intrinsic, step: TileMultiply, pointer: str) -> _Matrix:
        """Return the sums: 32 bits each, of which a row of a tile has 16."""
        row_bytes = node.strides[0][0] * 4
        places = product(range(step.rows // _SIDE), range(step.columns // _SIDE))
        offsets = [i * _SIDE * row_bytes + j * _ROW_BYTES for i, j in places]
        return _Matrix([self._moved(pointer, offset) for offset in offsets], 0, row_bytes)

    def _left(self, node: Intrinsic, step: TileMultiply, pointer: str) -> _Matrix:
        row_bytes = node.strides[1][0] * ITEM_BYTES[node.operands[1].buffer.dtype]
        offsets = [n * _SIDE * row_bytes for n in range(step.rows // _SIDE)]
        return _Matrix([self._moved(pointer, offset) for offset in offsets], _LEFT, row_bytes)

    def _right(self, node: Intrinsic, step: TileMultiply, pointer: str) -> _Matrix:
        """Return the columns: a row of a tile has a group of each."""
        row_bytes = node.strides[2][0] * ITEM_BYTES[node.operands[2].buffer.dtype]
        offsets = [n * _ROW_BYTES for n in range(step.columns // _SIDE)]
        return _Matrix([self._moved(pointer, offset) for offset in offsets], _RIGHT, row_bytes)

    def _along_depth(self, node: Intrinsic, step: TileMultiply, left: _Matrix, right: _Matrix) -> None:
        """Emit the loop over tiles along the depth, or the one iteration."""
        code = self.code
        tiles = step.depth * ITEM_BYTES[node.operands[1].buffer.dtype] // _ROW_BYTES
        if tiles == 1:
            self._products(step, left, right)
            return
        stem, before = code.fresh("depth"), code.block
        index, following = f"%{stem}.i", f"%{stem}.next"
        code.end_block(f"br label %{stem}")
        code.label(stem)
        code.lines.append(f"  {index} = phi i64 [ 0, %{before} ], [ {following}, %{stem} ]")
        steps = _ROW_BYTES, _SIDE * right.row_bytes
        moved = [self._stepped(each, index, size) for each, size in zip((left, right), steps, strict=True)]
        self._products(step, *moved)
        code.lines.append(f"  {following} = add nuw nsw i64 {index}, 1")
        code.lines.append(f"  %{stem}.more = icmp ult i64 {following}, {tiles}")
        code.end_block(f"br i1 %{stem}.more, label %{stem}, label %{stem}.end")
        code.label(f"{stem}.end")

    def _stepped(self, matrix: _Matrix, index: str, size: int) -> _Matrix:
        """Return a factor further along the depth."""
        offset = self.code.op(f"mul nuw nsw i64 {index}, {size}")
        return matrix._replace(pointers=[self._moved(pointer, offset) for pointer in matrix.pointers])

    def _products(self, step: TileMultiply, left: _Matrix, right: _Matrix) -> None:
        """Load each tile of the factors once, and multiply all pairs."""
        for matrix in (left, right):
            for number, pointer in enumerate(matrix.pointers):
                self._load(matrix, number, pointer)
        pairs = product(range(len(left.pointers)), range(len(right.pointers)))
        for sums, (row, column) in enumerate(pairs):
            tiles = _tile(sums), _tile(_LEFT + row), _tile(_RIGHT + column)
            self._emit(step.instruction, *tiles)

    def _load(self, matrix: _Matrix, number: int, pointer: str) -> None:
        tile = _tile(matrix.first + number)
        self._emit("tileloadd64", tile, ("ptr", pointer), ("i64", str(matrix.row_bytes)))

    def _moved(self, pointer: str, offset: str | int) -> str:
        return self.code.op(f"getelementptr i8, ptr {pointer}, i64 {offset}") if offset else pointer

    def _emit(self, name: str, *arguments: tuple[str, str]) -> None:
        self.code.lines.append(self._call(name, *arguments))

    def _call(self, name: str, *arguments: tuple[str, str]) -> str:
        return "  " + self.code.call("void", f"@llvm.x86.{name}", *arguments)


def _tile(number: int) -> tuple[str, str]:
    return "i8", str(number)


__all__ = ["TileRegisters", "uses_tiles"]
