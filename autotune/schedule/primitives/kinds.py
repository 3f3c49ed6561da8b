"""Primitives that say how a loop runs."""

from __future__ import annotations

from typing import Any

from autotune.schedule.knob_value import KnobValue
from autotune.schedule.state import StageState
from autotune.schedule.trace import primitive
from autotune.suggest import listing
from autotune.te.expr import IterVar
from autotune.te.reductions import shipped_name
from autotune.te.tensor import ComputeOp

PRAGMA_KINDS = ("vectorize", "unroll", "parallel")
"""Hints that are primitives of their own."""

PRAGMA_HINTS = (
    "nontemporal",
    "auto_unroll_max_step",
    "auto_unroll_max_depth",
    "unroll_explicit",
    "unroll_and_jam",
    "loop_partition_hint",
    "parallel_launch_point",
    "parallel_stride_pattern",
    "parallel_barrier_when_finish",
)
"""Hints that are kept; of these the first has an effect."""


class KindPrimitives(StageState):
    """vectorize, unroll, parallel, pragma."""

    def annotate(self, step: str, iv: IterVar, kind: str) -> None:
        """Give a serial loop another kind."""
        self.leaf(step, iv)
        old = self.kind_of(iv)
        if old not in ("serial", kind):
            raise self.refuse(step, f"{iv.name} is {old} already", iv)
        if iv in self.peeled and kind != "unrolled":
            raise self.refuse(step, f"{iv.name} is peeled: its iterations have different code", iv)
        self.kinds[iv] = kind

    @primitive
    def vectorize(self, var: IterVar, *, when: bool | KnobValue = True) -> None:
        """Run a loop in vector lanes.

        TVM and Halide: vectorize. Exo: replace by vector instructions.

        Iterations of a data loop are independent, so any may be vectorized. The lanes of a reduction loop are
        folded by the reducer: sum, prod, max, max_number and min.

        Args:
            var: a loop of the stage, best the innermost one, with neighbouring elements in memory.
            when: False, or a knob value that is, leaves the step out.

        Before:
            >>> from autotune.lower.examples import chain, loops
            >>> s, A, B, C = chain(16)
            >>> outer, inner = s[C].split(s[C].op.axis[0], factor=8)
            >>> print(loops(s, C))
            for (i.outer, 0, 2) {
              for (i.inner, 0, 8) {
                C[i.outer * 8 + i.inner] = B[i.outer * 8 + i.inner] * 2f
              }
            }

        After:
            >>> s[C].vectorize(inner)
            >>> print(loops(s, C))
            for (i.outer, 0, 2) {
              vectorized (i.inner, 0, 8) {
                C[i.outer * 8 + i.inner] = B[i.outer * 8 + i.inner] * 2f
              }
            }

        Raises:
            >>> s[C].vectorize(s[C].op.axis[0])
            Traceback (most recent call last):
            autotune.errors.ScheduleError: vectorize: i is no longer a loop (it was split or fused)
            stage C:
              serial i.outer in 0..2
                vectorized i.inner in 0..8
        """
        self.leaf("vectorize", var)
        if var.kind == "reduce":
            reduction = self.op.reduction if isinstance(self.op, ComputeOp) else None
            if reduction is None or not shipped_name(reduction.reducer):
                raise self.refuse("vectorize", f"{var.name} reduces by a custom reducer; use rfactor", var)
        self.annotate("vectorize", var, "vectorized")

    @primitive
    def unroll(self, var: IterVar, *, when: bool | KnobValue = True) -> None:
        """Repeat the body of a loop instead of looping.

        TVM and Halide: unroll. Exo: unroll_loop. Local buffers that only unrolled and vectorized loops index become
        registers.

        Args:
            var: a loop of the stage, with few iterations.
            when: False, or a knob value that is, leaves the step out.

        Before:
            >>> from autotune.lower.examples import chain, loops
            >>> s, A, B, C = chain(4)
            >>> print(loops(s, C))
            for (i, 0, 4) {
              C[i] = B[i] * 2f
            }

        After:
            >>> s[C].unroll(s[C].op.axis[0])
            >>> print(loops(s, C))
            unrolled (i, 0, 4) {
              C[i] = B[i] * 2f
            }

        Raises:
            >>> s[C].vectorize(s[C].op.axis[0])
            Traceback (most recent call last):
            autotune.errors.ScheduleError: vectorize: i is unrolled already
            stage C:
              unrolled i in 0..4    <---
        """
        self.annotate("unroll", var, "unrolled")

    @primitive
    def parallel(self, var: IterVar, *, when: bool | KnobValue = True) -> None:
        """Share the iterations of a loop among the workers.

        TVM and Halide: parallel. OpenMP: parallel for.

        Args:
            var: a data loop of a stage at the root, with no repeating loop around it: workers get ranges of it.
            when: False, or a knob value that is, leaves the step out.

        Before:
            >>> from autotune.lower.examples import grid, loops
            >>> s, A, B = grid(8, 12)
            >>> print(loops(s, B))
            for (i, 0, 8) {
              for (j, 0, 12) {
                B[i, j] = A[i, j] * 2f
              }
            }

        After:
            >>> s[B].parallel(s[B].op.axis[0])
            >>> print(loops(s, B))
            parallel (i, 0, 8) {
              for (j, 0, 12) {
                B[i, j] = A[i, j] * 2f
              }
            }

        Raises:
            >>> s[B].parallel(s[B].op.axis[1])
            Traceback (most recent call last):
            autotune.errors.ScheduleError: parallel: j is parallel and must stay the outermost loop, but i is around it; reorder it outwards or fuse them first
            stage B:
              parallel i in 0..8
                parallel j in 0..12    <---
        """
        self.leaf("parallel", var)
        if var.kind == "reduce":
            raise self.refuse(
                "parallel",
                f"{var.name} is a reduction loop: its iterations write one element; use rfactor",
                var,
            )
        self.annotate("parallel", var, "parallel")

    @primitive
    def pragma(self, var: IterVar, pragma_type: str, pragma_value: Any = None) -> None:
        """Attach a hint to a loop.

        TVM: pragma. A hint never changes what is computed.

        Args:
            var: a loop of the stage.
            pragma_type: "vectorize", "unroll" or "parallel", which are those primitives; "nontemporal" (stores pass
                by the caches); or one of TVM's that are kept and have no effect: auto_unroll_max_step,
                auto_unroll_max_depth, unroll_explicit, unroll_and_jam, loop_partition_hint, parallel_launch_point,
                parallel_stride_pattern, parallel_barrier_when_finish.
            pragma_value: a number or a text.

        Before:
            >>> from autotune.lower.examples import chain, loops
            >>> s, A, B, C = chain(8)
            >>> s[C].pragmas
            {}

        After:
            >>> s[C].pragma(s[C].op.axis[0], "auto_unroll_max_step", 16)
            >>> s[C].pragmas
            {i: {'auto_unroll_max_step': 16}}

        Raises:
            >>> s[B].pragma(s[C].op.axis[0], "auto_unroll_max_step", 16)
            Traceback (most recent call last):
            autotune.errors.ScheduleError: pragma: i is not a loop of this stage
            stage B:
              serial i in 0..8
        """
        self.leaf("pragma", var)
        pragma_type = str(pragma_type)  # a text of NumPy prints otherwise
        if pragma_type in PRAGMA_KINDS:
            getattr(self, pragma_type)(var)
            return
        if pragma_type not in PRAGMA_HINTS:
            known = listing(pragma_type, (*PRAGMA_KINDS, *PRAGMA_HINTS))
            raise self.refuse("pragma", f"no hint is called {pragma_type!r}; known: {known}", var)
        self.pragmas.setdefault(var, {})[pragma_type] = pragma_value


__all__ = ["KindPrimitives"]
