"""C-like text of loop programs, deterministic."""

from __future__ import annotations

from autotune.lower.ir import Allocate, For, If, Let, LoopProgram, Seq, Stmt, Store
from autotune.te.printer import expr_text

_KEYWORD = {"serial": "for", "parallel": "parallel", "vectorized": "vectorized", "unrolled": "unrolled"}


def program_text(program: LoopProgram) -> str:
    """All kernels of a program."""
    arguments = ", ".join(f"{b.name}: {b.dtype}[{', '.join(map(str, b.shape))}]" for b in program.arguments)
    lines = [f"program({arguments}) {{"]
    for buffer in program.workspaces:
        lines.append(f"  workspace {buffer.name}: {buffer.dtype}[{', '.join(map(str, buffer.shape))}]")
    for kernel in program.kernels:
        lines.append(f"  {'hoisted ' if kernel.hoisted else ''}kernel {kernel.name} {{")
        _stmt(kernel.body, 2, lines)
        lines.append("  }")
    lines.append("}")
    return "\n".join(lines)


def stmt_text(stmt: Stmt) -> str:
    """One statement and all below it."""
    lines: list[str] = []
    _stmt(stmt, 0, lines)
    return "\n".join(lines)


def _stmt(stmt: Stmt, depth: int, lines: list[str]) -> None:
    pad = "  " * depth
    if isinstance(stmt, Seq):
        for part in stmt.stmts:
            _stmt(part, depth, lines)
    elif isinstance(stmt, For):
        lines.append(f"{pad}{_KEYWORD[stmt.kind]} ({stmt.var.name}, 0, {stmt.extent}) {{")
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
        index = ", ".join(expr_text(i) for i in stmt.indices)
        lines.append(f"{pad}{stmt.buffer.name}[{index}] = {expr_text(stmt.value)}")
    elif isinstance(stmt, Allocate):
        shape = ", ".join(map(str, stmt.buffer.shape))
        lines.append(f"{pad}allocate {stmt.buffer.name}: {stmt.buffer.dtype}[{shape}]")
        _stmt(stmt.body, depth, lines)
