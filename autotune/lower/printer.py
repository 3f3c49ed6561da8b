"""C-like text of loop programs, deterministic."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.lower.ir import (
    Allocate,
    Barrier,
    Buffer,
    External,
    For,
    If,
    Intrinsic,
    Let,
    LoopKernel,
    LoopProgram,
    Prefetch,
    Seq,
    Stmt,
    Store,
    While,
)
from autotune.lower.rewrite import substituted, with_parts
from autotune.strides import dense_strides
from autotune.te.expr import Expr, Var
from autotune.te.printer import expr_text

_KEYWORD = {"serial": "for"}


def program_text(program: LoopProgram) -> str:
    """Return all kernels of a program."""
    arguments = ", ".join(f"{b.name}: {b.dtype}[{', '.join(map(str, b.shape))}]" for b in program.arguments)
    lines = [f"program({arguments}) {{"]
    for buffer in program.workspaces:
        lines.append(f"  workspace {buffer_text(buffer)}")
    for kernel in program.kernels:
        lines.append(f"  {'hoisted ' if kernel.hoisted else ''}kernel {kernel.name} {{")
        _stmt(_unambiguous(kernel.body, {}), 2, lines)
        lines.append("  }")
    lines.append("}")
    return "\n".join(lines)


def kernel_text(kernel: LoopKernel) -> str:
    """Return the loops of one kernel."""
    return stmt_text(kernel.body)


def stmt_text(stmt: Stmt) -> str:
    """Return one statement and all below it."""
    lines: list[str] = []
    _stmt(_unambiguous(stmt, {}), 0, lines)
    return "\n".join(lines)


def _unambiguous(stmt: Stmt, names: Mapping[str, int]) -> Stmt:
    """Return the statement with loops renamed that have the name of a loop around them."""
    if isinstance(stmt, For | Let):
        var, count = stmt.var, names.get(stmt.var.name, 0)
        inside = {**names, var.name: count + 1}
        body = stmt.body
        if count:
            var = Var(f"{var.name}_{count}", var.dtype)
            body = substituted(body, {stmt.var: var})
        body = _unambiguous(body, inside)
        if isinstance(stmt, Let):
            return Let(var, stmt.value, body)
        return For(var, stmt.extent, stmt.kind, body, stmt.note)
    return with_parts(stmt, lambda part: _unambiguous(part, names))


def _stmt(stmt: Stmt, depth: int, lines: list[str]) -> None:
    pad = "  " * depth
    if isinstance(stmt, Seq):
        for part in stmt.stmts:
            _stmt(part, depth, lines)
    elif isinstance(stmt, For):
        note = f"  // {stmt.note}" if stmt.note else ""
        keyword = _KEYWORD.get(stmt.kind, stmt.kind)
        lines.append(f"{pad}{keyword} ({stmt.var.name}, 0, {stmt.extent}) {{{note}")
        _stmt(stmt.body, depth + 1, lines)
        lines.append(f"{pad}}}")
    elif isinstance(stmt, While):
        lines.append(f"{pad}while ({expr_text(stmt.cond)}) {{")
        _stmt(stmt.body, depth + 1, lines)
        lines.append(f"{pad}}}")
    elif isinstance(stmt, Let):
        lines.append(f"{pad}let {stmt.var.name} = {expr_text(stmt.value)}")
        _stmt(stmt.body, depth, lines)
    elif isinstance(stmt, If):
        lines.append(f"{pad}if ({expr_text(stmt.cond)}) {{")
        _stmt(stmt.then, depth + 1, lines)
        if stmt.otherwise is not None:
            lines.append(f"{pad}}} else {{")
            _stmt(stmt.otherwise, depth + 1, lines)
        lines.append(f"{pad}}}")
    elif isinstance(stmt, Store):
        lines.append(f"{pad}{_element(stmt.buffer, stmt.indices)} = {expr_text(stmt.value)}")
    elif isinstance(stmt, Allocate):
        note = f"  // {stmt.note}" if stmt.note else ""
        scope = "allocate" if stmt.buffer.scope == "local" else f"allocate {stmt.buffer.scope}"
        lines.append(f"{pad}{scope} {buffer_text(stmt.buffer)}{note}")
        _stmt(stmt.body, depth, lines)
    elif isinstance(stmt, Barrier):
        note = "" if stmt.in_flight is None else f"  // {stmt.in_flight} in flight"
        lines.append(f"{pad}barrier{note}")
    elif isinstance(stmt, Prefetch):
        where = f" to L{stmt.level}" if stmt.level > 1 else ""
        lines.append(f"{pad}prefetch {_element(stmt.buffer, stmt.indices)}{where}")
    elif isinstance(stmt, External):
        lines.append(f"{pad}{stmt.symbol}({', '.join(expr_text(a) for a in stmt.arguments)})")
    elif isinstance(stmt, Intrinsic):
        lines.append(f"{pad}{stmt.name}({', '.join(expr_text(o) for o in stmt.operands)})")


def _element(buffer: Buffer, indices: tuple[Expr, ...]) -> str:
    return f"{buffer.name}[{', '.join(expr_text(i) for i in indices)}]"


def buffer_text(buffer: Buffer) -> str:
    """Return name, type and shape of a buffer, and its strides when they are padded."""
    text = f"{buffer.name}: {buffer.dtype}[{', '.join(map(str, buffer.shape))}]"
    if buffer.strides != dense_strides(buffer.shape):
        text += f" strides [{', '.join(map(str, buffer.strides))}]"
    return text
