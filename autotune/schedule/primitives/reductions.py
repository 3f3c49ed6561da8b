"""Primitives about reductions of one stage."""

from __future__ import annotations

from autotune.schedule.state import StageState
from autotune.schedule.trace import primitive
from autotune.te.expr import IterVar


class ReductionPrimitives(StageState):
    """decompose_reduction."""

    @primitive
    def decompose_reduction(self, var: IterVar) -> None:
        """Store the start values of a reduction in loops of their own, before loop ``var``.

        TVM TIR: decompose_reduction. Halide: the pure definition of an update.

        By default the start values are set right before the outermost reduction loop, and where the loops allow it
        accumulators stay in registers. After this step the loops from ``var`` inwards only update.

        Args:
            var: a data loop with no reduction loop around it, or the outermost reduction loop.

        Before:
            >>> from autotune.lower.examples import matmul, loops
            >>> s, A, B, C = matmul(4, 6, 8)
            >>> print(loops(s))
            for (i, 0, 4) {
              for (j, 0, 6) {
                allocate C.acc: float32[1, 1]
                C.acc[0, 0] = 0f
                for (k, 0, 8) {
                  C.acc[0, 0] = C.acc[0, 0] + A[i, k] * B[k, j]
                }
                C[i, j] = C.acc[0, 0]
              }
            }

        After:
            >>> s[C].decompose_reduction(s[C].op.axis[0])
            >>> print(loops(s))
            for (i, 0, 4) {
              for (j, 0, 6) {
                C[i, j] = 0f
              }
            }
            for (i, 0, 4) {
              for (j, 0, 6) {
                allocate C.acc: float32[1, 1]
                C.acc[0, 0] = C[i, j]
                for (k, 0, 8) {
                  C.acc[0, 0] = C.acc[0, 0] + A[i, k] * B[k, j]
                }
                C[i, j] = C.acc[0, 0]
              }
            }

        Raises:
            >>> s[C].reorder(s[C].op.reduce_axis[0], s[C].op.axis[1], s[C].op.axis[0])
            Traceback (most recent call last):
            autotune.errors.ScheduleError: reorder: start values are stored before i, which must stay outside of the reduction loops
            stage C:
              serial k in 0..8 (reduce)
                serial j in 0..6
                  serial i in 0..4    <---
        """
        step = "decompose_reduction"
        op = self.computed(step)
        at = self.leaf(step, var)
        if op.reduction is None:
            raise self.refuse(step, f"{op.name} is not a reduction")
        if op.epilogue is not None:
            raise self.refuse(
                step, f"{op.name} has an epilogue, which needs accumulators apart from the output"
            )
        if at > self.first_reduction():
            legal = ", ".join(iv.name for iv in self.leaf_iter_vars[: self.first_reduction() + 1])
            raise self.refuse(step, f"{var.name} is inside of a reduction loop; legal: {legal}", var)
        if self.kind_of(var) == "vectorized":
            raise self.refuse(step, f"{var.name} is vectorized; name a loop outside of it", var)
        self.init_at = var


__all__ = ["ReductionPrimitives"]
