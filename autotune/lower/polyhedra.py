"""Statement instances of a loop program as text for isl: domains, times, accesses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from autotune.errors import LoweringError
from autotune.lower.ir import (
    NEUTRAL,
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
    Prefetch,
    Seq,
    Stmt,
    Store,
    StoreOrigin,
    While,
    is_thread_axis,
    operands,
    walk,
)
from autotune.te.expr import Binary, Cast, Compare, Const, Expr, Not, Read, Select, Var

WHOLE = ("int32", "int64")
"""Types of index arithmetic, which is taken to stay in range; that of narrower ones wraps."""


class NotAffine(Exception):
    """An index or a condition that is no affine function of the loops."""


Names = dict[Expr, str | None]
"""Text of each variable; None for one whose value is not affine."""


def affine(expr: Expr, names: Names) -> str:
    """Return an index expression as isl text; raises NotAffine."""
    if expr.dtype not in WHOLE:
        raise NotAffine(expr.dtype)
    if isinstance(expr, Const):
        return str(int(expr.value))
    if isinstance(expr, Var):
        text = names.get(expr)
        if text is not None:
            return text
    if isinstance(expr, Cast):
        return affine(expr.a, names)
    if isinstance(expr, Binary):
        return _arithmetic(expr, affine(expr.a, names), affine(expr.b, names))
    raise NotAffine(type(expr).__name__)


def _arithmetic(expr: Binary, a: str, b: str) -> str:
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
    raise NotAffine(expr.op)


def condition(expr: Expr, names: Names) -> str:
    """Return a condition as isl text; raises NotAffine."""
    if isinstance(expr, Const):
        return "true" if expr.value else "false"
    if isinstance(expr, Compare):
        op = {"==": "=", "!=": "!="}.get(expr.op, expr.op)
        return f"({affine(expr.a, names)} {op} {affine(expr.b, names)})"
    if isinstance(expr, Binary) and expr.op in ("and", "or"):
        return f"({condition(expr.a, names)} {expr.op} {condition(expr.b, names)})"
    if isinstance(expr, Not):
        return f"(not {condition(expr.a, names)})"
    raise NotAffine(type(expr).__name__)


@dataclass(frozen=True)
class Test:
    """The domain of an evaluation, as isl text; it may be evaluated in fewer places unless that is ``exact``."""

    text: str = "true"
    exact: bool = True

    def branch(self, expr: Expr, names: Names, *, taken: bool) -> Test:
        """Return the same inside of a branch on a condition."""
        if taken and isinstance(expr, Binary) and expr.op == "and":
            return self.branch(expr.a, names, taken=True).branch(expr.b, names, taken=True)
        try:
            text = condition(expr, names)
        except NotAffine:
            return replace(self, exact=False)
        if not taken:
            text = f"(not {text})"
        return replace(self, text=text if self.text == "true" else f"({self.text} and {text})")


ALWAYS = Test()


@dataclass(frozen=True)
class Access:
    """An element of a buffer, touched where ``test`` says.

    ``around`` are the loops around its allocation: each of their iterations has memory of its own.
    """

    buffer: Buffer
    index: tuple[str, ...]
    test: Test = ALWAYS
    around: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProgramPoint:
    """A place in a program: the loops around (names and kinds, outermost first), when it is reached, names known.

    ``bound`` are names of values that are not affine, with the place where each is computed; ``memory`` has, for each
    local buffer, the loops around its allocation.
    """

    loops: tuple[tuple[str, str], ...] = ()
    conditions: tuple[str, ...] = ("true",)
    time: tuple[str, ...] = ()
    names: Names = field(default_factory=dict)
    bound: Mapping[Expr, tuple[Expr, ProgramPoint]] = field(default_factory=dict)
    memory: Mapping[Buffer, tuple[str, ...]] = field(default_factory=dict)

    @property
    def domain(self) -> str:
        """The iterations in which the place is reached."""
        return " and ".join(dict.fromkeys(self.conditions))

    def access(self, buffer: Buffer, indices: tuple[Expr, ...], test: Test = ALWAYS) -> Access:
        """Return an element that is touched here; raises NotAffine."""
        if buffer.scope in ("local", "shared") and buffer not in self.memory:
            raise LoweringError(f"verify: {buffer.name} is used outside of its allocation")
        index = tuple(affine(i, self.names) for i in indices)
        return Access(buffer, index, test, self.memory.get(buffer, ()))


@dataclass
class StoreInstances:
    """All executions of one store."""

    name: str
    origin: StoreOrigin
    at: ProgramPoint
    instance: tuple[str, ...]
    write: Access
    store: Store

    @property
    def loops(self) -> tuple[tuple[str, str], ...]:
        """Name and kind of each loop around, outermost first."""
        return self.at.loops


@dataclass
class Extraction:
    """The stores of a program, what else it evaluates, and what could not be expressed."""

    instances: list[StoreInstances] = field(default_factory=list)
    evaluated: list[tuple[ProgramPoint, Expr]] = field(default_factory=list)
    """Values of names and addresses of prefetches that read memory, each where it is computed."""
    barriers: bool = False
    kernels: int = 0
    hoisted: frozenset[str] = frozenset()
    """Times of the kernels that run before all others, while compiling."""


def extract(program: LoopProgram) -> Extraction:
    """Return all store instances of a program that was lowered with origins."""
    hoisted = frozenset(str(number) for number, kernel in enumerate(program.kernels) if kernel.hoisted)
    result = Extraction(kernels=len(program.kernels), hoisted=hoisted)
    for number, kernel in enumerate(program.kernels):
        _Walker(result).walk(kernel.body, ProgramPoint(time=(str(number),)), 0)
    return result


class _Walker:
    def __init__(self, result: Extraction) -> None:
        self.result = result

    def walk(self, stmt: Stmt, at: ProgramPoint, position: int) -> int:
        """Visit a statement at a position among its siblings; returns the next position."""
        if isinstance(stmt, Seq):
            for part in stmt.stmts:
                position = self.walk(part, at, position)
            return position
        if isinstance(stmt, For):
            self._loop(stmt, at, position)
            return position + 1
        if isinstance(stmt, Let):
            return self.walk(stmt.body, self._named(stmt, at, position), position)
        if isinstance(stmt, If):
            return self._branch(stmt, at, position)
        if isinstance(stmt, Allocate):
            return self.walk(stmt.body, _allocated(stmt.buffer, at), position)
        if isinstance(stmt, Intrinsic):
            return self.walk(stmt.body, at, position)
        if isinstance(stmt, Prefetch):
            here = replace(at, time=(*at.time, str(position)))
            self.result.evaluated += [(here, index) for index in stmt.indices]
            return position
        if isinstance(stmt, Barrier):
            return position
        if isinstance(stmt, External):
            raise NotAffine("a call of a function from outside, which nothing is known of")
        if isinstance(stmt, While):
            raise NotAffine("a loop that runs while a condition holds")
        assert isinstance(stmt, Store)
        self._store(stmt, replace(at, time=(*at.time, str(position))))
        return position + 1

    def _loop(self, stmt: For, at: ProgramPoint, position: int) -> None:
        if is_thread_axis(stmt.kind) and any(isinstance(part, Barrier) for part in walk(stmt)):
            self.result.barriers = True
        name = f"v{len(at.loops)}"
        inside = replace(
            at,
            loops=(*at.loops, (name, stmt.kind)),
            conditions=(*at.conditions, f"0 <= {name} < {stmt.extent}"),
            time=(*at.time, str(position), name),
            names={**at.names, stmt.var: name},
        )
        self.walk(stmt.body, inside, 0)

    def _named(self, stmt: Let, at: ProgramPoint, position: int) -> ProgramPoint:
        try:
            return replace(at, names={**at.names, stmt.var: affine(stmt.value, at.names)})
        except NotAffine:
            here = replace(at, time=(*at.time, str(position)))
            self.result.evaluated.append((here, stmt.value))
            bound = {**at.bound, stmt.var: (stmt.value, here)}
            return replace(at, names={**at.names, stmt.var: None}, bound=bound)

    def _branch(self, stmt: If, at: ProgramPoint, position: int) -> int:
        """Return both sides of a branch: which of them stores must be known."""
        if stmt.note == NEUTRAL:
            self.result.evaluated.append((replace(at, time=(*at.time, str(position))), stmt.cond))
            return self.walk(stmt.then, at, position + 1)
        try:
            test = condition(stmt.cond, at.names)
        except NotAffine as error:
            raise NotAffine("a branch on a condition that is not affine") from error
        position = self.walk(stmt.then, replace(at, conditions=(*at.conditions, test)), position)
        if stmt.otherwise is not None:
            other = replace(at, conditions=(*at.conditions, f"(not {test})"))
            position = self.walk(stmt.otherwise, other, position)
        return position

    def _store(self, stmt: Store, at: ProgramPoint) -> None:
        if stmt.origin is None:
            raise NotAffine("statements of a sequential kernel, which store where data decide")
        try:
            write = at.access(stmt.buffer, stmt.indices)
        except NotAffine as error:
            raise NotAffine(f"a store of {stmt.buffer.name} at an index that is not affine") from error
        instance = tuple(affine(i, at.names) for i in stmt.origin.instance)
        name = f"S{len(self.result.instances)}"
        self.result.instances.append(StoreInstances(name, stmt.origin, at, instance, write, stmt))


def _allocated(buffer: Buffer, at: ProgramPoint) -> ProgramPoint:
    """Return the point inside of an allocation: memory that the threads of a block share is one for all of them."""
    shared = buffer.scope == "shared"
    around = tuple(
        name for name, kind in at.loops if not (shared and kind.startswith(("threadIdx.", "vthread")))
    )
    return replace(at, memory={**at.memory, buffer: around})


def guarded(
    expr: Expr, names: Names, wanted: Callable[[Expr], bool], test: Test = ALWAYS
) -> Iterator[tuple[Expr, Test]]:
    """Yield nodes of a kind, each with where it is evaluated: the if_then_else expressions around it decide that."""
    seen: set[tuple[int, Test]] = set()
    stack = [(expr, test)]
    while stack:
        node, where = stack.pop()
        if (id(node), where) in seen:
            continue
        seen.add((id(node), where))
        if wanted(node):
            yield node, where
        if isinstance(node, Select):
            stack.append((node.cond, where))
            stack.append((node.a, where.branch(node.cond, names, taken=True)))
            stack.append((node.b, where.branch(node.cond, names, taken=False)))
        else:
            stack += [(part, where) for part in (node.indices if isinstance(node, Read) else operands(node))]


def loads_of(at: ProgramPoint, expr: Expr) -> Iterator[tuple[Load, Test]]:
    """Yield the loads of an expression that is evaluated at a point, each with where that is so."""
    for node, test in guarded(expr, at.names, lambda n: isinstance(n, Load)):
        assert isinstance(node, Load)
        yield node, test


__all__ = [
    "ALWAYS",
    "WHOLE",
    "Access",
    "Extraction",
    "NotAffine",
    "ProgramPoint",
    "StoreInstances",
    "Test",
    "affine",
    "condition",
    "extract",
    "guarded",
    "loads_of",
]
