"""Primitives that change shapes and layouts; they are called on the schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.schedule import padding, rewrite
from autotune.schedule.index_map import IndexMap, IndexMapLike
from autotune.schedule.primitives.dataflow import DataflowPrimitives
from autotune.schedule.trace import primitive
from autotune.te.expr import IterVar
from autotune.te.tensor import ComputeOp, Operation, PlaceholderOp, Tensor

if TYPE_CHECKING:
    from autotune.schedule.stage import Stage


class LayoutPrimitives(DataflowPrimitives):
    """transform_layout, pad_to_multiple."""

    @primitive
    def transform_layout(self, tensor: Tensor, index_map: IndexMapLike) -> Tensor:
        """Store a tensor in another layout: element ``i`` goes to ``index_map(i)``.

        TVM: transform_layout. Layout packing. Readers are rewritten; dimensions that the map does not divide are
        padded with zeros. On a copy of a constant input (made by cache_read) the copy runs at compile time. The caller
        gives an input, and gets an output, in the new shape; what an input has for padding is not read.

        Args:
            tensor: an input, or a tensor without loop steps; one that is reduced takes no padding.
            index_map: a function of the indices, or the texts of the new indices over ``i0``, ``i1``, ...; each
                index must appear as itself, or as quotient and remainder by one number.

        Returns:
            The tensor in its new shape.

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
            >>> packed = s.transform_layout(B, lambda i: [i // 4, i % 4])
            >>> print(loops(s))
            for (ax0, 0, 2) {
              for (ax1, 0, 4) {
                B[ax0, ax1] = A[ax1 + ax0 * 4] + 1f
              }
            }
            for (i, 0, 8) {
              C[i] = B[i // 4, i % 4] * 2f
            }

        Raises:
            >>> outer, inner = s[C].split(s[C].op.axis[0], factor=4)
            >>> s.transform_layout(C, lambda i: [i // 4, i % 4])
            Traceback (most recent call last):
            autotune.errors.ScheduleError: transform_layout: C has loop steps already; call transform_layout first
            stage C:
              serial i.outer in 0..2
                serial i.inner in 0..4
        """
        mapping = IndexMap.of(index_map)
        if isinstance(self[tensor].op, PlaceholderOp):
            return self._input_in_layout(self[tensor], mapping)
        stage = self.untouched("transform_layout", tensor)
        assert isinstance(stage.op, ComputeOp)
        if stage.op.reduction is not None and mapping.pads(stage.op.shape):
            raise stage.refuse(
                "transform_layout",
                f"{stage.op.name} is a reduction, which has no padding; cache_read it first",
            )
        if len(stage.op.body) > 1:
            raise stage.refuse(
                "transform_layout", f"{stage.op.name} has several outputs; cache_read one first"
            )
        new = rewrite.transformed(stage.op, mapping)
        self._replace(stage, new, mapping)
        stage.take_loops(new)
        return new.output(0)

    def _input_in_layout(self, stage: Stage, mapping: IndexMap) -> Tensor:
        op = stage.op
        new = PlaceholderOp(op.name, tuple(mapping.new_extents(op.shape)), op.dtypes[0])
        self._replace(stage, new, mapping)
        return new.output(0)

    def _replace(self, stage: Stage, new: Operation, mapping: IndexMap) -> None:
        """Let a stage be what is stored in another layout, and its readers find it there."""
        readers = self.readers_of(stage)
        self.replace_op(stage, new)
        for reader in readers:
            # What is outside of the tensor as it was may be inside of its padding.
            self.replace_op(reader, rewrite.settled(reader.op))
            self.redirect(reader, stage, 0, lambda i: new.output(0)(*mapping.apply(i)))

    @primitive
    def pad_to_multiple(self, tensor: Tensor, axis: IterVar, factor: int) -> Tensor:
        """Compute a stage over a domain padded to a multiple, so that splits divide and need no remainder.

        TVM TIR: pad_einsum. What the stage reads along the axis is copied and padded with zeros (inline the copies
        to have conditions instead); a padded data axis is cropped by a copy at the end.

        Args:
            tensor: a stage without loop steps.
            axis: one of its axes. A reduction axis must belong to a sum of products that a zero makes vanish.
            factor: a positive integer; when the extent is a multiple already, nothing changes.

        Returns:
            The tensor to schedule on: ``<tensor>.pad`` for a data axis, the tensor itself for a reduction axis.

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
            >>> CP = s.pad_to_multiple(C, s[C].op.reduce_axis[0], 4)
            >>> print(loops(s))
            for (ax0, 0, 4) {
              for (ax1, 0, 6) {
                A.pad[ax0, ax1] = A[ax0, ax1]
              }
              for (ax1, 0, 2) {
                A.pad[ax0, ax1 + 6] = 0f
              }
            }
            for (i, 0, 4) {
              allocate C.acc: float32[1]
              C.acc[0] = 0f
              for (k, 0, 8) {
                C.acc[0] = C.acc[0] + A.pad[i, k]
              }
              C[i] = C.acc[0]
            }

        Raises:
            >>> s.pad_to_multiple(C, s[C].op.axis[0], 0)
            Traceback (most recent call last):
            autotune.errors.ScheduleError: pad_to_multiple: the factor must be a positive integer, got 0
            stage C:
              serial i in 0..4
                serial k in 0..8 (reduce)
        """
        step = "pad_to_multiple"
        stage = self.untouched(step, tensor)
        op = stage.computed(step)
        if factor < 1:
            raise stage.refuse(step, f"the factor must be a positive integer, got {factor!r}")
        if op.epilogue is not None:
            raise stage.refuse(step, f"{op.name} has an epilogue; call {step} first")
        axes = op.axis + op.reduce_axis
        if axis not in axes:
            legal = ", ".join(a.name for a in axes)
            raise stage.refuse(step, f"{axis.name} is not an axis of {op.name}; legal: {legal}")
        extent = -(-axis.extent // factor) * factor
        if extent == axis.extent:
            return Tensor(stage.op, tensor.value_index)
        padded = padding.padded(stage, axis, extent, self.unique_name)
        for source, copy in padded.copies:
            self.add(copy, after=self[source])
        if axis.kind == "reduce":
            self.replace_op(stage, padded.op)
            stage.take_loops(padded.op)
            return padded.op.output(tensor.value_index)
        self.add(padded.op, before=stage)
        crop = padding.crop(op, padded.op)
        self.replace_op(stage, crop)
        stage.take_loops(crop)
        return padded.op.output(tensor.value_index)


__all__ = ["LayoutPrimitives"]
