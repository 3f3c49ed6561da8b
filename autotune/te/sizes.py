"""Sizes that are known at the call: ``te.var`` in shapes, and programs with numbers in their place.

A program with such sizes is scheduled at an example of each, and its steps are replayed on the program of the sizes
that a call comes with. Loop variables are those of the program as it was written, so that a schedule finds them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from autotune.errors import InputError, ScheduleError
from autotune.te.dtypes import is_float
from autotune.te.expr import Binary, Cast, Const, Expr, IterVar, Read, Reduce, Var, const
from autotune.te.tensor import ComputeOp, Epilogue, Operation, PlaceholderOp, Tensor, post_order
from autotune.te.traversal import nodes, substitute, transform

_EXAMPLES = (1009, 1013, 1019, 1021, 1031, 1033, 1039, 1049, 1051, 1061, 1063, 1069, 1087, 1091, 1093, 1097)
"""Primes: a schedule that fits an example needs no number to divide another."""

Sizes = Mapping["SizeVar", int]


class SizeVar(Var):
    """A size that each call brings; ``example`` is what schedules are checked with."""

    __slots__ = ("example",)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.example = _EXAMPLES[zlib.crc32(name.encode()) % len(_EXAMPLES)]


def var(name: str = "tindex", dtype: str = "int32") -> SizeVar:
    """Return a size for shapes and index expressions, known when a built function is called.

    The function compiles once for each combination of sizes, and keeps the latest. Raises ScheduleError for a type
    that is no integer.

    >>> from autotune import te
    >>> n = te.var("n")
    >>> A = te.placeholder((n, 4), name="A")
    >>> te.compute((n,), lambda i: A[i, 0] + A[n - 1, 3], name="B")
    Tensor(B, shape=(n,), dtype=float32)
    """
    if is_float(dtype) or dtype == "bool":
        raise ScheduleError(
            f"te.var: {name!r} is a size, an integer; pass a {dtype} as a tensor: te.placeholder((), {dtype!r})"
        )
    return SizeVar(name)


def variables(exprs: Iterable[Any]) -> list[SizeVar]:
    """Return the sizes that expressions are made of, in order; numbers have none."""
    found = (node for e in exprs if isinstance(e, Expr) for node in nodes(e) if isinstance(node, SizeVar))
    return list(dict.fromkeys(found))


def is_size(value: Any) -> bool:
    """Return whether a shape may have this expression: arithmetic of sizes and numbers."""
    return isinstance(value, Expr) and all(
        isinstance(node, SizeVar | Const | Binary | Cast) for node in nodes(value)
    )


def size_of(value: Any, sizes: Sizes | None = None) -> int:
    """Return the number that a size comes to, at the examples where no ``sizes`` are given."""
    if not isinstance(value, Expr):
        return int(value)
    chosen: dict[Expr, Expr] = {
        v: const(v.example if sizes is None else sizes[v]) for v in variables([value])
    }
    found = substitute(value, chosen)
    assert isinstance(found, Const), found
    return int(found.value)


def open_sizes(tensors: Sequence[Tensor]) -> list[SizeVar]:
    """Return the sizes in a program, in order of first use."""
    return list(dict.fromkeys(v for op in post_order(list(tensors)) for v in _sizes_in(op)))


def _sizes_in(op: Operation) -> list[SizeVar]:
    if not op.is_open:
        return []
    domains = [axis.dom.extent for axis in op.reduce_axis]
    return variables([*op.sizes, *domains, *op.expressions])


def closed(outputs: Sequence[Operation], sizes: Sizes | None = None) -> dict[Operation, Operation]:
    """Return each operation of a program with numbers for its sizes; itself where there is nothing to replace.

    At the examples, without ``sizes``, loop variables stay the ones of the program.
    """
    made: dict[Operation, Operation] = {}
    closing = Closing(made, sizes)
    for op in post_order([op.output(0) for op in outputs]):
        made[op] = op if closing.is_closed(op) else closing.operation(op)
    return made


class Closing:
    """Makes the operations of a program with numbers for its sizes."""

    def __init__(self, made: dict[Operation, Operation], sizes: Sizes | None) -> None:
        self.made = made
        self.sizes = sizes
        self.axes: dict[IterVar, IterVar] = {}

    def is_closed(self, op: Operation) -> bool:
        return not op.is_open and all(self.made[t.op] is t.op for t in op.input_tensors)

    def tensor(self, tensor: Tensor) -> Tensor:
        """Return the tensor with numbers for its sizes."""
        if tensor.op not in self.made:
            self.made[tensor.op] = self.operation(tensor.op)
        return self.made[tensor.op].output(tensor.value_index)

    def operation(self, op: Operation) -> Operation:
        if isinstance(op, PlaceholderOp):
            return PlaceholderOp(op.name, tuple(size_of(d, self.sizes) for d in op.sizes), op.dtypes[0])
        assert isinstance(op, ComputeOp)
        return op.closed(self) or self._compute(op)

    def _compute(self, op: ComputeOp) -> ComputeOp:
        axis = tuple(self._axis(iv) for iv in op.axis)
        first = op.body[0]
        if isinstance(first, Reduce):
            over = tuple(self._axis(iv) for iv in first.axis)
            sources = tuple(map(self.expression, first.sources))
            body: tuple[Expr, ...] = tuple(
                Reduce(first.reducer, sources, over, n) for n in range(len(op.body))
            )
        else:
            body = tuple(map(self.expression, op.body))
        epilogue = op.epilogue
        if epilogue is not None:
            epilogue = Epilogue(epilogue.accumulator, self.expression(epilogue.body))
        new = ComputeOp(op.name, axis, body, epilogue)
        new.tag, new.attrs = op.tag, op.attrs
        return new

    def _axis(self, iv: IterVar) -> IterVar:
        if self.sizes is None:
            return iv
        return self.axes.setdefault(
            iv, IterVar(iv.name, size_of(iv.dom.extent, self.sizes), iv.kind, iv.start)
        )

    def expression(self, expr: Expr) -> Expr:
        """Return an expression of the program with numbers for its sizes."""

        def replace(node: Expr) -> Expr | None:
            if isinstance(node, SizeVar):
                return const(size_of(node, self.sizes))
            if isinstance(node, IterVar):
                return self.axes.get(node)
            if isinstance(node, Read):
                return Read(self.tensor(node.tensor), node.indices)
            return None

        return transform(expr, replace)


def solved(shapes: Sequence[tuple[Tensor, Sequence[int]]], named: Sizes | None = None) -> dict[SizeVar, int]:
    """Return the sizes for which tensors have these shapes, ``named`` ones given; raises InputError
    where there are none."""
    sizes: dict[SizeVar, int] = dict(named or {})
    pairs = [p for tensor, shape in shapes for p in _dimensions(tensor, shape)]
    for _, size, extent in sorted(pairs, key=lambda pair: not isinstance(pair[1], SizeVar)):
        missing = [v for v in variables([size]) if v not in sizes]
        if len(missing) == 1:
            sizes[missing[0]] = _solution(size, missing[0], extent, sizes)
    for where, size, extent in pairs:
        if not variables([size]) or all(v in sizes for v in variables([size])):
            found = size_of(size, sizes)
            if found != extent:
                known = ", ".join(f"{v.name}={sizes[v]}" for v in variables([size]))
                wanted = f"{size} = {found} ({known})" if known else f"{size}"
                raise InputError(f"{where} must be {wanted}, got {extent}")
    return sizes


def _dimensions(tensor: Tensor, shape: Sequence[int]) -> list[tuple[str, Any, int]]:
    if len(shape) != tensor.ndim:
        raise InputError(
            f"{tensor.name} has {tensor.ndim} dimensions {tensor.shape}, got the shape {tuple(shape)}"
        )
    return [
        (f"dimension {n} of {tensor.name}", size, extent)
        for n, (size, extent) in enumerate(zip(tensor.shape, shape, strict=True))
    ]


def _solution(size: Expr, unknown: SizeVar, extent: int, sizes: Mapping[SizeVar, int]) -> int:
    """Return the value of a size that another one is a linear function of, rounded down: it is checked afterwards."""
    at = [size_of(size, {**sizes, unknown: value}) for value in (0, 1)]
    slope = at[1] - at[0]
    return (extent - at[0]) // slope if slope else 0


__all__ = ["Closing", "SizeVar", "closed", "is_size", "open_sizes", "size_of", "solved", "var", "variables"]
