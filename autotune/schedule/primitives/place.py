"""Primitives that say where a stage is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.errors import ScheduleError
from autotune.schedule.state import StageState
from autotune.schedule.trace import primitive
from autotune.te.expr import IterVar

if TYPE_CHECKING:
    pass


class PlacePrimitives(StageState):
    """compute_at, compute_inline, compute_root."""

    @primitive
    def compute_at(self, parent: Any, scope: IterVar) -> None:
        """Compute this stage inside a loop of a stage that reads it, just what an iteration needs.

        TVM and Halide: compute_at. Exo: fuse after bounds inference.

        Args:
            parent: the stage (or its tensor) that reads this one, directly or through others.
            scope: a loop of ``parent`` that all readers of this stage are inside of, not vectorized. Readers that are
                still at the root, and that ``parent`` needs, may be placed there afterwards.

        Before:
            >>> from autotune.lower.examples import blur, loops
            >>> s, A, B, C = blur(8)
            >>> print(loops(s))
            for (i, 0, 10) {
              B[i] = A[i] * 2f
            }
            for (i, 0, 8) {
              C[i] = B[i] + B[i + 1] + B[i + 2]
            }

        After:
            >>> outer, inner = s[C].split(s[C].op.axis[0], factor=4)
            >>> s[B].compute_at(s[C], outer)
            >>> print(loops(s))
            for (i.outer, 0, 2) {
              allocate B: float32[6]
              for (i, 0, 6) {
                B[i] = A[i.outer * 4 + i] * 2f
              }
              for (i.inner, 0, 4) {
                C[i.outer * 4 + i.inner] = B[i.inner] + B[i.inner + 1] + B[i.inner + 2]
              }
            }

        Raises:
            >>> copy = s.cache_read(B, "global", [C])
            Traceback (most recent call last):
            autotune.errors.ScheduleError: cache_read: B would be computed at C, i.outer, but B.global reads it outside of that loop; B may be computed at: B.global at ax0, the root
            stage C:
              serial i.outer in 0..2    <---
                serial i.inner in 0..4
        """
        stage = self.schedule[parent]
        op = self.computed("compute_at")
        if self.is_output:
            raise self.refuse("compute_at", f"{op.name} is an output of the program and stays at the root")
        if scope not in stage.leaf_iter_vars:
            raise stage.refuse("compute_at", f"{scope.name} is not a loop of stage {stage.op.name} now")
        if stage.kind_of(scope) == "vectorized":
            raise stage.refuse("compute_at", f"{scope.name} is vectorized; attach outside of it", scope)
        if not self.schedule.reads_from(stage, self):  # type: ignore[arg-type]
            raise ScheduleError(f"compute_at: stage {stage.op.name} does not read {op.name}")
        self.attach_type, self.attach_stage, self.attach_ivar = "scope", stage, scope
        self.awaits_readers = True

    @primitive
    def compute_inline(self) -> None:
        """Substitute this stage into its readers.

        TVM: compute_inline. Halide: the default. Exo: inline.

        For stages without a reduction that are not outputs of the program.

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
            >>> s[B].compute_inline()
            >>> print(loops(s))
            for (i, 0, 8) {
              C[i] = (A[i] + 1f) * 2f
            }

        Raises:
            >>> s[C].compute_inline()
            Traceback (most recent call last):
            autotune.errors.ScheduleError: compute_inline: C is an output of the program
            stage C:
              serial i in 0..8
        """
        if self.is_output:
            raise self.refuse("compute_inline", f"{self.op.name} is an output of the program")
        op = self.computed("compute_inline")
        if op.reduction is not None:
            raise self.refuse("compute_inline", f"{op.name} is a reduction")
        self.attach_type, self.attach_stage, self.attach_ivar = "inline", None, None

    @primitive
    def compute_root(self) -> None:
        """Compute this stage on its own before its readers (the default).

        TVM and Halide: compute_root.

        Before:
            >>> from autotune.lower.examples import chain, loops
            >>> s, A, B, C = chain(8)
            >>> s[B].compute_inline()
            >>> print(loops(s))
            for (i, 0, 8) {
              C[i] = (A[i] + 1f) * 2f
            }

        After:
            >>> s[B].compute_root()
            >>> print(loops(s))
            for (i, 0, 8) {
              B[i] = A[i] + 1f
            }
            for (i, 0, 8) {
              C[i] = B[i] * 2f
            }

        Raises:
            >>> s[B].compute_at(s[C], s[C].op.axis[0])
            >>> A_copy = s.cache_read(A, "local", [B])
            >>> s[A_copy].compute_at(s[C], s[C].op.axis[0])
            >>> s[B].compute_root()
            Traceback (most recent call last):
            autotune.errors.ScheduleError: compute_root: A.local would be computed at C, i, but B reads it outside of that loop; A.local may be computed at: B at i, the root
            stage C:
              serial i in 0..8    <---
        """
        self.attach_type, self.attach_stage, self.attach_ivar = "root", None, None


__all__ = ["PlacePrimitives"]
