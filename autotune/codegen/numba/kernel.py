"""Loop kernels to functions of Python: which lines each statement becomes.

Local memory is allocated once, at the start of the function or of a tile; that of a single element is a variable.
Loops over threads of a block have been taken apart at barriers, so that these are nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from autotune.codegen.numba.expressions import WRITTEN, Expressions
from autotune.codegen.numba.functions import DECORATOR
from autotune.codegen.numba.types import Value, constant, memory_type
from autotune.codegen.numba.writer import Names, Writer, identifier
from autotune.errors import BuildError
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
    LoopKernel,
    Prefetch,
    Seq,
    Stmt,
    Store,
    While,
    walk,
)
from autotune.te.dtypes import HALVES, is_float
from autotune.te.expr import Binary, Const, Expr
from autotune.te.narrow import NARROW

_PARALLEL = DECORATOR.replace("(", "(parallel=True, ")


def kernel_text(kernel: LoopKernel, symbol: str, functions: set[str], taken: frozenset[str]) -> str:
    """Return the text of a kernel as a function of its buffers, which are named as the program names them.

    One with a parallel loop runs the tiles from ``begin`` to ``end``, all of them where it is not told. Raises
    BuildError where there is no code for a part of it.
    """
    names = Names(taken)
    arguments = {buffer: names.fresh(buffer.name) for buffer in kernel.buffers}
    if any(isinstance(part, External) for part in walk(kernel.body)):
        lines, decorator, tiles = _calls(kernel.body, arguments), "", ""
    else:
        code = _KernelText(Writer(functions, names), arguments)
        tiles = code.emit(kernel.body)
        lines, decorator = code.code.lines, f"{_PARALLEL if tiles else DECORATOR}\n"
    signature = ", ".join([*arguments.values(), *([tiles] if tiles else [])])
    head = f'def {symbol}({signature}):\n    """{_documentation(kernel)}"""'
    return "\n".join([f"{decorator}{head}", *(lines or ["    pass"])])


def _documentation(kernel: LoopKernel) -> str:
    stored = ", ".join(identifier(b.name) for b in kernel.writes)
    return f"Stage {kernel.name}: stores {stored}."


def _calls(body: Stmt, arguments: dict[Buffer, str]) -> list[str]:
    """Return calls of functions from outside of the program, made by Python."""
    if isinstance(body, Seq):
        return [line for part in body.stmts for line in _calls(part, arguments)]
    if not isinstance(body, External):
        raise BuildError("code for numba calls functions of te.extern by themselves, not inside of loops")
    given = [
        f"np.{a.dtype}({constant(a).text})" if isinstance(a, Const) else arguments[a.buffer]
        for a in body.arguments
    ]
    return [f"    library.call({body.symbol!r}, [{', '.join(given)}])"]


class _KernelText:
    """The body of one function."""

    def __init__(self, code: Writer, arguments: dict[Buffer, str]) -> None:
        self.code = code
        self.expressions = Expressions(code, dict(arguments))
        self._emit: dict[type[Stmt], Callable[[Any], None]] = {
            Seq: self._sequence,
            For: self._loop,
            While: self._while,
            Store: self._store,
            Allocate: lambda node: self.statement(node.body),
            Let: self._let,
            If: self._if,
            Intrinsic: self._intrinsic,
            Prefetch: lambda node: None,
            Barrier: lambda node: None,
        }

    def emit(self, body: Stmt) -> str:
        """Write the lines; returns the parameters for tiles, which a kernel with a parallel loop has."""
        if not isinstance(body, For) or body.kind != "parallel":
            self._allocate(body)
            self.statement(body)
            return ""
        begin, end = self.code.names.fresh("begin"), self.code.names.fresh("end")
        with self._counted(body, f"prange({begin}, {end})", ""):
            self._allocate(body.body)
            self.statement(body.body)
        return f"{begin}=0, {end}={body.extent}"

    def statement(self, node: Stmt) -> None:
        """Write a statement."""
        emit = self._emit.get(type(node))
        if emit is None:
            raise BuildError(f"no code for statement {type(node).__name__}")
        emit(node)

    def _allocate(self, body: Stmt) -> None:
        """Allocate all local buffers: what they hold is stored before it is read, wherever they are allocated."""
        for part in walk(body):
            if not isinstance(part, Allocate):
                continue
            buffer = part.buffer
            name = self.code.names.fresh(buffer.name)
            note = f"  # {buffer.name}" if name != buffer.name else ""
            if all(extent == 1 for extent in buffer.shape):
                self.expressions.variables[buffer] = name
                self.code.line(f"{name} = {_zero(buffer.dtype)}{note}")
            else:
                self.expressions.arrays[buffer] = name
                shape = ", ".join(map(str, buffer.shape)) + ("," if len(buffer.shape) == 1 else "")
                self.code.line(f"{name} = np.empty(({shape}), np.{memory_type(buffer.dtype)}){note}")

    @contextmanager
    def _counted(self, node: For, iterations: str, note: str) -> Iterator[None]:
        """Open a loop, whose variable has its name until the loop ends."""
        name = self.code.names.fresh(node.var.name)
        self.expressions.env[node.var] = Value(name, "int64")
        with self.code.block(f"for {name} in {iterations}", note):
            yield
        self.code.names.release(name)

    # -- kinds -----------------------------------------------------------------------------------------------

    def _sequence(self, node: Seq) -> None:
        """Write the parts; those that store for different stages have these as comments."""
        stored = [_stored(part) for part in node.stmts]
        several = len({name for name in stored if name}) > 1
        last = ""
        for part, name in zip(node.stmts, stored, strict=True):
            if several and name and name != last and not isinstance(part, Store):
                self.code.line(f"# {name}")
            last = name or last
            self.statement(part)

    def _loop(self, node: For) -> None:
        note = "" if node.kind == "serial" else node.kind
        with self._counted(node, f"range({node.extent})", note):
            self.statement(node.body)

    def _while(self, node: While) -> None:
        """Work the condition out anew each time round."""
        with self.code.statement(), self.code.aside() as lines:
            self.expressions.begin(node.cond)
            cond = self.expressions.value(node.cond)
        if not lines:
            with self.code.block(f"while {cond.text}"):
                self.statement(node.body)
            return
        with self.code.block("while True"):
            for line in lines:
                self.code.further(line)
            with self.code.block(f"if not ({cond.text})"):
                self.code.line("break")
            self.statement(node.body)

    def _store(self, node: Store) -> None:
        with self.code.statement():
            self.expressions.begin(*node.indices, node.value)
            target = self.expressions.place(node.buffer, node.indices)
            dtype = node.buffer.dtype
            added = _added(node)
            if added is not None:
                self.code.line(f"{target} += {self.expressions.value(added).text}")
                return
            text = self.expressions.value(node.value).text
            if dtype in WRITTEN and node.buffer not in self.expressions.variables:
                text = f"{self.code.function(WRITTEN[dtype])}({text})"
            self.code.line(f"{target} = {text}")

    def _let(self, node: Let) -> None:
        with self.code.statement():
            self.expressions.begin(node.value)
            value = self.expressions.value(node.value)
            self.expressions.env[node.var] = self.code.named(value, node.var.name)
        self.statement(node.body)

    def _intrinsic(self, node: Intrinsic) -> None:
        self.code.line(f"# {node.name}")
        self.statement(node.body)

    def _if(self, node: If) -> None:
        with self.code.statement():
            self.expressions.begin(node.cond)
            cond = self.expressions.value(node.cond)
        with self.code.block(f"if {cond.text}"):
            self.statement(node.then)
        if node.otherwise is not None:
            with self.code.block("else"):
                self.statement(node.otherwise)


def _zero(dtype: str) -> str:
    """Return a first value of a variable, which gives it a type."""
    return "np.uint8(0)" if dtype in NARROW else constant(Const(0, dtype)).text


def _stored(stmt: Stmt) -> str:
    """Return the name of the one buffer that a statement stores to; empty where there are several."""
    names = {part.buffer.name for part in walk(stmt) if isinstance(part, Store)}
    return next(iter(names)) if len(names) == 1 else ""


def _added(node: Store) -> Expr | None:
    """Return what a store adds to the element that it stores to, where ``+=`` says the same."""
    value, dtype = node.value, node.buffer.dtype
    if dtype in HALVES or not (is_float(dtype) or dtype == "int64"):
        return None
    if not isinstance(value, Binary) or value.op != "+" or not isinstance(value.a, Load):
        return None
    same = value.a.buffer is node.buffer and all(
        a is b or (isinstance(a, Const) and isinstance(b, Const) and a.value == b.value)
        for a, b in zip(value.a.indices, node.indices, strict=True)
    )
    return value.b if same else None


__all__ = ["kernel_text"]
