"""The innermost statement of a nest: one element computed, and a reduction's start, update and end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.errors import InternalError
from autotune.lower.ir import Buffer, If, Let, Load, Stmt, Store, StoreOrigin, sequence, walk
from autotune.lower.linear import Lin
from autotune.lower.opened import OpenFrame
from autotune.lower.translate import StageBuffers, Translator
from autotune.schedule.stage import Stage
from autotune.te.expr import Const, Expr, Reduce, Var
from autotune.te.traversal import substitute


class Elements:
    """Generates the statements of elements; ``with_origins`` they know the instance that they belong to."""

    def __init__(
        self,
        bodies: Mapping[Stage, tuple[Expr, ...]],
        epilogues: Mapping[Stage, Expr],
        translator: Translator,
        *,
        with_origins: bool,
    ) -> None:
        self.bodies = bodies
        self.epilogues = epilogues
        self.translator = translator
        self.with_origins = with_origins

    def statement(self, frame: OpenFrame, mode: str, out: StageBuffers) -> Stmt:
        """Return the statement inside of all loops, under the conditions that are left.

        ``mode`` is as in the loops of a nest: "all", or "init", "load", "update", "store" or "fold" (into what is
        stored) of a reduction.
        """
        values = frame.axis_values()
        index = [values[axis] for axis in frame.op.axis]
        body = self.bodies[frame.stage]
        acc = out.registers or out
        if mode == "load":
            stmt = sequence([_copy(out, i, acc, index) for i in range(len(body))])
        elif mode == "store" and frame.stage in self.epilogues:
            stmt = self._finish(frame, acc, index, values, out)
        elif mode == "store":
            stmt = sequence([_copy(acc, i, out, index) for i in range(len(body))])
        elif mode == "all":
            stmt = stores(acc.buffers, acc.indices(index), [self.translator.value(e, values) for e in body])
        else:
            reduction = body[0]
            if not isinstance(reduction, Reduce):
                raise InternalError(f"stage {frame.stage.op.name} has reduction loops but no reduction")
            dtypes = tuple(s.dtype for s in reduction.sources)
            if mode == "init":
                stmt = stores(acc.buffers, acc.indices(index), list(reduction.reducer.identity(dtypes)))
            elif mode == "fold":
                total, part = _loaded(out, index), _loaded(acc, index)
                stmt = stores(out.buffers, out.indices(index), list(reduction.reducer.combine(total, part)))
            else:
                old = _loaded(acc, index)
                memo: dict[int, Expr] = {}
                new = tuple(self.translator.value(s, values, memo) for s in reduction.sources)
                stmt = stores(acc.buffers, acc.indices(index), list(reduction.reducer.combine(old, new)))
        if self.with_origins:
            self._mark(frame, mode, acc.level if mode in ("init", "update") else out.level, stmt)
        return self.guarded(frame, mode, stmt)

    def _mark(self, frame: OpenFrame, mode: str, level: int, stmt: Stmt) -> None:
        """Tell the stores of an element what they are part of."""
        values = frame.axis_values()
        axes = frame.op.axis + (frame.op.reduce_axis if mode in ("all", "update") else ())
        instance = tuple(values[axis].expr() for axis in axes)
        stores = [each for each in walk(stmt) if isinstance(each, Store)]
        for component, store in enumerate(stores):
            store.origin = StoreOrigin(frame.op.name, mode, instance, component, level)

    def guarded(self, frame: OpenFrame, mode: str, stmt: Stmt) -> Stmt:
        """Return a statement under the conditions that are left for ``mode``."""
        conditions = [c for c, is_reduce in frame.conditions if mode in ("all", "update") or not is_reduce]
        conditions += frame.bounds_conditions()
        for condition in reversed(dict.fromkeys(conditions)):
            if isinstance(condition, Const):
                if not condition.value:
                    return sequence([])
                continue
            stmt = If(condition, stmt, None)
        return stmt

    def _finish(
        self,
        frame: OpenFrame,
        acc: StageBuffers,
        index: list[Lin],
        values: Mapping[Expr, Lin],
        out: StageBuffers,
    ) -> Stmt:
        """Return the epilogue of a finished reduction, from the accumulator to memory."""
        epilogue = frame.op.epilogue
        assert epilogue is not None
        value = Load(acc.buffers[0], acc.indices(index))
        body = substitute(self.epilogues[frame.stage], {epilogue.accumulator: value})
        return Store(out.buffers[0], out.indices(index), self.translator.value(body, values))


def stores(buffers: Sequence[Buffer], indices: tuple[Expr, ...], values: Sequence[Expr]) -> Stmt:
    """Return the components of a tuple at the same place of a buffer each."""
    if len(values) == 1:
        return Store(buffers[0], indices, values[0])
    # All are computed before any is stored: they read one another's old values.
    names = [Var(f"{b.name}.new", v.dtype) for b, v in zip(buffers, values, strict=True)]
    stmt: Stmt = sequence([Store(b, indices, n) for b, n in zip(buffers, names, strict=True)])
    for name, value in zip(reversed(names), reversed(values), strict=True):
        stmt = Let(name, value, stmt)
    return stmt


def _loaded(place: StageBuffers, index: list[Lin]) -> tuple[Expr, ...]:
    return tuple(Load(buffer, place.indices(index)) for buffer in place.buffers)


def _copy(source: StageBuffers, number: int, target: StageBuffers, index: list[Lin]) -> Stmt:
    load = Load(source.buffers[number], source.indices(index))
    return Store(target.buffers[number], target.indices(index), load)


__all__ = ["Elements", "stores"]
