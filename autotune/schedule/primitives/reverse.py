"""Primitives that move a stage to the producer that it reads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from autotune.schedule import rewrite
from autotune.schedule.legality import effective_readers
from autotune.schedule.relations import Fuse, Split
from autotune.schedule.state import StageState
from autotune.schedule.trace import primitive_of_several
from autotune.te.expr import IterVar, Read
from autotune.te.tensor import ComputeOp
from autotune.te.traversal import reads

if TYPE_CHECKING:
    from autotune.schedule.stage import Stage


class ReversePrimitives(StageState):
    """reverse_compute_at, reverse_compute_inline."""

    @primitive_of_several
    def reverse_compute_at(self, producer: Any, scope: IterVar) -> None:
        """Compute this stage inside a loop of the stage that it reads, right after the values it needs.

        TVM TIR: reverse_compute_at. The stage takes over the loops of ``producer`` down to ``scope``, with their
        kinds, and the producer is computed inside of them.

        Args:
            producer: a stage (or its tensor) that only this stage reads, element for element: ``P[i, j]`` at
                ``i, j``.
            scope: a data loop of ``producer`` with no reduction loop around it.

        This stage must have no loop steps yet.

        Before:
            >>> from autotune.lower.examples import matmul_relu, loops
            >>> s, A, B, C, D = matmul_relu(4, 8, 8)
            >>> i, j = s[C].op.axis
            >>> jo, ji = s[C].split(j, factor=4)
            >>> print(loops(s))
            for (i, 0, 4) {
              for (j.outer, 0, 2) {
                for (j.inner, 0, 4) {
                  allocate C.acc: float32[1, 1]
                  C.acc[0, 0] = 0f
                  for (k, 0, 8) {
                    C.acc[0, 0] = C.acc[0, 0] + A[i, k] * B[k, j.outer * 4 + j.inner]
                  }
                  C[i, j.outer * 4 + j.inner] = C.acc[0, 0]
                }
              }
            }
            for (i, 0, 4) {
              for (j, 0, 8) {
                D[i, j] = max(C[i, j], 0f)
              }
            }

        After:
            >>> s[D].reverse_compute_at(s[C], jo)
            >>> print(loops(s))
            for (i, 0, 4) {
              for (j.outer, 0, 2) {
                allocate C: float32[1, 4]
                for (j.inner, 0, 4) {
                  allocate C.acc: float32[1, 1]
                  C.acc[0, 0] = 0f
                  for (k, 0, 8) {
                    C.acc[0, 0] = C.acc[0, 0] + A[i, k] * B[k, j.outer * 4 + j.inner]
                  }
                  C[0, j.inner] = C.acc[0, 0]
                }
                for (j.inner, 0, 4) {
                  D[i, j.outer * 4 + j.inner] = max(C[0, j.inner], 0f)
                }
              }
            }

        Raises:
            >>> s, A, B, C, D = matmul_relu(4, 8, 8)
            >>> s[D].reverse_compute_at(s[C], s[C].op.reduce_axis[0])
            Traceback (most recent call last):
            autotune.errors.ScheduleError: reverse_compute_at: k is not outside of the reduction loops, where values are unfinished; legal: i, j
            stage C:
              serial i in 0..4
                serial j in 0..8
                  serial k in 0..8 (reduce)    <---
        """
        step = "reverse_compute_at"
        stage = self._elementwise_source(step, producer)
        at = stage.leaf(step, scope)
        if at >= stage.first_reduction():
            legal = ", ".join(iv.name for iv in stage.leaf_iter_vars[: stage.first_reduction()]) or "none"
            raise stage.refuse(
                step,
                f"{scope.name} is not outside of the reduction loops, where values are unfinished; legal: {legal}",
                scope,
            )
        if any(stage.kind_of(iv) == "vectorized" for iv in stage.leaf_iter_vars[: at + 1]):
            raise stage.refuse(
                step, f"a loop down to {scope.name} is vectorized; name one outside of it", scope
            )
        if self.relations or self.kinds:
            raise self.refuse(step, f"{self.op.name} has loop steps already; call {step} first")
        copies = self._copy_loops(stage)
        taken = [copies[iv] for iv in stage.leaf_iter_vars[: at + 1]]
        self.leaf_iter_vars = taken + [iv for iv in self.leaf_iter_vars if iv not in taken]
        for iv in stage.leaf_iter_vars[: at + 1]:
            kind = stage.kinds.pop(iv, None)
            if kind is not None:
                self.kinds[copies[iv]] = kind
        if stage.attach_type == "scope":
            raise stage.refuse(step, f"{stage.op.name} is computed inside another stage already")
        stage.compute_at(self, copies[scope])

    def _copy_loops(self, stage: Stage) -> dict[IterVar, IterVar]:
        """Repeat the data splits and fusions of another stage over the same axes; returns the copy of each."""
        assert isinstance(stage.op, ComputeOp)
        assert isinstance(self.op, ComputeOp)
        copies: dict[IterVar, IterVar] = dict(zip(stage.op.axis, self.op.axis, strict=True))
        for relation in stage.relations:
            if isinstance(relation, Split) and relation.parent in copies:
                outer = self.fresh(relation.outer.name, relation.outer.extent, "data")
                inner = self.fresh(relation.inner.name, relation.inner.extent, "data")
                parent = copies[relation.parent]
                self.relate(replace(relation, parent=parent, outer=outer, inner=inner))
                copies[relation.outer], copies[relation.inner] = outer, inner
                at = self.leaf_iter_vars.index(parent)
                self.leaf_iter_vars[at : at + 1] = [outer, inner]
                self.all_iter_vars += [outer, inner]
            elif isinstance(relation, Fuse) and relation.fused.kind == "data":
                first, second = copies[relation.outer], copies[relation.inner]
                fused = self.fresh(relation.fused.name, relation.fused.extent, "data")
                self.relate(Fuse(first, second, fused))
                copies[relation.fused] = fused
                self.leaf_iter_vars[self.leaf_iter_vars.index(first)] = fused
                self.leaf_iter_vars.remove(second)
                self.all_iter_vars.append(fused)
        return copies

    @primitive_of_several
    def reverse_compute_inline(self) -> None:
        """Fold this elementwise stage into the stage that it reads: its value is what the producer stores.

        TVM TIR: reverse_compute_inline. Epilogue fusion: a finished reduction is changed on its way from the
        accumulator to memory.

        The stage must read one other computed stage that nobody else reads, element for element: ``P[i, j]`` at
        ``i, j``. It must have no loop steps; further operands may be anything. Afterwards both names mean the
        producer's stage, whose loops stay.

        Before:
            >>> from autotune.lower.examples import matmul_relu, loops
            >>> s, A, B, C, D = matmul_relu(4, 8, 8)
            >>> print(loops(s))
            for (i, 0, 4) {
              for (j, 0, 8) {
                allocate C.acc: float32[1, 1]
                C.acc[0, 0] = 0f
                for (k, 0, 8) {
                  C.acc[0, 0] = C.acc[0, 0] + A[i, k] * B[k, j]
                }
                C[i, j] = C.acc[0, 0]
              }
            }
            for (i, 0, 4) {
              for (j, 0, 8) {
                D[i, j] = max(C[i, j], 0f)
              }
            }

        After:
            >>> s[D].reverse_compute_inline()
            >>> print(loops(s))
            for (i, 0, 4) {
              for (j, 0, 8) {
                allocate C.acc: float32[1, 1]
                C.acc[0, 0] = 0f
                for (k, 0, 8) {
                  C.acc[0, 0] = C.acc[0, 0] + A[i, k] * B[k, j]
                }
                C[i, j] = max(C.acc[0, 0], 0f)
              }
            }

        Raises:
            >>> s[D].reverse_compute_inline()
            Traceback (most recent call last):
            autotune.errors.ScheduleError: reverse_compute_inline: C is a reduction
            stage C:
              serial i in 0..4
                serial j in 0..8
                  serial k in 0..8 (reduce)
        """
        step = "reverse_compute_inline"
        op = self.computed(step)
        if op.reduction is not None:
            raise self.refuse(step, f"{op.name} is a reduction")
        computed = [t for t in op.input_tensors if isinstance(self.schedule[t].op, ComputeOp)]
        candidates = [t for t in computed if not self._source_problem(self.schedule[t])]
        if len(candidates) != 1:
            problems = "; ".join(self._source_problem(self.schedule[t]) for t in computed)
            why = problems or "it reads inputs of the program only"
            if len(candidates) > 1:
                why = (
                    f"{' and '.join(t.name for t in candidates)} both fit; inline or store one of them first"
                )
            raise self.refuse(step, f"{op.name} has no producer to fold into: {why}")
        if self.relations or self.kinds:
            raise self.refuse(step, f"{op.name} has loop steps already; call {step} first")
        if any(other.attach_stage is self for other in self.schedule.stages):
            raise self.refuse(step, f"stages are computed inside of {op.name}; move them first")
        producer = self.schedule[candidates[0]]
        if producer.init_at is not None:
            raise producer.refuse(
                step, f"{producer.op.name} is decomposed; call {step} first", producer.init_at
            )
        assert isinstance(producer.op, ComputeOp)
        merged = rewrite.folded(op, producer.op, lambda t: self.schedule[t] is producer)
        self.schedule.merge(producer, self, merged)  # type: ignore[arg-type]

    def _elementwise_source(self, step: str, producer: Any) -> Stage:
        """Return the stage ``producer`` that this stage reads element for element; raises ScheduleError."""
        stage = self.schedule[producer]
        self.computed(step)
        stage.computed(step)
        if self.op.reduction is not None:  # type: ignore[attr-defined]
            raise self.refuse(step, f"{self.op.name} is a reduction")
        problem = self._source_problem(stage)
        if problem:
            raise self.refuse(step, problem)
        return stage

    def _source_problem(self, stage: Stage) -> str:
        """Return the reason that this stage cannot be computed with the elements of ``stage``; empty when it can."""
        mine, name = self.op, stage.op.name
        assert isinstance(mine, ComputeOp)
        if not isinstance(stage.op, ComputeOp):
            return f"{name} is an input of the program"
        if stage.is_output:
            return f"{name} is an output of the program"
        if len(stage.op.dtypes) > 1 or len(mine.dtypes) > 1:
            return f"{name if len(stage.op.dtypes) > 1 else mine.name} has several outputs"
        if stage.attach_type == "inline":
            return f"{name} is inlined"
        live = self.schedule.order()
        readers = [r.op.name for r in effective_readers(self.schedule, live).get(stage, []) if r is not self]
        if readers:
            return f"{', '.join(readers)} reads {name} too"
        found = [r for e in _bodies(mine) for r in reads(e) if self.schedule[r.tensor] is stage]
        if not found:
            return f"{mine.name} does not read {name}"
        if stage.op.shape != mine.shape:
            return f"{name} has shape {stage.op.shape}, {mine.name} {mine.shape}"
        for read in found:
            if not _is_identity(read, mine):
                return f"{mine.name} reads {read!r}, not the element that it computes"
        return ""


def _bodies(op: ComputeOp) -> tuple[Any, ...]:
    return op.body if op.epilogue is None else (*op.body, op.epilogue.body)


def _is_identity(read: Read, op: ComputeOp) -> bool:
    """Return whether a read is at the axes themselves; an axis of one element may be written 0."""
    return all(index is axis for index, axis in zip(read.indices, op.axis, strict=True))


__all__ = ["ReversePrimitives"]
