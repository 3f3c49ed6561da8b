"""Statements of sequential kernels, and what writes them down.

>>> from autotune.te.operations import placeholder
>>> x, total = placeholder((4,), name="x"), placeholder((4,), name="total")
>>> steps = Steps((total,))
>>> with steps.loop(4, "i") as i:
...     before = steps.let(te_select(i > 0, total(i - 1), 0.0), "before")
...     steps.store(total, (i,), before + x(i))
>>> len(steps.finished())
1
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from autotune.te.expr import Const, Expr, ExprLike, Var, as_expr, cast
from autotune.te.expr import select as te_select
from autotune.te.tensor import PlaceholderOp, Tensor


class Statement:
    """Base of the statements."""

    @property
    def blocks(self) -> tuple[tuple[Statement, ...], ...]:
        """The statements inside of this one, by the blocks that they are in."""
        return ()

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """Expressions that it holds itself."""
        return ()

    @property
    def stored(self) -> Tensor | None:
        """Return the tensor that it stores to."""
        return None

    def walk(self) -> Iterator[Statement]:
        """Yield the statement and all inside of it, in order."""
        yield self
        for block in self.blocks:
            for part in block:
                yield from part.walk()


@dataclass(frozen=True, eq=False)
class Assign(Statement):
    """``tensor[indices] = value``."""

    tensor: Tensor
    indices: tuple[Expr, ...]
    value: Expr

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (*self.indices, self.value)

    @property
    def stored(self) -> Tensor:
        return self.tensor


@dataclass(frozen=True, eq=False)
class Named(Statement):
    """A name for a value, in the statements that follow it in its block: it is read once."""

    var: Var
    value: Expr

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (self.value,)


@dataclass(frozen=True, eq=False)
class Repeat(Statement):
    """``for var in 0..extent``; ``kind`` is serial, unrolled or vectorized."""

    var: Var
    extent: int
    kind: str
    body: tuple[Statement, ...]

    @property
    def blocks(self) -> tuple[tuple[Statement, ...], ...]:
        return (self.body,)


@dataclass(frozen=True, eq=False)
class RepeatWhile(Statement):
    """Again and again while a condition holds; it is tested first."""

    cond: Expr
    body: tuple[Statement, ...]

    @property
    def blocks(self) -> tuple[tuple[Statement, ...], ...]:
        return (self.body,)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (self.cond,)


@dataclass(frozen=True, eq=False)
class Branch(Statement):
    """One of two blocks."""

    cond: Expr
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]

    @property
    def blocks(self) -> tuple[tuple[Statement, ...], ...]:
        return (self.then, self.otherwise)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (self.cond,)


@dataclass(frozen=True, eq=False)
class External(Statement):
    """A call of a function outside of the program; tensors among the arguments are pointers to their first elements.

    Lowering makes an :class:`autotune.lower.ir.External` of it.
    """

    symbol: str
    arguments: tuple[Tensor | Const, ...]
    results: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]


class Steps:
    """Writes down the statements of a kernel that stores to ``results``, in the order of the calls."""

    def __init__(self, results: Sequence[Tensor]) -> None:
        self.results = tuple(results)
        self.scratch_tensors: list[Tensor] = []
        self._open: list[list[Statement]] = [[]]

    def scratch(self, shape: Sequence[int], dtype: str = "int64", name: str = "scratch") -> Tensor:
        """Return memory for the statements; what is in it at first is not known."""
        made = PlaceholderOp(f"{name}{len(self.scratch_tensors)}", tuple(shape), dtype).output(0)
        self.scratch_tensors.append(made)
        return made

    def cell(self, value: ExprLike, dtype: str = "int64", name: str = "cell") -> Cell:
        """Return a variable with a first value."""
        made = Cell(self, self.scratch((1,), dtype, name))
        made.set(value)
        return made

    def store(self, tensor: Tensor, indices: Sequence[ExprLike], value: ExprLike) -> None:
        """Store ``tensor[indices] = value``, converted to the tensor's type."""
        places = tuple(as_expr(i) for i in indices)
        self._add(Assign(tensor, places, cast(as_expr(value), tensor.dtype)))

    def let(self, value: ExprLike, name: str = "value") -> Var:
        """Return a value as it is now, for the rest of the block."""
        expr = as_expr(value)
        var = Var(name, expr.dtype)
        self._add(Named(var, expr))
        return var

    @contextmanager
    def loop(self, extent: int, name: str = "i", kind: str = "serial") -> Iterator[Var]:
        """Open a loop: ``for name in 0..extent``."""
        var = Var(name)
        with self._block() as body:
            yield var
        if extent:
            self._add(Repeat(var, extent, kind, tuple(body)))

    @contextmanager
    def repeat_while(self, cond: ExprLike) -> Iterator[None]:
        """Open a loop that runs while a condition holds, which reads what the block changes."""
        with self._block() as body:
            yield
        self._add(RepeatWhile(as_expr(cond), tuple(body)))

    @contextmanager
    def when(self, cond: ExprLike) -> Iterator[None]:
        """Open a branch for a condition; :meth:`otherwise` may follow."""
        with self._block() as body:
            yield
        self._add(Branch(as_expr(cond), tuple(body), ()))

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """Open the other branch of the :meth:`when` just before."""
        with self._block() as body:
            yield
        last = self._open[-1].pop()
        if not isinstance(last, Branch) or last.otherwise:
            raise TypeError("otherwise() follows when() at once")
        self._add(Branch(last.cond, last.then, tuple(body)))

    def call(self, call: External) -> None:
        """Call a function outside of the program."""
        self._add(call)

    def finished(self) -> tuple[Statement, ...]:
        """Return the statements that were written."""
        return tuple(self._open[0])

    def _add(self, statement: Statement) -> None:
        self._open[-1].append(statement)

    @contextmanager
    def _block(self) -> Iterator[list[Statement]]:
        body: list[Statement] = []
        self._open.append(body)
        try:
            yield body
        finally:
            self._open.pop()


class Cell:
    """A variable of a kernel: one element of memory, in a register as a rule."""

    def __init__(self, steps: Steps, tensor: Tensor) -> None:
        self._steps = steps
        self._tensor = tensor

    def get(self) -> Expr:
        """Return the value at the place where it is read."""
        return self._tensor(0)

    def set(self, value: ExprLike) -> None:
        """Give it another value."""
        self._steps.store(self._tensor, (0,), value)

    def add(self, value: ExprLike) -> None:
        """Add to it."""
        self.set(self.get() + value)


__all__ = [
    "Assign",
    "Branch",
    "Cell",
    "External",
    "Named",
    "Repeat",
    "RepeatWhile",
    "Statement",
    "Steps",
    "te_select",
]
