"""Primitives about memory: where values live, how they are laid out, what is fetched ahead."""

from __future__ import annotations

from typing import Any

from autotune.errors import ScheduleError
from autotune.schedule.knob_value import KnobValue
from autotune.schedule.legality import is_inside
from autotune.schedule.state import SCOPES, StageState
from autotune.schedule.trace import primitive
from autotune.te.expr import IterVar
from autotune.te.tensor import Tensor


class StoragePrimitives(StageState):
    """set_scope, storage_align, double_buffer, prefetch, software_pipeline."""

    @primitive
    def set_scope(self, scope: str) -> None:
        """Say where the values of the stage live.

        TVM: set_scope. Halide: store_in.

        Args:
            scope: "global" or "local" (a stage computed inside a loop is in registers or on the stack with both), or
                "shared" and "warp" on GPUs. Stages at the root are in memory whatever the scope.

        Before:
            >>> from autotune.lower.examples import chain, loops
            >>> s, A, B, C = chain(8)
            >>> s[B].scope
            'global'

        After:
            >>> s[B].set_scope("local")
            >>> s[B].scope
            'local'

        Raises:
            >>> s[B].set_scope("register")
            Traceback (most recent call last):
            autotune.errors.ScheduleError: set_scope: scope must be one of global, local, shared, warp, got 'register'
        """
        if scope not in SCOPES:
            raise ScheduleError(f"set_scope: scope must be one of {', '.join(SCOPES)}, got {scope!r}")
        self.scope = str(scope)

    @primitive
    def storage_align(self, axis: IterVar, factor: int, offset: int = 0) -> None:
        """Pad rows so that neighbours along a dimension are ``factor * n + offset`` elements apart.

        TVM: storage_align. Against bank conflicts of shared memory and cache sets that rows compete for.

        Args:
            axis: a data axis of the stage's operation, not the last one: the stride of its dimension is padded.
            factor: a positive integer, in elements.
            offset: in ``0..factor-1``.

        The buffers of inputs and outputs belong to the caller and are not padded.

        Before:
            >>> from autotune.lower.examples import transposed, loops
            >>> s, A, B, C = transposed(4, 8)
            >>> print(loops(s))
            for (i, 0, 4) {
              for (j, 0, 8) {
                B[i, j] = A[i, j] + 1f
              }
            }
            for (i, 0, 8) {
              for (j, 0, 4) {
                C[i, j] = B[j, i]
              }
            }

        After:
            >>> s[B].storage_align(s[B].op.axis[0], factor=8, offset=1)
            >>> print(loops(s))
            workspace B: float32[4, 8] strides [9, 1]
            for (i, 0, 4) {
              for (j, 0, 8) {
                B[i, j] = A[i, j] + 1f
              }
            }
            for (i, 0, 8) {
              for (j, 0, 4) {
                C[i, j] = B[j, i]
              }
            }

        Raises:
            >>> s[B].storage_align(s[B].op.axis[1], factor=8, offset=1)
            Traceback (most recent call last):
            autotune.errors.ScheduleError: storage_align: j is the last dimension, whose elements stay neighbours; name an outer one
            stage B:
              serial i in 0..4
                serial j in 0..8    <---
        """
        op = self.computed("storage_align")
        if self.is_output:
            raise self.refuse("storage_align", f"{op.name} is an output: its layout is the caller's")
        if axis not in op.axis:
            legal = ", ".join(a.name for a in op.axis[:-1]) or "none"
            raise self.refuse(
                "storage_align",
                f"{axis.name} is not a data axis of {op.name}; legal: {legal}",
            )
        number = op.axis.index(axis)
        if number == len(op.axis) - 1:
            raise self.refuse(
                "storage_align",
                f"{axis.name} is the last dimension, whose elements stay neighbours; name an outer one",
                axis,
            )
        if factor < 1 or not 0 <= offset < factor:
            raise self.refuse(
                "storage_align",
                f"factor must be positive and offset in 0..factor-1, got {factor!r} and {offset!r}",
                axis,
            )
        self.alignments[number] = (int(factor), int(offset))

    @primitive
    def double_buffer(self) -> None:
        """Compute the stage an iteration ahead of its readers, into one of two copies of its buffer.

        TVM: double_buffer.

        The first tile is computed before the loop that the stage is computed at; each iteration computes the tile of the
        next one before it uses its own. Threads that fill shared memory together meet once an iteration, not twice. On
        GPUs of NVIDIA copies of whole words to shared memory are asynchronous (``cp.async``). Cores of a CPU look ahead
        by themselves, so that little is gained there. To have more tiles on their way, or all stages of a loop, use
        ``software_pipeline``. A loop that runs once has nothing to compute ahead.

        Before:
            >>> from autotune.lower.examples import blur, loops
            >>> s, A, B, C = blur(12)
            >>> outer, inner = s[C].split(s[C].op.axis[0], factor=4)
            >>> s[B].compute_at(s[C], outer)
            >>> print(loops(s))
            for (i.outer, 0, 3) {
              allocate B: float32[6]
              for (i, 0, 6) {
                B[i] = A[i.outer * 4 + i] * 2f
              }
              for (i.inner, 0, 4) {
                C[i.outer * 4 + i.inner] = B[i.inner] + B[i.inner + 1] + B[i.inner + 2]
              }
            }

        After:
            >>> s[B].double_buffer()
            >>> print(loops(s))
            allocate B: float32[2, 6] strides [16, 1]
            for (i, 0, 6) {
              B[0, i] = A[i] * 2f
            }
            for (i.outer, 0, 2) {
              for (i, 0, 6) {
                B[(i.outer + 1) % 2, i] = A[(i.outer + 1) * 4 + i] * 2f
              }
              for (i.inner, 0, 4) {
                C[i.outer * 4 + i.inner] = B[i.outer % 2, i.inner] + B[i.outer % 2, i.inner + 1] + B[i.outer % 2, i.inner + 2]
              }
            }
            for (i.inner, 0, 4) {
              C[8 + i.inner] = B[0, i.inner] + B[0, i.inner + 1] + B[0, i.inner + 2]
            }

        Raises:
            >>> s[C].double_buffer()
            Traceback (most recent call last):
            autotune.errors.ScheduleError: double_buffer: C is not computed inside a loop of another stage; compute_at comes first
            stage C:
              serial i.outer in 0..3
                serial i.inner in 0..4
        """
        op = self.computed("double_buffer")
        if self.attach_type != "scope":
            raise self.refuse(
                "double_buffer",
                f"{op.name} is not computed inside a loop of another stage; compute_at comes first",
            )
        self.double_buffered = True

    @primitive
    def prefetch(
        self, tensor: Tensor, var: IterVar, offset: int = 1, level: int = 1, *, when: bool | KnobValue = True
    ) -> None:
        """Fetch into the cache what a later iteration of a loop reads of a tensor.

        TVM and Halide: prefetch.

        Emits one prefetch instruction a cache line (64 bytes) of the region that iteration ``var + offset`` reads;
        addresses past the end do no harm. Rows that an index in memory chooses are looked up ahead too, where the
        iteration reads one of them.

        Args:
            tensor: a tensor in memory that this stage reads: itself, through inlined stages, or through those
                computed at its loops from ``var`` inwards.
            var: a loop of the stage, not vectorized.
            offset: how many iterations ahead, at least 1.
            level: 1 fetches into all caches, 2 passes over the first, which what is fetched far ahead would fill.
            when: False, or a knob value that is, leaves the step out.

        Before:
            >>> from autotune.lower.examples import grid, loops
            >>> s, A, B = grid(4, 64)
            >>> print(loops(s, B))
            for (i, 0, 4) {
              for (j, 0, 64) {
                B[i, j] = A[i, j] * 2f
              }
            }

        After:
            >>> s[B].prefetch(A, s[B].op.axis[0], 1)
            >>> print(loops(s, B))
            for (i, 0, 4) {
              unrolled (p1, 0, 4) {
                prefetch A[i + 1, p1 * 16]
              }
              for (j, 0, 64) {
                B[i, j] = A[i, j] * 2f
              }
            }

        Raises:
            >>> s[B].prefetch(B, s[B].op.axis[0], 1)
            Traceback (most recent call last):
            autotune.errors.ScheduleError: prefetch: B does not read B; it reads: A
            stage B:
              serial i in 0..4    <---
                serial j in 0..64
        """
        op = self.computed("prefetch")
        self.leaf("prefetch", var)
        read = self._tensors_read(var)
        if all(self.schedule[t] is not self.schedule[tensor] for t in read):
            legal = ", ".join(t.name for t in read) or "none"
            raise self.refuse(
                "prefetch",
                f"{op.name} does not read {tensor.name}; it reads: {legal}",
                var,
            )
        if offset < 1:
            raise self.refuse("prefetch", f"offset must be a positive integer, got {offset!r}", var)
        if level not in (1, 2):
            raise self.refuse("prefetch", f"level must be 1 or 2, got {level!r}", var)
        if self.kind_of(var) == "vectorized":
            raise self.refuse("prefetch", f"{var.name} is vectorized; name a loop outside of it", var)
        self.prefetches.append((tensor, var, int(offset), level))

    def _tensors_read(self, var: IterVar) -> list[Tensor]:
        """Return the tensors that an iteration of a loop reads, itself and through stages inlined or
        computed in it, each once."""
        stage, found = self.schedule[self.op.name], dict[Tensor, None]()
        waiting = list(self.op.input_tensors)
        while waiting:
            tensor = waiting.pop(0)
            if tensor not in found:
                found[tensor] = None
                source = self.schedule[tensor]
                if source.attach_type == "inline" or is_inside(source, stage, var):
                    waiting += source.op.input_tensors
        return list(found)

    @primitive
    def software_pipeline(self, var: IterVar, stages: int = 2) -> None:
        """Compute the stages of a loop some iterations ahead of their readers, into as many copies of their buffers.

        TVM TIR: the annotation software_pipeline_stage. Halide: async.

        What ``double_buffer`` does for one stage and one iteration, this does for all stages that are computed at the
        loop, those that come later included, and for ``stages - 1`` iterations.

        Args:
            var: a serial or unrolled loop of the stage that another stage is computed at.
            stages: how many iterations are in flight, the one whose tile is used included: at least 2.

        Before:
            >>> from autotune.lower.examples import blur, loops
            >>> s, A, B, C = blur(12)
            >>> outer, inner = s[C].split(s[C].op.axis[0], factor=4)
            >>> s[B].compute_at(s[C], outer)
            >>> print(loops(s))
            for (i.outer, 0, 3) {
              allocate B: float32[6]
              for (i, 0, 6) {
                B[i] = A[i.outer * 4 + i] * 2f
              }
              for (i.inner, 0, 4) {
                C[i.outer * 4 + i.inner] = B[i.inner] + B[i.inner + 1] + B[i.inner + 2]
              }
            }

        After:
            >>> s[C].software_pipeline(outer, 2)
            >>> print(loops(s))
            allocate B: float32[2, 6] strides [16, 1]
            for (i, 0, 6) {
              B[0, i] = A[i] * 2f
            }
            for (i.outer, 0, 2) {
              for (i, 0, 6) {
                B[(i.outer + 1) % 2, i] = A[(i.outer + 1) * 4 + i] * 2f
              }
              for (i.inner, 0, 4) {
                C[i.outer * 4 + i.inner] = B[i.outer % 2, i.inner] + B[i.outer % 2, i.inner + 1] + B[i.outer % 2, i.inner + 2]
              }
            }
            for (i.inner, 0, 4) {
              C[8 + i.inner] = B[0, i.inner] + B[0, i.inner + 1] + B[0, i.inner + 2]
            }

        Raises:
            >>> s[C].software_pipeline(inner, 2)
            Traceback (most recent call last):
            autotune.errors.ScheduleError: software_pipeline: no stage is computed at i.inner; compute_at comes first
            stage C:
              serial i.outer in 0..3
                serial i.inner in 0..4    <---
        """
        self.leaf("software_pipeline", var)
        if stages < 2:
            raise self.refuse(
                "software_pipeline", f"stages must be an integer of at least 2, got {stages!r}", var
            )
        inside: list[Any] = [
            stage for stage in self.schedule.stages if stage.attach_stage is self and stage.attach_ivar is var
        ]
        if not inside:
            raise self.refuse(
                "software_pipeline", f"no stage is computed at {var.name}; compute_at comes first", var
            )
        self.pipelines[var] = int(stages)


__all__ = ["StoragePrimitives"]
