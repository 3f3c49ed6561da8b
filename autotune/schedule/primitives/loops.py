"""Primitives that change the loops of a stage."""

from __future__ import annotations

from autotune.schedule.knob_value import (
    KnobValue,
    ceil_div,
    concrete,
    expression_of,
    extent_of,
    maximum,
    minimum,
)
from autotune.schedule.relations import TAILS, Fuse, Split
from autotune.schedule.state import StageState
from autotune.schedule.trace import primitive
from autotune.te.expr import IterVar


class LoopPrimitives(StageState):
    """split, fuse, reorder, tile, peel."""

    @primitive
    def split(
        self,
        parent: IterVar,
        factor: int | KnobValue | None = None,
        nparts: int | KnobValue | None = None,
        tail: str = "peel",
    ) -> tuple[IterVar, IterVar]:
        """Split a loop in two: ``parent = outer * factor + inner``.

        TVM and Halide: split. Exo: divide_loop. Strip-mining.

        Args:
            parent: a loop of the stage.
            factor: extent of the inner loop, at least 1; or
            nparts: extent of the outer loop, at least 1. Give exactly one of them.
            tail: what happens when it does not divide: "peel" (narrower code for the rest), "overlap" (the last
                tile starts early and computes some elements again; data loops only) or "guard" (a condition).

        Returns:
            ``(outer, inner)``.

        Before:
            >>> from autotune.lower.examples import chain, loops
            >>> s, A, B, C = chain(10)
            >>> print(loops(s, C))
            for (i, 0, 10) {
              C[i] = B[i] * 2f
            }

        After:
            >>> outer, inner = s[C].split(s[C].op.axis[0], factor=4)
            >>> print(loops(s, C))
            for (i.outer, 0, 2) {
              for (i.inner, 0, 4) {
                C[i.outer * 4 + i.inner] = B[i.outer * 4 + i.inner] * 2f
              }
            }
            for (i.inner, 0, 2) {
              C[i.inner + 8] = B[i.inner + 8] * 2f
            }

        Raises:
            >>> s[C].split(inner, factor=0)
            Traceback (most recent call last):
            autotune.errors.ScheduleError: split: the factor must be a positive integer, got 0
            stage C:
              serial i.outer in 0..3
                serial i.inner in 0..4    <---
        """
        at = self.leaf("split", parent)
        if (factor is None) == (nparts is None):
            raise self.refuse("split", "give exactly one of factor and nparts", parent)
        size = factor if factor is not None else nparts
        number = concrete(size)
        if number < 1:
            raise self.refuse("split", f"the factor must be a positive integer, got {number!r}", parent)
        if tail not in TAILS:
            raise self.refuse("split", f"tail must be one of {', '.join(TAILS)}, got {tail!r}", parent)
        if tail == "overlap" and parent.kind == "reduce":
            raise self.refuse(
                "split", "tail='overlap' would add some elements of a reduction twice; use 'peel'", parent
            )
        self.forget(parent)
        count = maximum(extent_of(parent), 1)
        part = minimum(size, count)
        rest = ceil_div(count, part)
        outer_extent, inner_extent = (rest, part) if factor is not None else (part, rest)
        outer = self.fresh(parent.name + ".outer", outer_extent, parent.kind)
        inner = self.fresh(parent.name + ".inner", inner_extent, parent.kind)
        given = expression_of(size)
        self.relate(Split(parent, outer, inner, concrete(factor) or 0, concrete(nparts) or 0, tail, given))
        self.leaf_iter_vars[at : at + 1] = [outer, inner]
        self.all_iter_vars += [outer, inner]
        return outer, inner

    @primitive
    def fuse(self, *order: IterVar) -> IterVar:
        """Fuse adjacent loops, outermost first, into one loop.

        TVM and Halide: fuse. Exo: mult_loops. Loop collapsing.

        Args:
            order: loops of the stage, each directly inside the one before, all data or all reduction loops. None of a
                stage without data loops, which then gets one of a single iteration, outermost.

        Returns:
            The fused loop; its extent is the product.

        Before:
            >>> from autotune.lower.examples import matmul, loops
            >>> s, A, B, C = matmul(4, 6, 8)
            >>> print(loops(s, C))
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
            >>> i, j = s[C].op.axis
            >>> fused = s[C].fuse(i, j)
            >>> print(loops(s, C))
            for (i.j.fused, 0, 24) {
              let i = i.j.fused // 6
              let j = i.j.fused % 6
              allocate C.acc: float32[1, 1]
              C.acc[0, 0] = 0f
              for (k, 0, 8) {
                C.acc[0, 0] = C.acc[0, 0] + A[i, k] * B[k, j]
              }
              C[i, j] = C.acc[0, 0]
            }

        Raises:
            >>> s[C].fuse(fused, s[C].op.reduce_axis[0])
            Traceback (most recent call last):
            autotune.errors.ScheduleError: fuse: i.j.fused and k: one is a reduction loop
            stage C:
              serial i.j.fused in 0..24
                serial k in 0..8 (reduce)    <---
        """
        if not order:
            return self._only_loop()
        fused = order[0]
        self.leaf("fuse", fused)
        for inner in order[1:]:
            at = self.leaf("fuse", fused)
            if self.leaf("fuse", inner) != at + 1:
                raise self.refuse(
                    "fuse", f"{inner.name} is not directly inside {fused.name}; reorder them first", inner
                )
            if inner.kind != fused.kind:
                raise self.refuse("fuse", f"{fused.name} and {inner.name}: one is a reduction loop", inner)
            self.forget(fused)
            self.forget(inner)
            product = extent_of(fused) * extent_of(inner)
            new = self.fresh(f"{fused.name}.{inner.name}.fused", product, fused.kind)
            self.relate(Fuse(fused, inner, new))
            self.leaf_iter_vars[at : at + 2] = [new]
            self.all_iter_vars.append(new)
            fused = new
        return fused

    def _only_loop(self) -> IterVar:
        """Return a loop of one iteration for a stage without data loops."""
        if any(iv.kind == "data" for iv in self.leaf_iter_vars):
            raise self.refuse("fuse", "name at least one loop")
        single = self.fresh("singleton", 1, "data")
        self.leaf_iter_vars.insert(0, single)
        self.all_iter_vars.append(single)
        return single

    @primitive
    def reorder(self, *order: IterVar) -> None:
        """Put the named loops in this order, in the places that they occupy now.

        TVM and Halide: reorder. Exo: reorder_loops. Loop interchange.

        Any order of data and reduction loops is legal, as reducers are commutative (floating-point sums may round
        differently), as long as a parallel loop stays outermost and a decomposed reduction's start stays outside.

        Args:
            order: loops of the stage, outermost first, each once; other loops keep their places.

        Before:
            >>> from autotune.lower.examples import matmul, loops
            >>> s, A, B, C = matmul(4, 6, 8)
            >>> print(loops(s, C))
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
            >>> (i, j), (k,) = s[C].op.axis, s[C].op.reduce_axis
            >>> s[C].reorder(i, k, j)
            >>> print(loops(s, C))
            for (i, 0, 4) {
              for (j, 0, 6) {
                C[i, j] = 0f
              }
              for (k, 0, 8) {
                for (j, 0, 6) {
                  C[i, j] = C[i, j] + A[i, k] * B[k, j]
                }
              }
            }

        Raises:
            >>> s[C].parallel(i)
            >>> s[C].reorder(k, i)
            Traceback (most recent call last):
            autotune.errors.ScheduleError: reorder: i is parallel and must stay the outermost loop, but k is around it; reorder it outwards or fuse them first
            stage C:
              serial k in 0..8 (reduce)
                parallel i in 0..4    <---
                  serial j in 0..6
        """
        places = sorted(self.leaf("reorder", iv) for iv in order)
        if len(set(places)) != len(places):
            raise self.refuse("reorder", "a loop is named twice")
        for place, iv in zip(places, order, strict=True):
            self.leaf_iter_vars[place] = iv

    @primitive
    def tile(
        self,
        x_parent: IterVar,
        y_parent: IterVar,
        x_factor: int | KnobValue,
        y_factor: int | KnobValue,
        tail: str = "peel",
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split two loops and reorder them to tiles: two splits and a reorder in one step.

        TVM and Halide: tile. Loop blocking.

        Args:
            x_parent, y_parent: two loops of the stage.
            x_factor, y_factor: extents of a tile, at least 1.
            tail: as for ``split``, for both loops.

        Returns:
            ``(x_outer, y_outer, x_inner, y_inner)``, in their new order.

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
            >>> i, j = s[B].op.axis
            >>> io, jo, ii, ji = s[B].tile(i, j, 2, 4)
            >>> print(loops(s, B))
            for (i.outer, 0, 4) {
              for (j.outer, 0, 3) {
                for (i.inner, 0, 2) {
                  for (j.inner, 0, 4) {
                    B[i.outer * 2 + i.inner, j.outer * 4 + j.inner] = A[i.outer * 2 + i.inner, j.outer * 4 + j.inner] * 2f
                  }
                }
              }
            }

        Raises:
            >>> s[B].tile(i, j, 2, 4)
            Traceback (most recent call last):
            autotune.errors.ScheduleError: tile: i is no longer a loop (it was split or fused)
            stage B:
              serial i.outer in 0..4
                serial j.outer in 0..3
                  serial i.inner in 0..2
                    serial j.inner in 0..4
        """
        x_outer, x_inner = self.split(x_parent, factor=x_factor, tail=tail)
        y_outer, y_inner = self.split(y_parent, factor=y_factor, tail=tail)
        self.reorder(x_outer, y_outer, x_inner, y_inner)
        return x_outer, y_outer, x_inner, y_inner

    @primitive
    def peel(self, var: IterVar, first: int = 0, last: int = 0) -> None:
        """Give the first and the last iterations of a loop code of their own.

        Loop peeling; TVM does it implicitly (LoopPartition). Exo: cut_loop. A condition that only border iterations
        need, such as that of padding, is then decided outside of the main loop (lowering cuts short serial loops at
        such conditions by itself). For the rest of a split that does not divide use ``tail="peel"`` instead.

        Args:
            var: a serial or unrolled loop of the stage.
            first, last: how many iterations to peel off at either end; together at least 1, at most the extent.

        Before:
            >>> from autotune.lower.examples import chain, loops
            >>> s, A, B, C = chain(8)
            >>> print(loops(s, B))
            for (i, 0, 8) {
              B[i] = A[i] + 1f
            }

        After:
            >>> s[B].peel(s[B].op.axis[0], first=1, last=1)
            >>> print(loops(s, B))
            B[0] = A[0] + 1f
            for (i, 0, 6) {
              B[i + 1] = A[i + 1] + 1f
            }
            B[7] = A[7] + 1f

        Raises:
            >>> s[B].peel(s[B].op.axis[0], first=9)
            Traceback (most recent call last):
            autotune.errors.ScheduleError: peel: first + last must be in 1..8, the extent, got 9
            stage B:
              serial i in 0..8    <---
        """
        self.leaf("peel", var)
        for number in (first, last):
            if number < 0:
                raise self.refuse(
                    "peel", f"first and last must be integers of at least 0, got {number!r}", var
                )
        if not 1 <= first + last <= var.extent:
            raise self.refuse(
                "peel", f"first + last must be in 1..{var.extent}, the extent, got {first + last}", var
            )
        if self.kind_of(var) not in ("serial", "unrolled"):
            raise self.refuse(
                "peel", f"{var.name} is {self.kind_of(var)}; only serial and unrolled loops are peeled", var
            )
        self.peeled[var] = (int(first), int(last))


__all__ = ["LoopPrimitives"]
