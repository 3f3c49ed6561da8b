"""Comparison of the innermost loops of a stage with the pattern of a tensor intrinsic."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from autotune.schedule.relations import Fuse, Split
from autotune.te.expr import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    IterVar,
    Not,
    Read,
    Reduce,
    Select,
    Var,
    const,
)
from autotune.te.printer import expr_text
from autotune.te.tensor import ComputeOp, Tensor
from autotune.te.text import reducer_text
from autotune.te.traversal import children, nodes, substitute

if TYPE_CHECKING:
    from autotune.schedule.stage import Stage
    from autotune.te.intrinsic import TensorIntrin

Moves = dict[tuple[int, IterVar], int]
"""The distance that a loop of the pattern moves a dimension, counted from the last one (1) of more than one element;
nothing where it does not."""


def difference(stage: Stage, iv: IterVar) -> str:
    """Return the difference of the loops of ``stage`` from ``iv`` inwards and the pattern declared for
    them; empty if none."""
    pattern = stage.tensorized[iv].op
    loops = stage.leaf_iter_vars[stage.leaf_iter_vars.index(iv) :]
    wanted = pattern.axis + pattern.reduce_axis
    if len(loops) != len(wanted):
        return (
            f"the pattern has {len(wanted)} loops ({_loops(wanted)}), "
            f"the stage has {len(loops)} from {iv.name} on ({_loops(loops)})"
        )
    partners = paired(stage, iv)
    for loop in loops:
        if loop not in partners or _is_fused_or_guarded(stage, loop):
            left = [w for w in wanted if w not in partners.values()]
            return (
                f"loop {loop.name} ({loop.kind}, extent {loop.extent}) has no counterpart among the pattern's "
                f"({_loops(left or wanted)})"
            )
    return _Comparison(stage, stage.tensorized[iv], partners).run()


def paired(stage: Stage, iv: IterVar) -> dict[IterVar, IterVar]:
    """Return the loop of the pattern for each loop from ``iv`` on; those of one kind and extent pair in order."""
    pattern = stage.tensorized[iv].op
    free = list(pattern.axis + pattern.reduce_axis)
    result: dict[IterVar, IterVar] = {}
    for loop in stage.leaf_iter_vars[stage.leaf_iter_vars.index(iv) :]:
        match = next((w for w in free if w.extent == loop.extent and w.kind == loop.kind), None)
        if match is not None:
            free.remove(match)
            result[loop] = match
    return result


def matched_reads(stage: Stage, iv: IterVar) -> dict[Tensor, Read]:
    """Return the read of the stage for each input of the pattern; only for loops that do not differ from it."""
    comparison = _Comparison(stage, stage.tensorized[iv], paired(stage, iv))
    comparison.run()
    return comparison.found


def _loops(loops: tuple[IterVar, ...] | list[IterVar]) -> str:
    return ", ".join(f"{iv.name}: {iv.kind} {iv.extent}" for iv in loops) or "none"


def _is_fused_or_guarded(stage: Stage, loop: IterVar) -> bool:
    """Return whether a loop comes from a fuse, or runs less often in a last iteration without code of its own."""
    for relation in stage.relations:
        if isinstance(relation, Fuse):
            if loop is relation.fused:
                return True
        elif loop in (relation.inner, relation.outer):
            whole = relation.outer.extent * relation.inner.extent == relation.parent.extent
            if not whole and (relation.tail == "guard" or loop is relation.outer):
                return True
            return _is_fused_or_guarded(stage, relation.parent)
    return False


class _Comparison:
    """Walks the bodies of a stage and of a pattern together; ``found`` collects the operands."""

    def __init__(self, stage: Stage, intrin: TensorIntrin, partners: Mapping[IterVar, IterVar]) -> None:
        self.stage = stage
        self.by_loop = intrin.by_loop
        self.pattern = intrin.op
        self.partners = partners
        self.found: dict[Tensor, Read] = {}
        self._places: dict[IterVar | None, dict[Expr, Expr]] = {}

    def run(self) -> str:
        """Return the first difference; empty if there is none."""
        op = self.stage.op
        assert isinstance(op, ComputeOp)
        # Each element of the output must be moved as the pattern moves its own.
        mine = Read(op.output(0), tuple(op.axis))
        theirs = _written(self.pattern)
        if len(op.body) != 1:
            return f"the stage has {len(op.body)} outputs, the pattern one"
        return self._expr(op.body[0], self.pattern.body[0]) or self._read(mine, theirs, "writes")

    def _expr(self, a: Expr, b: Expr) -> str:
        if type(a) is not type(b) or a.dtype != b.dtype or _label(a) != _label(b):
            return f"the stage computes {expr_text(a)} ({a.dtype}), the pattern {expr_text(b)} ({b.dtype})"
        if isinstance(a, Read) and isinstance(b, Read):
            known = self.found.setdefault(b.tensor, a)
            if known.tensor != a.tensor:
                return (
                    f"{b.tensor.name} of the pattern stands for {known.tensor.name} and for {a.tensor.name}"
                )
            return self._read(a, b, "reads")
        for x, y in zip(children(a), children(b), strict=True):
            found = self._expr(x, y)
            if found:
                return found
        return ""

    def _read(self, a: Read, b: Read, verb: str) -> str:
        """Compare a read: each loop must move the same dimensions by as much, counted from the last one."""
        mine, theirs = self._moves(a), _pattern_moves(b)
        if mine is None:
            return (
                f"the stage {verb} {expr_text(a)} where the pattern {verb} {expr_text(b)}: "
                f"the place depends on more than loops"
            )
        for loop, partner in self.partners.items():
            ours, wanted = _of(mine, partner), _of(theirs, partner)
            if self.by_loop and wanted:
                continue  # lowering checks the distance in memory
            if ours != wanted:
                return (
                    f"the stage {verb} {expr_text(a)} where the pattern {verb} {expr_text(b)}: {loop.name} moves "
                    f"{_in_words(a, ours)}, {partner.name} of the pattern {_in_words(b, wanted)}"
                )
        return ""

    def _moves(self, read: Read) -> Moves | None:
        moves: Moves = {}
        start = _evaluated(read, self._place(None))
        for loop, partner in self.partners.items():
            if loop.extent == 1:
                continue
            after = _evaluated(read, self._place(loop))
            if start is None or after is None:
                return None
            for dim, (first, second) in enumerate(zip(start, after, strict=True)):
                if first != second:
                    moves[_counted(read.tensor) - dim, partner] = second - first
        return moves

    def _place(self, moved: IterVar | None) -> dict[Expr, Expr]:
        """Return all loops in the first iteration, or in the second one of ``moved``."""
        if moved not in self._places:
            self._places[moved] = _constants(self._iteration(moved))
        return self._places[moved]

    def _iteration(self, moved: IterVar | None) -> dict[IterVar, int]:
        values = {loop: int(loop is moved) for loop in self.stage.leaf_iter_vars}
        for relation in reversed(self.stage.relations):
            if isinstance(relation, Split):
                inner = relation.factor or -(-relation.parent.extent // relation.nparts)
                width = min(inner, relation.parent.extent)
                values[relation.parent] = values[relation.outer] * width + values[relation.inner]
            else:
                size = relation.inner.extent
                values[relation.outer], values[relation.inner] = divmod(values[relation.fused], size)
        return values


@lru_cache(maxsize=256)
def _written(pattern: ComputeOp) -> Read:
    """Return the element that a pattern writes, one object, of which the movements are remembered."""
    return Read(pattern.output(0), tuple(pattern.axis))


@lru_cache(maxsize=1024)
def _pattern_moves(read: Read) -> Moves:
    loops = dict.fromkeys(n for i in read.indices for n in nodes(i) if isinstance(n, IterVar))
    zero = dict.fromkeys(loops, 0)
    start = _evaluated(read, _constants(zero)) or []
    moves: Moves = {}
    for loop in loops:
        after = _evaluated(read, _constants({**zero, loop: 1})) or []
        for dim, (first, second) in enumerate(zip(start, after, strict=True)):
            if first != second and loop.extent > 1:
                moves[_counted(read.tensor) - dim, loop] = second - first
    return moves


def _counted(tensor: Tensor) -> int:
    """Return the number of dimensions up to the last one of more than one element."""
    return next((dim + 1 for dim in reversed(range(tensor.ndim)) if tensor.shape[dim] > 1), tensor.ndim)


def _constants(values: Mapping[IterVar, int]) -> dict[Expr, Expr]:
    return {iv: const(value + iv.start) for iv, value in values.items()}


def _evaluated(read: Read, numbers: dict[Expr, Expr]) -> list[int] | None:
    index = [numbers[i] if i in numbers else substitute(i, numbers) for i in read.indices]
    return [int(i.value) for i in index if isinstance(i, Const)] if all(_known(i) for i in index) else None


def _known(expr: Expr) -> bool:
    return isinstance(expr, Const)


def _of(moves: Moves, loop: IterVar) -> dict[int, int]:
    """Return the movement by one loop: steps by dimension, counted from the last one."""
    return {dim: step for (dim, by), step in moves.items() if by is loop}


def _in_words(read: Read, steps: Mapping[int, int]) -> str:
    parts = [
        f"dimension {_counted(read.tensor) - dim} of {read.tensor.name}"
        + (f" by {step}" if step != 1 else "")
        for dim, step in sorted(steps.items(), reverse=True)
    ]
    return " and ".join(parts) or f"nothing of {read.tensor.name}"


def _label(node: Expr) -> object:
    if isinstance(node, Binary | Compare):
        return node.op
    if isinstance(node, Call):
        return node.name
    if isinstance(node, Reduce):
        return reducer_text(node)
    if isinstance(node, Const):
        return node.value
    if isinstance(node, Read | Select | Not | Cast | Var):
        return ""
    return type(node)


__all__ = ["difference", "matched_reads", "paired"]
