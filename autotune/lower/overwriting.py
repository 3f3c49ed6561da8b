"""Outputs of a program that may lie in the memory of an input: each element is read before it is overwritten.

The proof has two parts. Each element of the output is stored once: a program stores all of them, and has no more stores
to run than there are elements. And each load of the input comes before the store to its address: it is a part of that
very store, or its loop body stores, after it, to all the addresses that it reads of; as nothing else stores there, no
other iteration does, in whatever order they run. Last tiles that start early and rows that are computed again store
elements twice, and so does whatever adds up in the output: these get memory of their own.

A kernel may also ask whether it is run so (:func:`autotune.te.overwritten`): what it reads only if not is not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from autotune.lower.ir import (
    NONTEMPORAL,
    Allocate,
    Buffer,
    For,
    If,
    Intrinsic,
    Let,
    Load,
    LoopKernel,
    LoopProgram,
    Prefetch,
    Seq,
    Stmt,
    Store,
    While,
    expressions,
    has_load,
    has_thread_axes,
    nodes,
    operands,
    sub_statements,
    uses,
    walk,
)
from autotune.lower.linear import Lin, Range, Simplifier
from autotune.te.depth import walks_deep
from autotune.te.dtypes import INDEX_DTYPE
from autotune.te.expr import Binary, Call, Compare, Expr, Not, Select, Var

_MOST_ADDRESSES = 1 << 20
"""More are not listed to be compared."""


@walks_deep
def overwriting(program: LoopProgram) -> tuple[tuple[Buffer, Buffer], ...]:
    """Return pairs of an output and an input of the same type and size that may be the same memory,
    element for element.

    Of the same output there may be several pairs: one of the inputs can be chosen.
    """
    running = [kernel for kernel in program.kernels if not kernel.hoisted]
    found = []
    for output in program.outputs:
        writers = [number for number, kernel in enumerate(running) if output in kernel.writes]
        if len(writers) != 1:
            continue
        kernel, later = running[writers[0]], running[writers[0] + 1 :]
        once = _once(kernel, output)
        for source in program.arguments:
            if source in program.outputs or not _alike(output, source):
                continue
            if any(source in other.reads for other in later):
                continue
            if _is_asked(kernel, source) or (once and _before_stored(kernel, output, source)):
                found.append((output, source))
    return tuple(found)


def _is_asked(kernel: LoopKernel, source: Buffer) -> bool:
    """Return whether a kernel reads an input only where it has asked whether its memory is that of a result."""
    return source in kernel.reads and not _reads(kernel.body, source)


def _reads(stmt: Stmt, source: Buffer) -> bool:
    """Return whether a statement reads an input without asking."""
    if isinstance(stmt, If) and _asks(stmt.cond, source):
        return stmt.otherwise is not None and _reads(stmt.otherwise, source)
    held = [*expressions(stmt), *(stmt.operands if isinstance(stmt, Intrinsic) else ())]
    read = any(isinstance(node, Load) and node.buffer is source for node in nodes(*held))
    return read or any(_reads(part, source) for part in sub_statements(stmt))


def _asks(cond: Expr, source: Buffer) -> bool:
    """Return whether a condition is that an input is not where a result is."""
    if not (isinstance(cond, Not) and isinstance(cond.a, Call) and cond.a.name == "overwritten"):
        return False
    return any(isinstance(node, Load) and node.buffer is source for node in cond.a.args)


def _alike(one: Buffer, other: Buffer) -> bool:
    return (
        one.dtype == other.dtype and one.elements == other.elements and prod(one.shape) == prod(other.shape)
    )


def _once(kernel: LoopKernel, output: Buffer) -> bool:
    """Return whether each element is stored once, through the caches: there are no more stores to run than elements."""
    if kernel.in_order or has_thread_axes(kernel.body):
        return False
    if any(isinstance(part, For) and part.note == NONTEMPORAL for part in walk(kernel.body)):
        return False
    return _stores(kernel.body, output) == prod(output.shape)


def _stores(stmt: Stmt, output: Buffer) -> int:
    if isinstance(stmt, Store):
        return int(stmt.buffer is output)
    if isinstance(stmt, For):
        return stmt.extent * _stores(stmt.body, output)
    if isinstance(stmt, Seq):
        return sum(_stores(part, output) for part in stmt.stmts)
    if isinstance(stmt, Let | Allocate | Intrinsic):
        return _stores(stmt.body, output)
    # Whether a branch is taken is not known here: its stores are too many.
    return prod(output.shape) + 1 if any(_is_store(part, output) for part in walk(stmt)) else 0


def _is_store(stmt: Stmt, output: Buffer) -> bool:
    return isinstance(stmt, Store) and stmt.buffer is output


def _before_stored(kernel: LoopKernel, output: Buffer, source: Buffer) -> bool:
    """Return whether in a kernel that stores each element once all loads of the source come before the store there."""
    try:
        _Order(output, source).of(kernel.body, {})
    except _Unproved:
        return False
    return True


class _Unproved(Exception):
    """An access that nothing is known of, or one in the wrong order."""


@dataclass(frozen=True)
class _Access:
    """An address, for each iteration of ``loops``: those between the access and the statement that is looked at.

    It is accessed only where all ``guards`` are 0 or more.
    """

    address: Lin
    guards: tuple[Lin, ...] = ()
    loops: tuple[For, ...] = ()


@dataclass(frozen=True)
class _Accesses:
    """Of a statement. ``loads`` are those that are no part of the store to their address; ``closed``: the statement
    stores to all their addresses."""

    loads: tuple[_Access, ...] = ()
    stores: tuple[_Access, ...] = ()
    closed: bool = False

    def within(self, loop: For, closed: bool) -> _Accesses:
        """Return the same, seen from outside of a loop around that is ``closed``, if each of its iterations is."""
        loads, stores = (
            tuple(replace(each, loops=(*each.loops, loop)) for each in accesses)
            for accesses in (self.loads, self.stores)
        )
        return _Accesses(loads, stores, closed)


class _Order:
    """Goes through the statements of a kernel; raises _Unproved where the order is not certain."""

    def __init__(self, output: Buffer, source: Buffer) -> None:
        self.output = output
        self.source = source
        self.ranges: dict[Var, Range] = {}

    def of(self, stmt: Stmt, values: dict[Expr, Lin]) -> _Accesses:
        """Return the accesses of a statement; ``values`` are those of names."""
        if isinstance(stmt, For):
            self.ranges[stmt.var] = (0, stmt.extent - 1)
            inside = self.of(stmt.body, values)
            closed = bool(inside.stores) and _is_closed(inside)
            if inside.loads and inside.stores and not closed:
                raise _Unproved
            return inside.within(stmt, closed)
        if isinstance(stmt, Seq):
            return self._sequence([self.of(part, values) for part in stmt.stmts])
        if isinstance(stmt, Let):
            own = self._loads(stmt.value, values=values)
            named = {**values, stmt.var: self._form(self._simplifier(), stmt.value, values)}
            inside = self.of(stmt.body, named)
            return self._sequence([_Accesses(own), inside])
        if isinstance(stmt, Allocate):
            return self.of(stmt.body, values)
        if isinstance(stmt, Store):
            return self._store(stmt, values)
        if isinstance(stmt, Prefetch):
            return _Accesses()
        if any(self._touches(part) for part in walk(stmt)):
            if isinstance(stmt, While | Intrinsic) or any(
                _is_store(part, self.output) for part in walk(stmt)
            ):
                raise _Unproved
            own = self._loads(*expressions(stmt), values=values)
            return self._sequence([_Accesses(own), *(self.of(part, values) for part in sub_statements(stmt))])
        return _Accesses()

    def _touches(self, stmt: Stmt) -> bool:
        held = [*expressions(stmt), *(stmt.operands if isinstance(stmt, Intrinsic) else ())]
        read = any(
            isinstance(node, Load) and node.buffer in (self.source, self.output) for node in nodes(*held)
        )
        return read or _is_store(stmt, self.output)

    def _sequence(self, parts: Sequence[_Accesses]) -> _Accesses:
        """Return statements one after another: what is loaded after others stored is what the same statement stores."""
        stored = False
        for part in parts:
            if stored and part.loads and not _is_closed(part):
                raise _Unproved
            stored = stored or bool(part.stores)
        return _Accesses(
            tuple(each for part in parts for each in part.loads),
            tuple(each for part in parts for each in part.stores),
            all(part.closed or not part.loads for part in parts),
        )

    def _store(self, stmt: Store, values: dict[Expr, Lin]) -> _Accesses:
        if stmt.buffer is not self.output:
            return _Accesses(self._loads(*expressions(stmt), values=values))
        simplifier = self._simplifier()
        address = self._address(simplifier, stmt.buffer, stmt.indices, values)
        loads = self._loads(stmt.value, values=values, simplifier=simplifier)
        if any(_differ(load.address, address) for load in loads) or self._loads(*stmt.indices, values=values):
            raise _Unproved
        return _Accesses((), (_Access(address),), closed=True)

    def _loads(
        self, *exprs: Expr, values: dict[Expr, Lin], simplifier: Simplifier | None = None
    ) -> tuple[_Access, ...]:
        found = list[_Access]()
        simplifier = simplifier or self._simplifier()
        for node, conditions in _guarded(exprs):
            if node.buffer is self.output:
                raise _Unproved
            if node.buffer is self.source:
                address = self._address(simplifier, node.buffer, node.indices, values)
                guards = (form for each in conditions for form in self._guards(simplifier, each, values))
                found.append(_Access(address, tuple(guards)))
        return tuple(found)

    def _guards(self, simplifier: Simplifier, condition: Expr, values: dict[Expr, Lin]) -> Iterator[Lin]:
        """Yield forms that are 0 or more where a condition holds; none where it is of another kind."""
        if isinstance(condition, Binary) and condition.op == "and":
            yield from self._guards(simplifier, condition.a, values)
            yield from self._guards(simplifier, condition.b, values)
        if isinstance(condition, Compare) and condition.a.dtype == condition.b.dtype == INDEX_DTYPE:
            less, more = (self._form(simplifier, each, values) for each in (condition.a, condition.b))
            if condition.op in (">", ">="):
                less, more = more, less
            if condition.op in ("<", "<=", ">", ">="):
                yield more - less + (-1 if condition.op in ("<", ">") else 0)

    def _simplifier(self) -> Simplifier:
        """Return one that knows the loops around: what it says of a variable holds where it has that range."""
        made = Simplifier()
        for var, (low, high) in self.ranges.items():
            made.declare(var, low, high)
        return made

    def _address(
        self, simplifier: Simplifier, buffer: Buffer, indices: Sequence[Expr], values: dict[Expr, Lin]
    ) -> Lin:
        if has_load(*indices):
            raise _Unproved
        total = Lin({}, 0)
        for index, stride in zip(indices, buffer.strides, strict=True):
            total = total + self._form(simplifier, index, values).scaled(stride)
        return simplifier.joined(total)

    def _form(self, simplifier: Simplifier, expr: Expr, values: dict[Expr, Lin]) -> Lin:
        if expr.dtype not in ("int64", "int32") or has_load(expr):
            return Lin(
                {Var("unknown", expr.dtype): 1}, 0
            )  # whatever is at such an address is unlike any other
        return simplifier.form(expr, values)


def _is_closed(accesses: _Accesses) -> bool:
    """Return whether a statement stores to all addresses that it loads from."""
    if accesses.closed:
        return True
    loads, stores = _listed(accesses.loads), _listed(accesses.stores)
    if loads is None or stores is None or _differ(loads[0], stores[0]):
        return False
    return bool(np.isin(loads[1], stores[1]).all())


def _differ(one: Lin, other: Lin) -> bool:
    rest = one - other
    return bool(rest.terms or rest.constant)


def _listed(accesses: Sequence[_Access]) -> tuple[Lin, NDArray[np.int64]] | None:
    """Return all addresses, as what is the same in all of them and the distances from there; None where
    that is not known."""
    start: Lin | None = None
    found = list[NDArray[np.int64]]()
    for access in accesses:
        loops: dict[Expr, int] = {loop.var: loop.extent for loop in access.loops}
        if prod(loops.values()) * len(accesses) > _MOST_ADDRESSES:
            return None
        outside = {atom: c for atom, c in access.address.terms.items() if atom not in loops}
        if any(uses(atom, loop.var) for atom in outside for loop in access.loops):
            return None
        same = Lin(outside, 0)
        if start is not None and _differ(start, same):
            return None
        start = same
        distances = _over(access.address, loops)
        accessed = np.ones(len(distances), bool)
        for guard in access.guards:
            if loops.keys() >= guard.terms.keys():
                accessed &= _over(guard, loops) >= 0
        found.append(distances[accessed])
    return None if start is None else (start, np.concatenate(found))


def _over(form: Lin, loops: Mapping[Expr, int]) -> NDArray[np.int64]:
    """Return a form's values in each iteration of loops, but for what does not depend on them."""
    found = np.array([form.constant])
    for var, extent in loops.items():
        found = np.add.outer(found, form.terms.get(var, 0) * np.arange(extent)).ravel()
    return found


_MOST_CASES = 16
"""Sets of conditions that a part of an expression is looked at under; of one with more, none is taken to be known."""


def _guarded(exprs: Sequence[Expr]) -> Iterator[tuple[Load, tuple[Expr, ...]]]:
    """Yield all loads of expressions, each with conditions without which it does not count."""
    seen: dict[int, set[tuple[int, ...]]] = {}
    stack: list[tuple[Expr, tuple[Expr, ...]]] = [(expr, ()) for expr in exprs]
    while stack:
        node, conditions = stack.pop()
        cases = seen.setdefault(id(node), set())
        if len(cases) >= _MOST_CASES:
            conditions = ()
        key = tuple(map(id, conditions))
        if key in cases:
            continue
        cases.add(key)
        if isinstance(node, Load):
            yield node, conditions
        if isinstance(node, Select):
            stack += [(node.cond, conditions), (node.a, (*conditions, node.cond)), (node.b, conditions)]
        else:
            stack += [(part, conditions) for part in operands(node)]


__all__ = ["overwriting"]
