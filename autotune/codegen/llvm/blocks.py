"""Strided loads of unrolled loops: a block is read along its lines and transposed in registers.

Where a vectorized loop walks across the lines of a buffer and an unrolled loop around it walks along them, the
lanes of one iteration are a column of a block that the iterations read together. The block's lines are loaded
in pieces of 16 bytes; piece ``l`` of a vector comes from the lines of lane group ``l``, so that what is left is
the same small transposition in every group: log2 stages of interleaving halves of the registers (a perfect
shuffle; Hockney and Jesshope, Parallel Computers 2, 1988), each an ``unpck`` (x86) or ``zip`` (Arm) instruction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from autotune.codegen.llvm.addresses import Address, Addresses
from autotune.codegen.llvm.memory import MemoryAccesses
from autotune.codegen.llvm.types import Value, memory_type, vector
from autotune.lower.ir import Buffer, For
from autotune.lower.linear import Lin
from autotune.target import GROUP_BYTES, ITEM_BYTES
from autotune.te.expr import Var


class Unrolled(NamedTuple):
    """An unrolled loop that is being emitted, and where: its scope, and the decided conditions around it."""

    extent: int
    depth: int
    decisions: int


class Blocks:
    """Emits loads of blocks that unrolled and vectorized loops read together."""

    def __init__(self, memory: MemoryAccesses, addresses: Addresses) -> None:
        self.memory = memory
        self.code = memory.code
        self.addresses = addresses
        self._unrolled: dict[Var, Unrolled] = {}

    @contextmanager
    def unrolling(self, node: For) -> Iterator[None]:
        """Enter the iterations of an unrolled loop."""
        self._unrolled[node.var] = Unrolled(node.extent, self.code.depth, self.code.decisions)
        yield
        del self._unrolled[node.var]

    def load(self, buffer: Buffer, form: Lin, address: Address) -> Value | None:
        """Return one column of a block, all columns being kept for their own iterations; None for other loads."""
        code, columns = self.code, GROUP_BYTES // ITEM_BYTES[buffer.dtype]
        strided = address.lanes is None and address.stride not in (0, 1)
        if not strided or buffer not in self.memory.constant or code.mask is not None or code.idle:
            return None
        place = None if code.lanes % columns else self._column(form, columns)
        if place is None:
            return None
        first = address._replace(constant=address.constant - place, stride=0)
        registers = self._block(buffer, first, address.stride, columns)
        kind = vector(memory_type(buffer.dtype), code.lanes)
        text = f"bitcast {self._bits(buffer, code.lanes)} {registers[place]} to {kind}"
        return self.memory.from_memory(Value(code.op(text), buffer.dtype, code.lanes))

    def _column(self, form: Lin, columns: int) -> int | None:
        """Return the column of its block that the present iteration reads; None where no unrolled loop
        reads the others."""
        for atom, coefficient in form.terms.items():
            if not isinstance(atom, Var) or coefficient != 1 or atom not in self._unrolled:
                continue
            loop, number = self._unrolled[atom], self.addresses.env[atom]
            if (loop.depth, loop.decisions) != (self.code.depth, self.code.decisions):
                continue
            if isinstance(number, int) and number // columns < loop.extent // columns:
                return number % columns
        return None

    @staticmethod
    def _bits(buffer: Buffer, lanes: int) -> str:
        return f"<{lanes} x i{8 * ITEM_BYTES[buffer.dtype]}>"

    def _block(self, buffer: Buffer, first: Address, stride: int, columns: int) -> list[str]:
        """Return the columns of the block at ``first``: one vector over all lanes each."""
        groups = self.code.lanes // columns
        pieces = [
            [self._piece(buffer, first, (group * columns + line) * stride) for group in range(groups)]
            for line in range(columns)
        ]
        registers = [self._joined(buffer, piece, columns) for piece in pieces]
        half = columns // 2
        for _ in range(columns.bit_length() - 1):
            pairs = list(zip(registers[:half], registers[half:], strict=True))
            registers = [
                self._interleaved(buffer, a, b, columns, upper) for a, b in pairs for upper in (False, True)
            ]
        return registers

    def _piece(self, buffer: Buffer, first: Address, offset: int) -> str:
        """Return the 16 bytes of one line, as integers: no rounding mode or NaN matters to them."""
        pointer = self.memory.pointer(buffer, first._replace(constant=first.constant + offset))
        count = GROUP_BYTES // ITEM_BYTES[buffer.dtype]
        text = f"load {self._bits(buffer, count)}, ptr {pointer}, align {ITEM_BYTES[buffer.dtype]}"
        return self.code.cached(("piece", pointer, count), text)

    def _joined(self, buffer: Buffer, pieces: Sequence[str], lanes: int) -> str:
        """Return the pieces one after another in one vector."""
        parts = list(pieces)
        while len(parts) > 1:
            order = ", ".join(f"i32 {n}" for n in range(2 * lanes))
            kind = self._bits(buffer, lanes)
            parts = [
                self._shuffled(kind, a, b, f"<{2 * lanes} x i32> <{order}>")
                for a, b in zip(parts[::2], parts[1::2], strict=True)
            ]
            lanes *= 2
        return parts[0]

    def _interleaved(self, buffer: Buffer, a: str, b: str, columns: int, upper: bool) -> str:
        """Lower or upper halves of every group, an element of ``a`` and one of ``b`` alternately."""
        order, lanes = [], self.code.lanes
        for group in range(0, lanes, columns):
            start = group + (columns // 2 if upper else 0)
            for n in range(start, start + columns // 2):
                order += [n, n + lanes]
        indices = ", ".join(f"i32 {n}" for n in order)
        return self._shuffled(self._bits(buffer, lanes), a, b, f"<{lanes} x i32> <{indices}>")

    def _shuffled(self, kind: str, a: str, b: str, order: str) -> str:
        return self.code.cached(("shuffle", a, b, order), f"shufflevector {kind} {a}, {kind} {b}, {order}")


__all__ = ["Blocks"]
