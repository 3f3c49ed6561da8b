"""Tensors and the operations that produce them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from autotune.te.dtypes import is_float
from autotune.te.expr import Expr, ExprLike, IterVar, Read, Reduce, Var, as_expr, cast
from autotune.te.traversal import ordered, reads


class Operation:
    """A producer of tensors; ``name`` is what schedules and traces call it."""

    name: str
    shape: tuple[int, ...]
    dtypes: tuple[str, ...]
    axis: tuple[IterVar, ...] = ()
    """Data axes; an input has none."""
    tag: str = ""
    """A user's word for what the operation is; it changes nothing."""
    attrs: Mapping[str, Any] = MappingProxyType({})
    """A user's notes; they change nothing."""
    absorbed: tuple[Operation, ...] = ()
    """Operations that are computed within this one, which no schedule has as stages."""
    is_open: bool = False
    """True if a call brings sizes of this operation; then ``shape`` and extents of axes are those of an example."""

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        """Reduction axes, empty for an elementwise operation and for an input."""
        return ()

    def output(self, index: int) -> Tensor:
        """Return the tensor number ``index`` that this operation produces."""
        return Tensor(self, index)

    def output_name(self, index: int) -> str:
        """Return the name of tensor number ``index``: that of the operation, with a suffix where there are several."""
        return f"{self.name}.v{index}" if len(self.dtypes) > 1 else self.name

    @property
    def sizes(self) -> tuple[Any, ...]:
        """The shape, with expressions for extents that a call brings."""
        return self.shape

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """Return the expressions by which an element is computed."""
        return ()

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """The tensors that this operation reads, each once, in order of first use."""
        return ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, shape={self.shape})"


class PlaceholderOp(Operation):
    """An input of the program."""

    def __init__(
        self, name: str, shape: tuple[int, ...], dtype: str, sizes: tuple[Any, ...] | None = None
    ) -> None:
        self.name = name
        self.shape = shape
        self.dtypes = (dtype,)
        self._sizes = shape if sizes is None else sizes
        self.is_open = sizes is not None

    @property
    def sizes(self) -> tuple[Any, ...]:
        return self._sizes


@dataclass(frozen=True, eq=False)
class Epilogue:
    """The last step of a finished reduction: ``body`` over the value ``accumulator`` and the data axes."""

    accumulator: Var
    body: Expr


class ComputeOp(Operation):
    """Elements computed by ``body`` over the data axes ``axis`` (and the reduction axes of the body).

    ``body`` has one expression an output; a reduction is at the top of the expression, and then at the top of
    each of them. Only schedules make an ``epilogue`` (by ``reverse_compute_inline``).
    """

    def __init__(
        self,
        name: str,
        axis: tuple[IterVar, ...],
        body: tuple[Expr, ...],
        epilogue: Epilogue | None = None,
    ) -> None:
        self.name = name
        self.axis = axis
        self.body = body
        self.epilogue = epilogue
        self.shape = tuple(iv.extent for iv in axis)
        self.dtypes = tuple(e.dtype for e in body) if epilogue is None else (epilogue.body.dtype,)
        self._inputs: tuple[Tensor, ...] | None = None

    @property
    def sizes(self) -> tuple[Any, ...]:
        return tuple(iv.dom.extent for iv in self.axis) if self.is_open else self.shape

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return self.body if self.epilogue is None else (*self.body, self.epilogue.body)

    def closed(self, closing: Any) -> ComputeOp | None:
        """Return the operation with numbers for its sizes where it is made in its own way; see ``te.sizes``."""
        return None

    @property
    def reduction(self) -> Reduce | None:
        """The reduction at the top of the body, or None."""
        return self.body[0] if isinstance(self.body[0], Reduce) else None

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        """Reduction axes, empty for an elementwise operation."""
        reduction = self.reduction
        return () if reduction is None else reduction.axis

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        if self._inputs is None:
            found: dict[Tensor, None] = {}
            for expr in self.expressions:
                for read in reads(expr):
                    found.setdefault(read.tensor)
            self._inputs = tuple(found)
        return self._inputs


class Tensor:
    """Output ``value_index`` of an operation; ``tensor[i, j]`` reads an element."""

    __slots__ = ("op", "value_index")

    def __init__(self, op: Operation, value_index: int = 0) -> None:
        self.op = op
        self.value_index = value_index

    @property
    def shape(self) -> tuple[Any, ...]:
        """Extents of the dimensions: numbers, and expressions of ``te.var``."""
        return self.op.sizes

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.op.shape)

    @property
    def dtype(self) -> str:
        """NumPy dtype name of the elements."""
        return self.op.dtypes[self.value_index]

    @property
    def name(self) -> str:
        """Name of the tensor: its operation's, with a suffix for further outputs of a tuple."""
        return self.op.output_name(self.value_index)

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Any:
        """Return the element at these indices; with fewer than there are dimensions a TensorSlice, which
        takes the others."""
        if not isinstance(indices, tuple):
            indices = (indices,)
        return self(*indices) if len(indices) >= self.ndim else TensorSlice(self, indices)

    def __call__(self, *indices: ExprLike) -> Read:
        if len(indices) != self.ndim:
            raise IndexError(
                f"tensor {self.name} has {self.ndim} dimensions {self.shape}, got {len(indices)} indices"
            )
        exprs = tuple(as_expr(i) for i in indices)
        for number, index in enumerate(exprs):
            if is_float(index.dtype):
                raise TypeError(f"index {number} of tensor {self.name} must be an integer, got {index.dtype}")
        return Read(self, exprs)

    def __add__(self, other: Any) -> Any:
        return whole("add", operator.add, self, other)

    def __radd__(self, other: Any) -> Any:
        return whole("add", operator.add, other, self)

    def __sub__(self, other: Any) -> Any:
        return whole("subtract", operator.sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        return whole("subtract", operator.sub, other, self)

    def __mul__(self, other: Any) -> Any:
        return whole("multiply", operator.mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        return whole("multiply", operator.mul, other, self)

    def __truediv__(self, other: Any) -> Any:
        return whole("divide", operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return whole("divide", operator.truediv, other, self)

    def __floordiv__(self, other: Any) -> Any:
        return whole("floor_divide", operator.floordiv, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return whole("floor_divide", operator.floordiv, other, self)

    def __mod__(self, other: Any) -> Any:
        return whole("floor_mod", operator.mod, self, other)

    def __rmod__(self, other: Any) -> Any:
        return whole("floor_mod", operator.mod, other, self)

    def __neg__(self) -> Any:
        return whole("negative", operator.neg, self)

    def astype(self, dtype: str) -> Any:
        """Return the tensor converted to another type."""
        return whole("cast", lambda e: cast(e, dtype), self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensor) and self.op is other.op and self.value_index == other.value_index

    def __hash__(self) -> int:
        return hash((id(self.op), self.value_index))

    def __repr__(self) -> str:
        return f"Tensor({self.name}, shape={self.shape}, dtype={self.dtype})"


@dataclass(frozen=True, eq=False)
class TensorSlice:
    """A tensor with some of its indices: ``A[i]`` of a matrix, of which ``A[i][j]`` is an element."""

    tensor: Tensor
    indices: tuple[ExprLike, ...]

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Any:
        more = indices if isinstance(indices, tuple) else (indices,)
        return self.tensor[(*self.indices, *more)]

    def _incomplete(self, *_: object) -> Any:
        tensor = self.tensor
        raise IndexError(
            f"tensor {tensor.name} has {tensor.ndim} dimensions {tensor.shape}, got {len(self.indices)} indices"
        )

    # What a number would take part in says what is missing.
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _incomplete
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __neg__ = __lt__ = __le__ = __gt__ = __ge__ = (
        _incomplete
    )
    astype = _incomplete


def whole(name: str, function: Callable[..., Expr], *operands: Any) -> Any:
    """Return the stage of a function of whole tensors; NotImplemented for what takes no part in arithmetic."""
    if not all(isinstance(o, Tensor | Expr | int | float) for o in operands):
        return NotImplemented
    from autotune.te.whole import elementwise  # it makes tensors, which this module declares

    return elementwise(f"T_{name}", function, *operands)


def post_order(tensors: list[Tensor]) -> list[Operation]:
    """Return operations below ``tensors``, producers before consumers (the read graph's post-order)."""
    return ordered([t.op for t in tensors], lambda op: [t.op for t in op.input_tensors])
