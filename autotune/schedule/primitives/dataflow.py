"""Primitives that add stages or change what stages compute; they are called on the schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.errors import ScheduleError
from autotune.schedule import rewrite
from autotune.schedule.knob_value import KnobLoop
from autotune.schedule.relayout import cache_in_loop_order
from autotune.schedule.state import SCOPES
from autotune.schedule.trace import primitive
from autotune.te.expr import IterVar
from autotune.te.tensor import ComputeOp, Operation, PlaceholderOp, Tensor

if TYPE_CHECKING:
    from autotune.schedule.stage import Stage


class DataflowPrimitives:
    """cache_read, cache_write, rfactor."""

    if TYPE_CHECKING:

        def __getitem__(self, key: Any) -> Stage: ...
        def readers_of(self, producer: Stage) -> list[Stage]: ...
        def add(self, op: Operation, before: Stage | None = None, after: Stage | None = None) -> Stage: ...
        def replace_op(self, stage: Stage, op: Operation) -> None: ...
        def redirect(self, reader: Stage, source: Stage, index: int, replacement: Any) -> None: ...
        def unique_name(self, name: str) -> str: ...

    @primitive
    def cache_write(self, tensor: Any, scope: str) -> Any:
        """Compute a tensor into a new stage; the tensor's stage becomes the copy out of it.

        TVM: cache_write. The new stage has the computation, the old one the output's loops: attach the new stage to
        them to accumulate in registers.

        Args:
            tensor: a tensor whose loops run serially (or a list of all outputs of one operation). Where its loops were
                split, fused or reordered, the new stage has a dimension for each of its data loops, and the tensor's
                stage starts again with its axes.
            scope: as in ``set_scope``.

        Returns:
            The new stage's tensor, named ``<tensor>.<scope>`` (a list for a list).

        Before:
            >>> from autotune.lower.examples import rows, loops
            >>> s, A, C = rows(4, 6)
            >>> print(loops(s))
            for (i, 0, 4) {
              allocate C.acc: float32[1]
              C.acc[0] = 0f
              for (k, 0, 6) {
                C.acc[0] = C.acc[0] + A[i, k]
              }
              C[i] = C.acc[0]
            }

        After:
            >>> CL = s.cache_write(C, "local")
            >>> print(loops(s))
            for (i.c, 0, 4) {
              allocate C.local.acc: float32[1]
              C.local.acc[0] = 0f
              for (k, 0, 6) {
                C.local.acc[0] = C.local.acc[0] + A[i.c, k]
              }
              C.local[i.c] = C.local.acc[0]
            }
            for (i, 0, 4) {
              C[i] = C.local[i]
            }

        Raises:
            >>> s.cache_write(A, "local")
            Traceback (most recent call last):
            autotune.errors.ScheduleError: cache_write: A is an input; use cache_read to copy it
        """
        tensors = list(tensor) if isinstance(tensor, list | tuple) else [tensor]
        if not all(isinstance(t, Tensor) for t in tensors):
            raise ScheduleError(f"cache_write: expected a tensor or a list of tensors, got {tensor!r}")
        if len({id(t.op) for t in tensors}) != 1:
            raise ScheduleError("cache_write: a list must hold outputs of one operation")
        stage = self.computing("cache_write", tensors[0])
        _check_scope("cache_write", scope)
        assert isinstance(stage.op, ComputeOp)
        name = self.unique_name(f"{stage.op.name}.{scope}")
        if stage.leaf_iter_vars == [*stage.op.axis, *stage.op.reduce_axis]:
            cache, copy = rewrite.cache_write(stage.op, name)
        elif stage.op.epilogue is None:
            cache, copy = cache_in_loop_order(stage.op, stage.relations, stage.leaf_iter_vars, name)
        else:
            raise stage.refuse("cache_write", f"{stage.op.name} has an epilogue; call cache_write first")
        new = self.add(cache, before=stage)
        new.scope = str(scope)
        self.replace_op(stage, copy)
        stage.take_loops(copy)
        outputs = [cache.output(t.value_index) for t in tensors]
        return outputs if isinstance(tensor, list | tuple) else outputs[0]

    @primitive
    def cache_read(self, tensor: Tensor, scope: str, readers: Any) -> Tensor:
        """Copy a tensor for some of its readers.

        TVM: cache_read. Halide: in, with compute_at. Exo: stage_mem. Attach the copy to a reader's loop to pack or
        stage what it reads.

        Args:
            tensor: an input or a computed tensor.
            scope: where the copy lives, as in ``set_scope``.
            readers: stages (or tensors, operations) that read it.

        Returns:
            The copy, named ``<tensor>.<scope>``.

        Before:
            >>> from autotune.lower.examples import chain, loops
            >>> s, A, B, C = chain(8)
            >>> print(loops(s))
            for (i, 0, 8) {
              B[i] = A[i] + 1f
            }
            for (i, 0, 8) {
              C[i] = B[i] * 2f
            }

        After:
            >>> AL = s.cache_read(A, "local", [B])
            >>> s[AL].compute_at(s[B], s[B].op.axis[0])
            >>> print(loops(s))
            for (i, 0, 8) {
              allocate A.local: float32[1]
              A.local[0] = A[i]
              B[i] = A.local[0] + 1f
            }
            for (i, 0, 8) {
              C[i] = B[i] * 2f
            }

        Raises:
            >>> s.cache_read(A, "local", [C])
            Traceback (most recent call last):
            autotune.errors.ScheduleError: cache_read: stage C does not read A
        """
        _check_scope("cache_read", scope)
        source = self[tensor]
        stages = [self[r] for r in (readers if isinstance(readers, list | tuple) else [readers])]
        current = Tensor(source.op, tensor.value_index)
        copy = rewrite.copy_of(current, self.unique_name(f"{current.name}.{scope}"))
        for stage in stages:
            if not any(self[t] is source for t in stage.op.input_tensors):
                raise ScheduleError(f"cache_read: stage {stage.op.name} does not read {current.name}")
        new = self.add(copy, after=source)
        new.scope = str(scope)
        for stage in stages:
            self.redirect(stage, source, tensor.value_index, lambda i: copy.output(0)(*i))
        return copy.output(0)

    @primitive
    def rfactor(self, tensor: Any, axis: IterVar, factor_axis: int = 0) -> Any:
        """Make a reduction loop a data axis of a new stage that holds partial results.

        TVM: rfactor. Halide: rfactor (Suriana, Adams, Kamil, CGO 2017). It makes a reduction parallel.

        Args:
            tensor: a reduction whose loops run serially; of one of several values, any of their tensors. Its stage
                starts again with its axes.
            axis: one of its reduction loops, usually the outer or inner part of a split. The new stage reduces over
                the other reduction loops, and the old one over ``axis``.
            factor_axis: the place of the new axis, 0 for the first.

        Returns:
            The new stage's tensor, named ``<tensor>.rf``; a list of them for a reduction of several values.

        Before:
            >>> from autotune.lower.examples import rows, loops
            >>> s, A, C = rows(4, 12)
            >>> print(loops(s))
            for (i, 0, 4) {
              allocate C.acc: float32[1]
              C.acc[0] = 0f
              for (k, 0, 12) {
                C.acc[0] = C.acc[0] + A[i, k]
              }
              C[i] = C.acc[0]
            }

        After:
            >>> outer, inner = s[C].split(s[C].op.reduce_axis[0], factor=4)
            >>> CF = s.rfactor(C, inner)
            >>> print(loops(s))
            for (k.inner, 0, 4) {
              for (i, 0, 4) {
                allocate C.rf.acc: float32[1, 1]
                C.rf.acc[0, 0] = 0f
                for (k.outer, 0, 3) {
                  C.rf.acc[0, 0] = C.rf.acc[0, 0] + A[i, k.outer * 4 + k.inner]
                }
                C.rf[k.inner, i] = C.rf.acc[0, 0]
              }
            }
            for (i, 0, 4) {
              allocate C.acc: float32[1]
              C.acc[0] = 0f
              for (k.inner.v, 0, 4) {
                C.acc[0] = C.acc[0] + C.rf[k.inner.v, i]
              }
              C[i] = C.acc[0]
            }

        Raises:
            >>> s.rfactor(C, s[C].op.axis[0])
            Traceback (most recent call last):
            autotune.errors.ScheduleError: rfactor: i is not a reduction loop of C
            stage C:
              serial i in 0..4
                serial k.inner.v in 0..4 (reduce)
        """
        stage = self[tensor]
        op = stage.computed("rfactor")
        if axis not in stage.leaf_iter_vars or axis.kind != "reduce":
            raise stage.refuse("rfactor", f"{axis.name} is not a reduction loop of {op.name}")
        if stage.kinds:
            raise stage.refuse("rfactor", "loops were annotated already; call rfactor first")
        if not 0 <= factor_axis <= len(op.axis):
            raise stage.refuse("rfactor", f"factor_axis must be in 0..{len(op.axis)}, got {factor_axis}")
        name = self.unique_name(f"{op.name}.rf")
        partial, final = rewrite.rfactor(op, stage.relations, stage.leaf_iter_vars, axis, factor_axis, name)
        self.add(partial, before=stage)
        self.replace_op(stage, final)
        stage.take_loops(final)
        outputs = [partial.output(i) for i in range(len(partial.dtypes))]
        return outputs if len(outputs) > 1 else outputs[0]

    def computing(self, step: str, tensor: Tensor) -> Stage:
        """Return the stage of a tensor that is computed, by loops whose extents are numbers; raises ScheduleError."""
        stage = self[tensor]
        if isinstance(stage.op, PlaceholderOp):
            raise ScheduleError(f"{step}: {stage.op.name} is an input; use cache_read to copy it")
        if stage.kinds or any(isinstance(iv, KnobLoop) for iv in stage.all_iter_vars):
            raise stage.refuse(step, f"{stage.op.name} has loop steps already; call {step} first")
        return stage

    def untouched(self, step: str, tensor: Tensor) -> Stage:
        """Return the stage of a tensor, which must have no loop steps yet; raises ScheduleError."""
        stage = self.computing(step, tensor)
        if stage.relations:
            raise stage.refuse(step, f"{stage.op.name} has loop steps already; call {step} first")
        return stage


def _check_scope(step: str, scope: str) -> None:
    if scope not in SCOPES:
        raise ScheduleError(f"{step}: scope must be one of {', '.join(SCOPES)}, got {scope!r}")


__all__ = ["DataflowPrimitives"]
