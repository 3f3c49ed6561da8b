"""Tensor intrinsics: a small computation under a name, and how its loops run when a schedule calls it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.errors import ScheduleError
from autotune.te.tensor import ComputeOp, Operation, Tensor

KINDS = ("serial", "unrolled", "vectorized")

INTRINSICS: dict[str, TensorIntrin] = {}
"""Declared intrinsics by name; traces refer to them."""


class TensorIntrin:
    """A declared intrinsic: ``op`` is the pattern, ``kinds`` how each of its loops runs in the replacement."""

    def __init__(self, name: str, op: ComputeOp, kinds: Mapping[str, str]) -> None:
        self.name = name
        self.op = op
        self.kinds = dict(kinds)

    def __repr__(self) -> str:
        return f"TensorIntrin({self.name})"


def decl_tensor_intrin(
    op: Operation | Tensor, kinds: Mapping[str, str] | None = None, name: str = ""
) -> TensorIntrin:
    """Declare an intrinsic for ``tensorize`` (TVM's ``te.decl_tensor_intrin``).

    ``op`` is the pattern: one operation over placeholders. TVM takes a function that emits IR here; ours is
    declarative: ``kinds`` says for each loop of the pattern whether the replacement runs it "serial", "unrolled"
    or "vectorized" (serial by default), so that every target can emit it and the interpreter can run it. The name
    defaults to that of the operation; declaring a name again replaces it. Raises TypeError for a pattern that is
    not a compute over placeholders, ValueError for an unknown loop or kind.

    >>> from autotune import te
    >>> a, b = te.placeholder((4,), name="a"), te.placeholder((4, 8), name="b")
    >>> k = te.reduce_axis((0, 4), name="k")
    >>> row = te.compute((8,), lambda j: te.sum(a[k] * b[k, j], axis=k), name="row")
    >>> te.decl_tensor_intrin(row.op, kinds={"j": "vectorized", "k": "unrolled"}, name="row_4x8")
    TensorIntrin(row_4x8)
    """
    pattern: Any = op.op if isinstance(op, Tensor) else op
    if not isinstance(pattern, ComputeOp) or any(isinstance(t.op, ComputeOp) for t in pattern.input_tensors):
        raise TypeError("te.decl_tensor_intrin: the pattern must be one te.compute over placeholders")
    if len(pattern.body) != 1:
        raise TypeError("te.decl_tensor_intrin: the pattern must have one output")
    loops = [iv.name for iv in pattern.axis + pattern.reduce_axis]
    for loop, kind in (kinds or {}).items():
        if loop not in loops:
            raise ValueError(
                f"te.decl_tensor_intrin: no loop {loop!r} in the pattern; it has {', '.join(loops)}"
            )
        if kind not in KINDS:
            raise ValueError(f"te.decl_tensor_intrin: kind must be one of {', '.join(KINDS)}, got {kind!r}")
    intrin = TensorIntrin(name or pattern.name, pattern, kinds or {})
    INTRINSICS[intrin.name] = intrin
    return intrin


def intrinsic_named(name: str) -> TensorIntrin:
    """A declared intrinsic; raises ScheduleError listing the names."""
    if name not in INTRINSICS:
        known = ", ".join(sorted(INTRINSICS)) or "none"
        raise ScheduleError(
            f"no tensor intrinsic {name!r} is declared here; declare it with te.decl_tensor_intrin (known: {known})"
        )
    return INTRINSICS[name]


__all__ = ["INTRINSICS", "TensorIntrin", "decl_tensor_intrin", "intrinsic_named"]
