"""Products of tile registers as LLVM IR: a block of one or two by one or two tiles stays in them for its whole depth.

Tiles 0 to 3 hold sums, 4 and 5 rows of the left factor, 6 and 7 columns of the right one. LLVM's intrinsics name the
registers, so nothing is in them between two products, and functions that are called may use them in between; but those
may leave them without a configuration, which is loaded again then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from autotune.codegen.llvm.writer import Writer
from autotune.codegen.process_symbols import TILE_CONFIGURATION
from autotune.lower.ir import Intrinsic, Stmt, walk
from autotune.target import ITEM_BYTES
from autotune.te.dot_products import TILE_PRODUCTS
from autotune.te.instructions import TileMultiply

_ROW_BYTES = 64
_LEFT, _RIGHT = 4, 6
"""The first tiles of the factors."""

_CONFIGURATION = "%tile.configuration"


class _Matrix(NamedTuple):
    """An operand in memory: pointers to its tiles, with the tile of each, and bytes from a row to the next.

    One that is ``streamed`` is loaded past the first cache, as far as the processor can.
    """

    pointers: list[str]
    first: int
    row_bytes: int
    streamed: bool = False


def products_in(stmt: Stmt) -> list[TileMultiply]:
    """Return the products by tile registers in a statement."""
    calls = (part for part in walk(stmt) if isinstance(part, Intrinsic))
    return [step for call in calls for step in call.instructions if isinstance(step, TileMultiply)]


class TileRegisters:
    """Emits products, the configuration at the start of a kernel that has some, and the release at its end."""

    def __init__(self, code: Writer, body: Stmt) -> None:
        self.code = code
        self.configurations = list(dict.fromkeys(_shapes(step) for step in products_in(body)))

    def begin(self) -> list[str]:
        """Return the lines that write configurations and load the first, none where no tiles are used.

        What is not whole is written over a copy of the configuration of whole tiles, which only a process has that may
        use them.
        """
        if not self.configurations:
            return []
        self.code.module.declare(f"@{TILE_CONFIGURATION} = external global [64 x i8]")
        written = [line for n, shapes in enumerate(self.configurations) for line in _written(n, shapes)]
        return [*written, self._configure(0)]

    def again(self) -> list[str]:
        """Return the line that loads the configuration after it was lost, none where no tiles are used."""
        return [self._configure(0)] if self.configurations else []

    def end(self) -> list[str]:
        """Return the lines that release the registers, so that threads are switched without them."""
        return [self._call("tilerelease")] if self.configurations else []

    def multiply(self, node: Intrinsic, step: TileMultiply, pointers: Sequence[str]) -> None:
        """Emit a product; ``pointers`` are those to the first elements of the operands."""
        if len(self.configurations) > 1:
            self.code.lines.append(self._configure(self.configurations.index(_shapes(step))))
        sums = self._sums(node, step, pointers[0])
        for number, pointer in enumerate(sums.pointers):
            if step.accumulates:
                self._load(sums, number, pointer)
            else:
                self._emit("tilezero", _tile(number))
        if step.depth[0]:
            self._along_depth(
                node, step, self._left(node, step, pointers[1]), self._right(node, step, pointers[2])
            )
        for number, pointer in enumerate(sums.pointers):
            self._emit("tilestored64", _tile(number), ("ptr", pointer), ("i64", str(sums.row_bytes)))
        self.code.held.clear()

    def _sums(self, node: Intrinsic, step: TileMultiply, pointer: str) -> _Matrix:
        """Return the sums: 32 bits each."""
        tile_bytes, row_bytes = (4 * distance for distance in _rows(node, step, 0))
        places = product(range(step.rows[0]), range(step.columns[0]))
        offsets = [i * tile_bytes + j * step.columns[1] * 4 for i, j in places]
        return _Matrix([self._moved(pointer, offset) for offset in offsets], 0, row_bytes)

    def _left(self, node: Intrinsic, step: TileMultiply, pointer: str) -> _Matrix:
        item = _item(node, 1)
        tile_bytes, row_bytes = (item * distance for distance in _rows(node, step, 1))
        return _Matrix([self._moved(pointer, n * tile_bytes) for n in range(step.rows[0])], _LEFT, row_bytes)

    def _right(self, node: Intrinsic, step: TileMultiply, pointer: str) -> _Matrix:
        """Return the columns: a row of a tile has a group of each."""
        row_bytes = node.strides[2][-3] * _item(node, 2)
        offsets = [n * step.columns[1] * 4 for n in range(step.columns[0])]
        pointers = [self._moved(pointer, offset) for offset in offsets]
        # Blocks of which the first cache does not hold both factors would evict what stays from one to the next:
        # 1024 x 1024 x 1024 of bytes takes 0.79 of the time so, what fits up to 1.1 (docs/kernels/matmul.md).
        streamed = _bytes(node, step) >= self.code.module.target.l1_bytes
        return _Matrix(pointers, _RIGHT, row_bytes, streamed)

    def _along_depth(self, node: Intrinsic, step: TileMultiply, left: _Matrix, right: _Matrix) -> None:
        """Emit the loops over the window and over tiles along the depth."""
        at = len(node.strides[0]) - 1  # loops over rows come first
        moves = [
            (size, node.strides[1][at + n] * _item(node, 1), node.strides[2][n] * _item(node, 2))
            for n, size in enumerate(step.window)
        ]
        groups = step.depth[1] * _item(node, 1) // 4
        moves.append((step.depth[0], step.depth[1] * _item(node, 1), groups * right.row_bytes))
        self._looped([move for move in moves if move[0] > 1], step, left, right)

    def _looped(
        self, moves: Sequence[tuple[int, int, int]], step: TileMultiply, left: _Matrix, right: _Matrix
    ) -> None:
        """Emit the products in loops of so many iterations, each of which moves the factors by so many bytes."""
        if not moves:
            self._products(step, left, right)
            return
        code, (count, *distances) = self.code, moves[0]
        stem, before = code.fresh("depth"), code.block
        index, following = f"%{stem}.i", f"%{stem}.next"
        code.end_block(f"br label %{stem}")
        code.label(stem)
        place = len(code.lines)
        moved = [
            self._stepped(each, index, size) for each, size in zip((left, right), distances, strict=True)
        ]
        self._looped(moves[1:], step, *moved)
        code.lines.insert(place, f"  {index} = phi i64 [ 0, %{before} ], [ {following}, %{code.block} ]")
        code.lines.append(f"  {following} = add nuw nsw i64 {index}, 1")
        code.lines.append(f"  %{stem}.more = icmp ult i64 {following}, {count}")
        code.end_block(f"br i1 %{stem}.more, label %{stem}, label %{stem}.end")
        code.label(f"{stem}.end")

    def _stepped(self, matrix: _Matrix, index: str, size: int) -> _Matrix:
        """Return a factor further along the depth."""
        offset = self.code.op(f"mul nsw i64 {index}, {size}")
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
        load = "tileloaddt164" if matrix.streamed else "tileloadd64"
        self._emit(load, tile, ("ptr", pointer), ("i64", str(matrix.row_bytes)))

    def _moved(self, pointer: str, offset: str | int) -> str:
        return self.code.op(f"getelementptr i8, ptr {pointer}, i64 {offset}") if offset else pointer

    def _emit(self, name: str, *arguments: tuple[str, str]) -> None:
        self.code.lines.append(self._call(name, *arguments))

    def _configure(self, number: int) -> str:
        return self._call("ldtilecfg", ("ptr", _address(number, self.configurations[number])))

    def _call(self, name: str, *arguments: tuple[str, str]) -> str:
        return "  " + self.code.call("void", f"@llvm.x86.{name}", *arguments)


_Shapes = tuple[tuple[int, int], ...]
"""Rows, and bytes of each, of the tiles of sums, of the left factor and of the right one."""
_WHOLE: _Shapes = ((16, _ROW_BYTES),) * 3


def _shapes(step: TileMultiply) -> _Shapes:
    rows, columns = step.rows[1], 4 * step.columns[1]
    group = TILE_PRODUCTS[step.instruction].group
    groups = step.depth[1] // group
    return (rows, columns), (rows, 4 * groups), (groups, columns)


def _address(number: int, shapes: _Shapes) -> str:
    return f"@{TILE_CONFIGURATION}" if shapes == _WHOLE else f"{_CONFIGURATION}.{number}"


def _written(number: int, shapes: _Shapes) -> list[str]:
    """Return the lines that write a configuration: bytes of a row of each tile from byte 16 on, rows from 48 on."""
    if shapes == _WHOLE:
        return []
    at = _address(number, shapes)
    sums, left, right = shapes
    tiles = (*(sums,) * _LEFT, *(left,) * (_RIGHT - _LEFT), *(right,) * (8 - _RIGHT))
    widths, rows = (", ".join(f"{kind} {tile[n]}" for tile in tiles) for n, kind in ((1, "i16"), (0, "i8")))
    return [
        f"  {at} = alloca [64 x i8], align 64",
        f"  {at}.whole = load <64 x i8>, ptr @{TILE_CONFIGURATION}, align 1",
        f"  store <64 x i8> {at}.whole, ptr {at}, align 64",
        f"  {at}.widths = getelementptr i8, ptr {at}, i64 16",
        f"  store <8 x i16> <{widths}>, ptr {at}.widths, align 16",
        f"  {at}.rows = getelementptr i8, ptr {at}, i64 48",
        f"  store <8 x i8> <{rows}>, ptr {at}.rows, align 16",
    ]


def _rows(node: Intrinsic, step: TileMultiply, operand: int) -> tuple[int, int]:
    """Return elements from a tile of rows to the next, and from a row to the next."""
    strides = node.strides[operand]
    if len(node.strides[0]) > 2:  # a loop over tiles, and one over rows of each
        return strides[0], strides[1]
    return step.rows[1] * strides[0], strides[0]


def _bytes(node: Intrinsic, step: TileMultiply) -> int:
    """Return the bytes of both factors of a block, along its depth and window."""
    lines = math.prod(step.rows) + math.prod(step.columns)
    return lines * math.prod((*step.window, *step.depth)) * _item(node, 1)


def _item(node: Intrinsic, operand: int) -> int:
    return ITEM_BYTES[node.operands[operand].buffer.dtype]


def _tile(number: int) -> tuple[str, str]:
    return "i8", str(number)


__all__ = ["TileRegisters", "products_in"]
