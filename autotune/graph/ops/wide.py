"""Operators that reduce: on float16 and bfloat16 they work in float32 and round once, at the end.

``define_in_float32(...)`` makes a definition with halves read as float32 wherever it reads them, in the reference and
in the tensor expression, and with a last stage "<out>" that narrows "<out>.wide". Other dtypes are as before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from autotune import te
from autotune.graph.ir import Array, Attrs
from autotune.graph.ops.common import Expr, accumulated_in, narrowed
from autotune.graph.ops.definition import Arrays, OpDef, Tensors
from autotune.graph.ops.registry import P, registering


@dataclass(frozen=True)
class _Widened:
    """A tensor whose elements are read in the dtype of their sums."""

    tensor: te.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def ndim(self) -> int:
        return self.tensor.ndim

    @property
    def dtype(self) -> str:
        return accumulated_in(self.tensor.dtype)

    def __call__(self, *index: Expr) -> te.Expr:
        return te.cast(self.tensor(*index), self.dtype)

    def __getitem__(self, index: Expr) -> te.Expr:
        return te.cast(self.tensor[index], self.dtype)


def _widened(tensor: te.Tensor | None) -> te.Tensor | None:
    if tensor is None or accumulated_in(tensor.dtype) == tensor.dtype:
        return tensor
    return cast(te.Tensor, _Widened(tensor))  # operators read tensors and ask for shapes, no more


def _wide_array(array: Array | None) -> Array | None:
    return None if array is None else array.astype(accumulated_in(array.dtype.name), copy=False)


def _in_float32(op: OpDef) -> OpDef:
    """Return the operator with its arithmetic on halves in float32; results are of the dtype of its first input."""

    rule = op.compute_rule
    assert rule is not None

    def reference(arrays: Arrays, attrs: Attrs) -> list[Array]:
        first = arrays[0]
        assert first is not None
        found = op.reference_rule([_wide_array(a) for a in arrays], attrs)
        return (
            found
            if accumulated_in(first.dtype.name) == first.dtype
            else [a.astype(first.dtype) for a in found]
        )

    def compute(tensors: Tensors, attrs: Attrs, names: Sequence[str]) -> list[te.Tensor]:
        first = tensors[0]
        assert first is not None
        if accumulated_in(first.dtype) == first.dtype:
            return rule(tensors, attrs, names)
        found = rule([_widened(t) for t in tensors], attrs, [f"{name}.wide" for name in names])
        return [narrowed(t, first.dtype, name) for t, name in zip(found, names, strict=True)]

    return replace(op, reference_rule=reference, compute_rule=compute)


def _widening(make: Callable[P, OpDef]) -> Callable[P, OpDef]:
    return lambda *args, **facts: _in_float32(make(*args, **facts))


define_in_float32 = registering(_widening(OpDef))
"""As `define`, with arithmetic on halves in float32."""

__all__ = ["define_in_float32"]
