"""Accumulators of tensor cores: a tile in memory to the loop IR, spread over the registers of a warp on a GPU.

An instruction ``mma.sync.m16n8k*`` adds to a tile of 16 x 8 numbers, of which lane ``l`` holds rows ``l // 4`` and
``l // 4 + 8``, columns ``2 * (l % 4)`` and the next (PTX ISA, "Matrix fragments for mma.m16n8k16"). So a local buffer
that such an instruction adds to becomes four registers a lane and tile, and a loop over 16 rows or 8 columns of it two
iterations.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autotune.errors import BuildError
from autotune.lower.ir import Allocate, Buffer, For, Intrinsic, Load, Stmt, Store, loads, walk
from autotune.lower.linear import Lin, Simplifier
from autotune.lower.rewrite import moved, rewrite_stmt, with_parts
from autotune.te.expr import Binary, Expr, Var, const
from autotune.te.instructions import MatrixMultiply

ROWS, COLUMNS = 16, 8
"""Of a tile of accumulators."""

HALF_ROWS = 8
"""Rows from one that a lane holds to the other."""


def is_warp_call(stmt: Stmt) -> bool:
    """Return whether a statement is an instruction that a warp runs together."""
    return isinstance(stmt, Intrinsic) and any(isinstance(i, MatrixMultiply) for i in stmt.instructions)


def fragment_buffer(kernel: str, node: Allocate) -> Buffer | None:
    """Return the registers of one lane for a buffer that tensor cores add to; None for other buffers.

    Raises BuildError for one that is not made of whole tiles.
    """
    buffer = node.buffer
    calls = [p for p in walk(node.body) if isinstance(p, Intrinsic) and is_warp_call(p)]
    if not any(call.operands[0].buffer is buffer for call in calls):
        return None
    *outer, rows, columns = buffer.shape if len(buffer.shape) > 1 else (1, 1)
    if rows % ROWS or columns % COLUMNS or buffer.scope != "local":
        raise BuildError(
            f"kernel {kernel}: tensor cores add to {buffer.name} of shape {buffer.shape} in {buffer.scope} memory; "
            f"their accumulators are local, with rows in {ROWS}s and columns in {COLUMNS}s"
        )
    return Buffer(buffer.name, (*outer, rows // ROWS, columns // COLUMNS, 2, 2), buffer.dtype, "local")


class Fragments:
    """Rewrites what a warp does with its accumulators; ``lane`` stands for the number of a thread in its warp."""

    def __init__(self, lane: Var | None) -> None:
        self.lane = lane
        self._simplifier = Simplifier()
        self._held: dict[Buffer, Buffer] = {}

    @contextmanager
    def of(self, buffer: Buffer, fragment: Buffer) -> Iterator[None]:
        """Use ``fragment``, a lane's registers, for ``buffer`` within the block."""
        self._held[buffer] = fragment
        yield
        del self._held[buffer]

    def holds(self, buffer: Buffer) -> bool:
        """Return whether a buffer is spread over a warp."""
        return buffer in self._held

    def touched(self, stmt: Stmt) -> bool:
        """Return whether a statement reads or writes accumulators."""
        return bool(self._held) and bool(self._accesses(stmt))

    def distributed(self, stmt: Stmt) -> Stmt:
        """Return one lane's part of a statement."""
        return self._lane_part(stmt, {}, {})

    def _accesses(self, stmt: Stmt) -> list[Load | Store]:
        found: list[Load | Store] = [p for p in walk(stmt) if isinstance(p, Store) and p.buffer in self._held]
        found += [node for node in loads(stmt) if node.buffer in self._held]
        found += [
            o for p in walk(stmt) if isinstance(p, Intrinsic) for o in p.operands if o.buffer in self._held
        ]
        return found

    def _lane_part(self, stmt: Stmt, halves: dict[Var, Var], values: dict[Var, Expr]) -> Stmt:
        """Return a lane's part: ``halves`` has a loop over its two rows or columns for one over a tile,
        which ``values`` names."""
        if isinstance(stmt, Intrinsic):
            return self._call(stmt)
        if not isinstance(stmt, For):
            if self._accesses(stmt) and not isinstance(stmt, Store):
                return with_parts(stmt, lambda part: self._lane_part(part, halves, values))
            return self._at_registers(stmt, halves, values)
        role = self._role(stmt)
        if not role:
            body = self._lane_part(stmt.body, halves, values)
            return For(stmt.var, stmt.extent, "unrolled", body, stmt.note)
        part, lane = Var(stmt.var.name), self.lane
        assert lane is not None
        if role == ROWS:
            value = _sum(_of("//", lane, 4), _of("*", part, HALF_ROWS))
        else:
            value = _sum(_of("*", _of("%", lane, 4), 2), part)
        body = self._lane_part(stmt.body, {**halves, stmt.var: part}, {**values, stmt.var: value})
        return For(part, 2, "unrolled" if role == ROWS else "vectorized", body, stmt.note)

    def _role(self, loop: For) -> int:
        """Return ROWS or COLUMNS for a loop over those of a tile, else 0."""
        for access in self._accesses(loop.body):
            for dim, size in ((-2, ROWS), (-1, COLUMNS)):
                step = self._simplifier.form(access.indices[dim]).terms.get(loop.var, 0)
                if step == 1:
                    if loop.extent != size:
                        raise BuildError(_refusal(access))
                    return size
        return 0

    def _at_registers(self, stmt: Stmt, halves: dict[Var, Var], values: dict[Var, Expr]) -> Stmt:
        """Return a statement with accesses to the registers of the lane, and rows and columns those of the lane."""
        for buffer, fragment in self._held.items():
            stmt = moved(stmt, buffer, fragment, lambda at: self._place(at, halves))
        return rewrite_stmt(stmt, lambda node: values.get(node) if isinstance(node, Var) else None)

    def _place(self, indices: tuple[Expr, ...], halves: dict[Var, Var]) -> tuple[Expr, ...]:
        """Return tile, row and column of the lane, from those in the whole buffer."""
        tiles: list[Expr] = []
        parts: list[Expr] = []
        for index, size in zip(indices[-2:], (ROWS, COLUMNS), strict=True):
            form = self._simplifier.form(index)
            own = [atom for atom in form.terms if atom in halves and form.terms[atom] == 1]
            rest = form - Lin(dict.fromkeys(own, 1), 0)
            if len(own) > 1 or any(c % size for c in (*rest.terms.values(), rest.constant)):
                raise BuildError(_refusal_text())
            tiles.append(Lin({a: c // size for a, c in rest.terms.items()}, rest.constant // size).expr())
            parts.append(halves[own[0]] if own else const(0))  # type: ignore[index]
        return (*indices[:-2], *tiles, *parts)

    def _call(self, node: Intrinsic) -> Intrinsic:
        """Return an instruction on a lane's registers; its body says only which these are."""
        first = node.operands[0]
        fragment = self._held.get(first.buffer)
        if fragment is None:
            raise BuildError(
                f"{node.name} adds to {first.buffer.name}, which is not local to the loops around it"
            )
        place = self._place(first.indices, {})
        row, column = Var("row"), Var("column")
        at = (*place[:-2], row, column)
        store = Store(fragment, at, Load(fragment, at))
        body = For(row, 2, "unrolled", For(column, 2, "vectorized", store))
        operands = (Load(fragment, place), *node.operands[1:])
        strides = ((2, 1), *node.strides[1:])
        return Intrinsic(node.name, operands, body, node.instructions, strides, node.requires)


def _of(op: str, value: Expr, number: int) -> Expr:
    return Binary(op, value, const(number), "int64")


def _sum(a: Expr, b: Expr) -> Expr:
    return Binary("+", a, b, "int64")


def _refusal(access: Load | Store) -> str:
    return f"{_refusal_text()} (buffer {access.buffer.name})"


def _refusal_text() -> str:
    return (
        f"accumulators of tensor cores are used in loops that are not over whole tiles of {ROWS} x {COLUMNS}; keep "
        f"the loops that tensorize replaces as they are"
    )


__all__ = ["COLUMNS", "HALF_ROWS", "ROWS", "Fragments", "fragment_buffer", "is_warp_call"]
