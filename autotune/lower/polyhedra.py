"""Statement instances of a loop program as text for isl: domains, times, accesses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from autotune.lower.ir import (
    Allocate,
    Barrier,
    Buffer,
    External,
    For,
    If,
    Intrinsic,
    Let,
    Load,
    LoopProgram,
    Origin,
    Prefetch,
    Seq,
    Stmt,
    Store,
    While,
    is_thread_axis,
    operands,
)
from autotune.te.expr import Binary, Cast, Compare, Const, Expr, Not, Read, Select, Var


class NotAffine(Exception):
    """An index or a condition that is no affine function of the loops."""


Names = dict[Expr, str | None]
"""Text of each variable; None for one whose value is not affine."""


def affine(expr: Expr, names: Names) -> str:
    """An index expression as isl text; raises NotAffine."""
    if isinstance(expr, Const) and isinstance(expr.value, int):
        return str(int(expr.value))
    if isinstance(expr, Var):
        text = names.get(expr)
        if text is not None:
            return text
    if isinstance(expr, Cast):
        return affine(expr.a, names)
    if isinstance(expr, Binary):
        a = affine(expr.a, names)
        b = affine(expr.b, names)
        if expr.op in ("+", "-"):
            return f"({a} {expr.op} {b})"
        if expr.op == "*" and isinstance(expr.b, Const):
            return f"({b} * {a})"
        if expr.op == "*" and isinstance(expr.a, Const):
            return f"({a} * {b})"
        if expr.op in ("//", "%") and isinstance(expr.b, Const) and int(expr.b.value) > 0:
            return f"floor({a} / {b})" if expr.op == "//" else f"(({a}) mod {b})"
        if expr.op in ("min", "max"):
            return f"{expr.op}({a}, {b})"
    raise NotAffine(type(expr).__name__)


def condition(expr: Expr, names: Names) -> str:
    """A condition as isl text; one that is not affine may hold or not, which is "true" here."""
    try:
        return _condition(expr, names)
    except NotAffine:
        return "true"


def _condition(expr: Expr, names: Names) -> str:
    if isinstance(expr, Const):
        return "true" if expr.value else "false"
    if isinstance(expr, Compare):
        op = {"==": "=", "!=": "!="}.get(expr.op, expr.op)
        return f"({affine(expr.a, names)} {op} {affine(expr.b, names)})"
    if isinstance(expr, Binary) and expr.op in ("and", "or"):
        return f"({_condition(expr.a, names)} {expr.op} {_condition(expr.b, names)})"
    if isinstance(expr, Not):
        return f"(not {_condition(expr.a, names)})"
    raise NotAffine(type(expr).__name__)


@dataclass(frozen=True)
class Access:
    """An element of a buffer, read where ``condition`` holds."""

    buffer: Buffer
    index: tuple[str, ...]
    condition: str


@dataclass
class Instance:
    """All executions of one store: name, loops around it, and what it touches."""

    name: str
    origin: Origin
    loops: tuple[tuple[str, str], ...]
    """Name and kind of each loop, outermost first."""
    domain: str
    time: tuple[str, ...]
    instance: tuple[str, ...]
    write: Access
    reads: tuple[Access, ...]


@dataclass
class Extraction:
    """The instances of a program, and what could not be expressed."""

    instances: list[Instance] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    barriers: bool = False


def extract(program: LoopProgram) -> Extraction:
    """All store instances of a program that was lowered with origins."""
    result = Extraction()
    for number, kernel in enumerate(program.kernels):
        _Walker(result).walk(kernel.body, (), ("true",), (str(number),), {}, (), 0)
    return result


class _Walker:
    def __init__(self, result: Extraction) -> None:
        self.result = result

    def walk(
        self,
        stmt: Stmt,
        loops: tuple[tuple[str, str], ...],
        conditions: tuple[str, ...],
        time: tuple[str, ...],
        names: Names,
        pending: tuple[Access, ...],
        position: int,
    ) -> int:
        """Visit a statement at a position among its siblings; returns the next position."""
        if isinstance(stmt, Seq):
            for part in stmt.stmts:
                position = self.walk(part, loops, conditions, time, names, pending, position)
            return position
        if isinstance(stmt, For):
            if is_thread_axis(stmt.kind) and any(isinstance(p, Barrier) for p in _parts(stmt)):
                self.result.barriers = True
            name = f"v{len(loops)}"
            inside = (*conditions, f"0 <= {name} < {stmt.extent}")
            step = (*time, str(position), name)
            self.walk(
                stmt.body, (*loops, (name, stmt.kind)), inside, step, {**names, stmt.var: name}, pending, 0
            )
            return position + 1
        if isinstance(stmt, Let):
            try:
                value: str | None = affine(stmt.value, names)
            except NotAffine:
                value = None
            more = () if value is not None else tuple(self._reads((stmt.value,), names))
            bound = {**names, stmt.var: value}
            return self.walk(stmt.body, loops, conditions, time, bound, pending + more, position)
        if isinstance(stmt, If):
            cond = self._branch(stmt, names)
            more = pending + tuple(self._reads((stmt.cond,), names))
            position = self.walk(stmt.then, loops, (*conditions, cond), time, names, more, position)
            if stmt.otherwise is not None:
                negated = (*conditions, f"(not {cond})")
                position = self.walk(stmt.otherwise, loops, negated, time, names, more, position)
            return position
        if isinstance(stmt, Allocate | Intrinsic):
            return self.walk(stmt.body, loops, conditions, time, names, pending, position)
        if isinstance(stmt, Prefetch | Barrier):
            return position
        if isinstance(stmt, External):
            raise NotAffine("a call of a function from outside, which nothing is known of")
        if isinstance(stmt, While):
            raise NotAffine("a loop that runs while a condition holds")
        assert isinstance(stmt, Store)
        self._store(stmt, loops, conditions, (*time, str(position)), names, pending)
        return position + 1

    def _branch(self, stmt: If, names: Names) -> str:
        """The condition of a branch: which side stores must be known."""
        try:
            return _condition(stmt.cond, names)
        except NotAffine as error:
            raise NotAffine("a branch on a condition that is not affine") from error

    def _store(
        self,
        stmt: Store,
        loops: tuple[tuple[str, str], ...],
        conditions: tuple[str, ...],
        time: tuple[str, ...],
        names: Names,
        pending: tuple[Access, ...],
    ) -> None:
        if stmt.origin is None:
            raise NotAffine("statements of a sequential kernel, which store where data decide")
        try:
            write = Access(stmt.buffer, tuple(affine(i, names) for i in stmt.indices), "true")
        except NotAffine as error:
            raise NotAffine(f"a store of {stmt.buffer.name} at an index that is not affine") from error
        reads = (*pending, *self._reads((*stmt.indices, stmt.value), names))
        instance = tuple(affine(i, names) for i in stmt.origin.instance)
        name = f"S{len(self.result.instances)}"
        domain = " and ".join(dict.fromkeys(conditions))
        self.result.instances.append(Instance(name, stmt.origin, loops, domain, time, instance, write, reads))

    def _reads(self, exprs: tuple[Expr, ...], names: Names) -> Iterator[Access]:
        for expr in exprs:
            for node, cond in guarded(expr, names, lambda n: isinstance(n, Load)):
                assert isinstance(node, Load)
                try:
                    index = tuple(affine(i, names) for i in node.indices)
                except NotAffine:
                    self.result.skipped.append(f"a read of {node.buffer.name} at an index that is not affine")
                    continue
                yield Access(node.buffer, index, cond)


def guarded(expr: Expr, names: Names, wanted: Callable[[Expr], bool]) -> Iterator[tuple[Expr, str]]:
    """Nodes of a kind, each with the condition of the if_then_else expressions around it."""
    seen: set[tuple[int, str]] = set()

    def go(node: Expr, cond: str) -> Iterator[tuple[Expr, str]]:
        if (id(node), cond) in seen:
            return
        seen.add((id(node), cond))
        if wanted(node):
            yield node, cond
        if isinstance(node, Select):
            yield from go(node.cond, cond)
            test = condition(node.cond, names)
            other = "true" if test == "true" else f"(not {test})"
            yield from go(node.a, _both(cond, test))
            yield from go(node.b, _both(cond, other))
            return
        for child in node.indices if isinstance(node, Read) else operands(node):
            yield from go(child, cond)

    yield from go(expr, "true")


def _both(a: str, b: str) -> str:
    return b if a == "true" else a if b == "true" else f"({a} and {b})"


def _parts(stmt: Stmt) -> Iterator[Stmt]:
    from autotune.lower.ir import walk

    return walk(stmt)


__all__ = ["Access", "Extraction", "Instance", "NotAffine", "affine", "condition", "extract", "guarded"]
