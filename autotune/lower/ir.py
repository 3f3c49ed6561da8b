"""Loop IR: statements over buffers, with all loop extents known.

Expressions are those of ``te`` with two changes: tensors are read through :class:`Load`, and reductions have
become loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autotune.strides import dense_strides
from autotune.te.expr import Const, Expr, Var
from autotune.te.instructions import Step
from autotune.te.traversal import children


class Buffer:
    """Memory of a tensor: ``scope`` is "argument", "workspace" (whole tensors) or "local" (inside a kernel).

    ``strides`` are in elements, row-major when not given. GPU buffers inside a kernel may be "shared". When code runs,
    an argument's memory is an :class:`autotune.runtime.hal.buffer.Buffer`.
    """

    __slots__ = ("dtype", "name", "scope", "shape", "strides")

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        scope: str,
        strides: tuple[int, ...] | None = None,
    ) -> None:
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.scope = scope
        self.strides = dense_strides(shape) if strides is None else strides

    @property
    def elements(self) -> int:
        """Elements from the first to one past the last."""
        return 1 + sum((d - 1) * s for d, s in zip(self.shape, self.strides, strict=True))

    def __repr__(self) -> str:
        return f"Buffer({self.name}, {self.shape}, {self.dtype}, {self.scope})"


class Load(Expr):
    """An element of a buffer."""

    __slots__ = ("buffer", "indices")

    def __init__(self, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
        self.buffer = buffer
        self.indices = indices
        self.dtype = buffer.dtype

    def text(self, show: Callable[[Expr, int], str]) -> str:
        """Return the text for the expression printer."""
        return f"{self.buffer.name}[{', '.join(show(i, 0) for i in self.indices)}]"


class Stmt:
    """Base of the statements."""

    __slots__ = ()


@dataclass(slots=True)
class Seq(Stmt):
    """Statements one after another."""

    stmts: tuple[Stmt, ...]


AHEAD = "filled ahead"
"""Hint of an allocation in scope "shared": what fills the buffer runs some iterations ahead of its readers. A copy of
an element from memory to it may be under way until the barrier that says so (:class:`Barrier`)."""

NONTEMPORAL = "nontemporal"
"""Hint of a loop: its stores go past the caches, as nothing is read back before the caches are full of other data."""


NEUTRAL = "neutral"
"""Hint of a branch: where its condition does not hold, it would change nothing that is read; it saves the work."""


@dataclass(slots=True)
class For(Stmt):
    """``for var in 0..extent``.

    ``kind`` is serial, parallel, vectorized, unrolled, or the tag of a thread axis that runs the iterations at
    once. ``note`` is a hint for code generators.
    """

    var: Var
    extent: int
    kind: str
    body: Stmt
    note: str = ""


@dataclass(slots=True)
class While(Stmt):
    """``body`` again and again while ``cond`` holds, which is tested first and reads what the body stores."""

    cond: Expr
    body: Stmt


@dataclass(slots=True)
class Let(Stmt):
    """A name for a value in ``body``."""

    var: Var
    value: Expr
    body: Stmt


@dataclass(slots=True)
class If(Stmt):
    """A branch; ``note`` is a hint for who reads the program."""

    cond: Expr
    then: Stmt
    otherwise: Stmt | None
    note: str = ""


@dataclass(frozen=True)
class StoreOrigin:
    """The statement instance that a store belongs to: a stage, a part of its computation, values of its axes.

    ``part`` is "all", or for reductions "init", "update", "load" and "store" of the accumulators and "fold" of a
    partial sum into them. ``component`` counts the outputs of the stage, ``level`` the folds between the accumulators
    and the stage's own result.
    """

    stage: str
    part: str
    instance: tuple[Expr, ...]
    component: int = 0
    level: int = 0


@dataclass(slots=True)
class Store(Stmt):
    """``buffer[indices] = value``; ``origin`` is there when the verifier asked for it."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    origin: StoreOrigin | None = None


@dataclass(slots=True)
class Allocate(Stmt):
    """A local buffer that lives in ``body``; one in scope "shared" is one for all threads of a block.

    ``note`` is a hint for code generators.
    """

    buffer: Buffer
    body: Stmt
    note: str = ""


@dataclass(slots=True)
class Barrier(Stmt):
    """All threads of a block wait for one another.

    With ``in_flight`` they also wait for copies to buffers that are filled ahead: for those that they started before
    the last ``in_flight`` barriers of this kind.
    """

    in_flight: int | None = None


@dataclass(slots=True)
class Prefetch(Stmt):
    """Fetch the line of an element into the caches of ``level`` and beyond; any address is allowed."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    level: int = 1


@dataclass(slots=True)
class Intrinsic(Stmt):
    """A call of a declared intrinsic; ``body`` are the loops that it stands for, and what the interpreter runs.

    ``operands`` are the first elements that it touches, the output first. Where it has instructions, code is made
    of them: ``strides`` are then the steps of each dimension of each operand in elements, ``requires`` the features
    that the target must have.
    """

    name: str
    operands: tuple[Load, ...]
    body: Stmt
    instructions: tuple[Step, ...] = ()
    strides: tuple[tuple[int, ...], ...] = ()
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class External(Stmt):
    """A call of a function from outside of the code, by the symbol under which it is found at load time.

    It is what lowering makes of an :class:`autotune.te.statements.External`.
    ``arguments`` are loads of first elements, passed as pointers, and numbers, passed by value. The function may write
    all elements of ``results`` and read all of ``inputs``.
    """

    symbol: str
    arguments: tuple[Load | Const, ...]
    results: tuple[Load, ...]
    inputs: tuple[Load, ...]


@dataclass(frozen=True)
class LoopKernel:
    """One loop nest that runs between two barriers.

    ``tiles`` is the extent of its parallel loop (1 without one). ``hoisted`` kernels read constants only and
    run at compile time. Those ``in_order`` store what, and in whatever order, a sequential program says.
    """

    name: str
    body: Stmt
    tiles: int
    hoisted: bool
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]
    in_order: bool = False

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """All buffers from outside of the kernel, each once."""
        return tuple(dict.fromkeys(self.reads + self.writes))


def kernel_of(name: str, body: Stmt) -> LoopKernel:
    """Return a kernel with what follows from its body: tiles, and the buffers from outside that it reads and writes."""
    tiles = body.extent if isinstance(body, For) and body.kind == "parallel" else 1
    outer = ("argument", "workspace")
    parts = list(walk(body))
    writes = {p.buffer: None for p in parts if isinstance(p, Store) and p.buffer.scope in outer}
    writes |= {load.buffer: None for p in parts if isinstance(p, External) for load in p.results}
    reads = {n.buffer: None for n in loads(body) if n.buffer.scope in outer and n.buffer not in writes}
    return LoopKernel(name, body, tiles, False, tuple(reads), tuple(writes))


@dataclass(frozen=True)
class LoopProgram:
    """All kernels of a schedule, in order; ``arguments`` in the caller's order, ``outputs`` among them."""

    kernels: tuple[LoopKernel, ...]
    arguments: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    workspaces: tuple[Buffer, ...]


def sequence(stmts: list[Stmt]) -> Stmt:
    """Return the statements as one."""
    return stmts[0] if len(stmts) == 1 else Seq(tuple(stmts))


def walk(stmt: Stmt) -> Iterator[Stmt]:
    """Yield the statement and all below it, in program order."""
    yield stmt
    for part in sub_statements(stmt):
        yield from walk(part)


def sub_statements(stmt: Stmt) -> tuple[Stmt, ...]:
    """Return the direct parts of a statement."""
    if isinstance(stmt, Seq):
        return stmt.stmts
    if isinstance(stmt, For | While | Let | Allocate | Intrinsic):
        return (stmt.body,)
    if isinstance(stmt, If):
        return (stmt.then,) if stmt.otherwise is None else (stmt.then, stmt.otherwise)
    return ()


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """Return expressions that the statement holds itself."""
    if isinstance(stmt, Let):
        return (stmt.value,)
    if isinstance(stmt, If | While):
        return (stmt.cond,)
    if isinstance(stmt, Store):
        return (*stmt.indices, stmt.value)
    if isinstance(stmt, Prefetch):
        return stmt.indices
    if isinstance(stmt, External):
        return (*stmt.results, *stmt.inputs)
    return ()


THREADS = ("blockIdx.", "threadIdx.", "vthread")


def is_thread_axis(kind: str) -> bool:
    """Return whether a loop of this kind runs its iterations as threads or blocks of a GPU.

    >>> is_thread_axis("threadIdx.x"), is_thread_axis("serial")
    (True, False)
    """
    return kind.startswith(THREADS)


def is_block_axis(kind: str) -> bool:
    """Return whether a loop of this kind runs its iterations as blocks of a GPU.

    >>> is_block_axis("blockIdx.x"), is_block_axis("threadIdx.x")
    (True, False)
    """
    return kind.startswith("blockIdx.")


def has_thread_axes(stmt: Stmt) -> bool:
    """Return whether loops inside of a statement are bound to threads or blocks."""
    return any(isinstance(part, For) and is_thread_axis(part.kind) for part in walk(stmt))


def operands(node: Expr) -> tuple[Expr, ...]:
    """Return operands of an expression node, loads included."""
    if isinstance(node, Load):
        return node.indices
    return children(node)


def nodes(*exprs: Expr) -> Iterator[Expr]:
    """Yield each distinct node of the expressions once, loads and their indices included, a node before
    its operands."""
    seen: set[int] = set()
    stack = list(reversed(exprs))
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            parts = operands(node)
            if parts:
                stack.extend(reversed(parts))


def has_load(*exprs: Expr) -> bool:
    """Return whether expressions read memory."""
    return any(isinstance(node, Load) for node in nodes(*exprs))


def uses(expr: Expr, var: Var) -> bool:
    """Return whether an expression depends on a variable directly (values of a Let count as their name)."""
    return any(node is var for node in nodes(expr))


def loads(stmt: Stmt) -> Iterator[Load]:
    """Yield all loads in the statements below."""
    held = [expr for part in walk(stmt) for expr in expressions(part)]
    return (node for node in nodes(*held) if isinstance(node, Load))


__all__ = [
    "AHEAD",
    "NEUTRAL",
    "NONTEMPORAL",
    "Allocate",
    "Barrier",
    "Buffer",
    "External",
    "For",
    "If",
    "Intrinsic",
    "Let",
    "Load",
    "LoopKernel",
    "LoopProgram",
    "Prefetch",
    "Seq",
    "Stmt",
    "Store",
    "StoreOrigin",
    "While",
    "expressions",
    "has_load",
    "has_thread_axes",
    "is_block_axis",
    "is_thread_axis",
    "kernel_of",
    "loads",
    "nodes",
    "operands",
    "sequence",
    "sub_statements",
    "uses",
    "walk",
]
