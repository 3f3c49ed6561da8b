"""Arithmetic of whole tensors: ``A + B`` is the stage that adds their elements, with the shapes that NumPy gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autotune.te.expr import Expr, ExprLike, IterVar
from autotune.te.operations import compute
from autotune.te.tensor import Tensor


def elementwise(name: str, function: Callable[..., Expr], *operands: Any) -> Tensor:
    """Return the tensor of ``function`` of the operands' elements; numbers and expressions are the same
    for all of them.

    Raises ValueError for shapes that do not go together.
    """
    tensors = [o for o in operands if isinstance(o, Tensor)]
    shape = broadcast([t.shape for t in tensors])
    tag = "elemwise" if len(tensors) == 1 else "broadcast"
    names = [f"ax{n}" for n in range(len(shape))]
    found: Tensor = compute(
        shape, lambda *axes: function(*(_element(o, axes) for o in operands)), name, tag, varargs_names=names
    )
    return found


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape of tensors of these shapes together, as in NumPy.

    >>> broadcast([(4, 1), (3,)])
    (4, 3)
    """
    rank = max(map(len, shapes))
    full = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    result = []
    for dims in zip(*full, strict=True):
        best = next((d for d in dims if not _same(d, 1)), dims[0])
        if not all(_same(d, best) or _same(d, 1) for d in dims):
            raise ValueError(f"tensors of shapes {', '.join(map(str, shapes))} do not go together")
        result.append(best)
    return tuple(result)


def _same(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


def _element(operand: Any, axes: Sequence[IterVar]) -> ExprLike:
    """Return the element of an operand at a place of the result."""
    if not isinstance(operand, Tensor):
        return operand  # type: ignore[no-any-return]
    own = axes[len(axes) - operand.ndim :]
    pairs = zip(own, operand.shape, strict=True)
    return operand(*(0 if _same(extent, 1) else axis for axis, extent in pairs))


__all__ = ["broadcast", "elementwise"]
