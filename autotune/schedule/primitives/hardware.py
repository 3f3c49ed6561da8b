"""Primitives that hand loops to hardware: thread axes and intrinsics."""

from __future__ import annotations

import re

from autotune.schedule.match import difference, paired
from autotune.schedule.primitives.kinds import KindPrimitives
from autotune.schedule.trace import primitive
from autotune.te.expr import IterVar
from autotune.te.intrinsic import TensorIntrin

THREAD_TAG = re.compile(r"(blockIdx|threadIdx)\.[xyz]|vthread(\.[xyz])?")
"""Thread axes that a loop can be bound to."""


class HardwarePrimitives(KindPrimitives):
    """bind, tensorize."""

    @primitive
    def bind(self, ivar: IterVar, thread_ivar: IterVar) -> None:
        """Bind a loop to a GPU thread axis: its iterations are the threads (or blocks) of that axis.

        TVM: bind. Halide: gpu_blocks, gpu_threads.

        Iterations of "vthread" are virtual threads: parts of one thread's work, statement by statement between barriers.
        A stage in scope "shared" that is computed inside of thread loops is loaded by all threads of the block together,
        between barriers. The iterations of a reduction loop that is bound to threadIdx are threads that reduce
        together: each folds its part, a tree in shared memory folds the parts, and the first thread stores the
        result. Bound to blockIdx or vthread, a reduction loop is serial. The interpreter runs all this as a GPU would; a
        CPU runs the threads of a block one after another from barrier to barrier.

        Args:
            ivar: a loop of the stage.
            thread_ivar: ``te.thread_axis("blockIdx.x")``; a tag of blockIdx or threadIdx with .x, .y, .z, or vthread.

        Before:
            >>> from autotune import te
            >>> from autotune.lower.examples import chain, loops
            >>> s, A, B, C = chain(64)
            >>> outer, inner = s[C].split(s[C].op.axis[0], factor=16)
            >>> print(loops(s, C))
            for (i.outer, 0, 4) {
              for (i.inner, 0, 16) {
                C[i.outer * 16 + i.inner] = B[i.outer * 16 + i.inner] * 2f
              }
            }

        After:
            >>> s[C].bind(outer, te.thread_axis("blockIdx.x"))
            >>> s[C].bind(inner, te.thread_axis((0, 16), "threadIdx.x"))
            >>> print(loops(s, C))
            blockIdx.x (i.outer, 0, 4) {
              threadIdx.x (i.inner, 0, 16) {
                C[i.outer * 16 + i.inner] = B[i.outer * 16 + i.inner] * 2f
              }
            }

        Raises:
            >>> s[B].bind(s[B].op.axis[0], te.thread_axis("lane"))
            Traceback (most recent call last):
            autotune.errors.ScheduleError: bind: no thread axis is called 'lane'; use blockIdx or threadIdx with .x, .y or .z, or vthread
            stage B:
              serial i in 0..64    <---
        """
        self.leaf("bind", ivar)
        if thread_ivar.kind != "thread":
            raise self.refuse("bind", f"expected te.thread_axis(...), got {thread_ivar!r}", ivar)
        tag = thread_ivar.tag
        if not THREAD_TAG.fullmatch(tag):
            raise self.refuse(
                "bind",
                f"no thread axis is called {tag!r}; use blockIdx or threadIdx with .x, .y or .z, or vthread",
                ivar,
            )
        if thread_ivar.extent not in (-1, ivar.extent):
            raise self.refuse(
                "bind", f"{ivar.name} has extent {ivar.extent}, the thread axis {thread_ivar.extent}", ivar
            )
        other = next((iv for iv, kind in self.kinds.items() if kind == tag and iv is not ivar), None)
        if other is not None and not tag.startswith("vthread"):
            raise self.refuse("bind", f"{other.name} is bound to {tag} already", other)
        self.annotate("bind", ivar, tag)

    @primitive
    def tensorize(self, var: IterVar, tensor_intrin: TensorIntrin) -> None:
        """Replace the loops from ``var`` inwards by a declared intrinsic that computes the same.

        TVM: tensorize. Exo: replace.

        The loops must be what the intrinsic's pattern computes: the same kinds and extents, the same expression,
        operands that move along the same dimensions. They then run as the intrinsic declares.

        Args:
            var: a loop of the stage; it and all loops inside are replaced.
            tensor_intrin: from ``te.decl_tensor_intrin``.

        Before:
            >>> from autotune import te
            >>> from autotune.lower.examples import matmul, loops
            >>> s, A, B, C = matmul(4, 16, 8)
            >>> (i, j), (k,) = s[C].op.axis, s[C].op.reduce_axis
            >>> jo, ji = s[C].split(j, factor=8)
            >>> ko, ki = s[C].split(k, factor=4)
            >>> s[C].reorder(i, jo, ko, ji, ki)
            >>> print(loops(s, C))
            for (i, 0, 4) {
              for (j.outer, 0, 2) {
                for (j.inner, 0, 8) {
                  C[i, j.outer * 8 + j.inner] = 0f
                }
                for (k.outer, 0, 2) {
                  for (j.inner, 0, 8) {
                    allocate C.acc: float32[1, 1]
                    C.acc[0, 0] = C[i, j.outer * 8 + j.inner]
                    for (k.inner, 0, 4) {
                      C.acc[0, 0] = C.acc[0, 0] + A[i, k.outer * 4 + k.inner] * B[k.outer * 4 + k.inner, j.outer * 8 + j.inner]
                    }
                    C[i, j.outer * 8 + j.inner] = C.acc[0, 0]
                  }
                }
              }
            }

        After:
            >>> a, b = te.placeholder((4,), name="a"), te.placeholder((4, 8), name="b")
            >>> r = te.reduce_axis((0, 4), name="r")
            >>> row = te.compute((8,), lambda l: te.sum(a[r] * b[r, l], axis=r), name="row_4x8")
            >>> row_4x8 = te.decl_tensor_intrin(row.op, kinds={"l": "vectorized", "r": "unrolled"})
            >>> s[C].tensorize(ji, row_4x8)
            >>> print(loops(s, C))
            for (i, 0, 4) {
              for (j.outer, 0, 2) {
                allocate C.acc: float32[1, 8]
                vectorized (j.inner, 0, 8) {
                  C.acc[0, j.inner] = 0f
                }
                for (k.outer, 0, 2) {
                  row_4x8(C.acc[0, 0], A[i, k.outer * 4], B[k.outer * 4, j.outer * 8])
                }
                vectorized (j.inner, 0, 8) {
                  C[i, j.outer * 8 + j.inner] = C.acc[0, j.inner]
                }
              }
            }

        Raises:
            >>> s, A, B, C = matmul(4, 16, 8)
            >>> s[C].tensorize(s[C].op.axis[1], row_4x8)
            Traceback (most recent call last):
            autotune.errors.ScheduleError: tensorize: the loops are not row_4x8: loop j (data, extent 16) has no counterpart among the pattern's (l: data 8, r: reduce 4)
            stage C:
              serial i in 0..4
                serial j in 0..16    <---
                  serial k in 0..8 (reduce)
        """
        self.leaf("tensorize", var)
        self.tensorized[var] = tensor_intrin
        reason = difference(self, var)  # type: ignore[arg-type]  # a stage, of which this is a part
        if reason:
            raise self.refuse("tensorize", f"the loops are not {tensor_intrin.name}: {reason}", var)
        for iv in self.leaf_iter_vars[self.leaf_iter_vars.index(var) :]:
            if self.kind_of(iv) != "serial":
                raise self.refuse(
                    "tensorize", f"{iv.name} is {self.kind_of(iv)}; the intrinsic says how its loops run", iv
                )
        for iv, axis in paired(self, var).items():  # type: ignore[arg-type]
            if axis.name in tensor_intrin.kinds:
                self.kinds[iv] = tensor_intrin.kinds[axis.name]


__all__ = ["THREAD_TAG", "HardwarePrimitives"]
