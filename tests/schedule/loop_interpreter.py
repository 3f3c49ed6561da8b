"""A checking interpreter of loop IR: every access in bounds, every value read was written.

A second interpreter beside ``autotune.codegen.interpreter``, on purpose: nothing is shared with the shipped one, which
runs threads and barriers in the order of a GPU and trusts the program. This one looks for what it must not rely on.
Loop programs become Python text over flat lists. Workspaces and local buffers start as POISON, so a
read of an element that was never stored raises; parallel and vectorised loops run backwards, so an
order that the schedule had no right to rely on shows. Arithmetic is Python's: exact for the integer
values that the property tests use.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.special

from autotune.lower.ir import (
    Allocate,
    Barrier,
    Buffer,
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
)
from autotune.te.expr import Binary, Call, Cast, Compare, Const, Expr, Not, Select, Var


class AccessError(Exception):
    """An access out of bounds or of an element that was never written."""


class _Poison:
    def __repr__(self) -> str:
        return "POISON"


POISON = _Poison()


def _fetch(array: list[Any], index: int, name: str) -> Any:
    value = array[index]
    if value is POISON:
        raise AccessError(f"{name}[flat {index}] is read before it is written")
    return value


def _in_range(index: int, size: int, name: str) -> int:
    if not 0 <= index < size:
        raise AccessError(f"index {index} of {name} is outside 0..{size}")
    return int(index)


def _limits(dtype: str) -> tuple[int, int]:
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def _cast(value: Any, dtype: str) -> Any:
    if dtype == "bool":
        return bool(value)
    if "float" in dtype:
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return 0 if math.isnan(value) else _limits(dtype)[value > 0]
    return math.trunc(value)


def _saturated(value: Any, dtype: str) -> Any:
    low, high = _limits(dtype)
    return min(max(_cast(value, dtype), low), high)


def _wrapped(value: Any, dtype: str) -> Any:
    low, high = _limits(dtype)
    return (int(value) - low) % (high - low + 1) + low


def _quotient(a: Any, b: Any) -> float:
    """The quotient of floating-point numbers, which Python does not divide by zero."""
    if b != 0:
        return float(a / b)
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)


def _floordiv(a: int, b: int) -> int:
    return a // b if b else 0


def _mod(a: int, b: int) -> int:
    return a % b if b else 0


WRAPPING = ("uint8", "int8", "uint16", "int16", "uint32", "uint64")
OPERATIONS = {"//": _floordiv, "%": _mod, "/": _quotient}


FUNCTIONS: dict[str, Any] = {
    "exp": math.exp,
    "exp_nonpositive": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "erf": lambda x: float(scipy.special.erf(x)),
    "tanh": math.tanh,
    "sigmoid": lambda x: float(scipy.special.expit(x)),
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "sinh": math.sinh,
    "cosh": math.cosh,
    "log1p": math.log1p,
    "log2": math.log2,
    "log10": math.log10,
    "fmod": math.fmod,
    "trunc": math.trunc,
    "abs": abs,
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,
    "pow": pow,
}


class _Text:
    """Python text of one kernel."""

    def __init__(self, memory: dict[str, Any]) -> None:
        self.lines: list[str] = []
        self.memory = memory
        self.names: dict[int, str] = {}
        self.kept: list[Any] = []

    def name(self, thing: Any, prefix: str) -> str:
        if id(thing) not in self.names:
            self.names[id(thing)] = f"{prefix}{len(self.names)}"
            self.kept.append(thing)
        return self.names[id(thing)]

    def index(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        parts = [
            f"_in_range({self.expr(i)}, {d}, {buffer.name!r}) * {s}"
            for i, d, s in zip(indices, buffer.shape, buffer.strides, strict=True)
        ]
        return " + ".join(parts) or "0"

    def expr(self, node: Expr) -> str:
        if isinstance(node, Var):
            return self.name(node, "v")
        if isinstance(node, Const):
            if isinstance(node.value, float) and not math.isfinite(node.value):
                return f"float('{node.value}')"
            return f"({node.value!r})"
        if isinstance(node, Load):
            array = self.name(node.buffer, "b")
            return f"_fetch({array}, {self.index(node.buffer, node.indices)}, {node.buffer.name!r})"
        if isinstance(node, Binary):
            a, b = self.expr(node.a), self.expr(node.b)
            if node.op == "max_number":  # no value here is NaN
                return f"max({a}, {b})"
            if node.op in OPERATIONS:
                text = f"OPERATIONS[{node.op!r}]({a}, {b})"
            else:
                text = f"{node.op}({a}, {b})" if node.op in ("min", "max") else f"({a} {node.op} {b})"
            return f"_wrapped({text}, {node.dtype!r})" if node.dtype in WRAPPING else text
        if isinstance(node, Compare):
            return f"({self.expr(node.a)} {node.op} {self.expr(node.b)})"
        if isinstance(node, Not):
            return f"(not {self.expr(node.a)})"
        if isinstance(node, Select):
            return f"({self.expr(node.a)} if {self.expr(node.cond)} else {self.expr(node.b)})"
        if isinstance(node, Cast):
            how = "_cast"
            if node.dtype in WRAPPING or node.dtype == "int32":
                how = "_saturated" if "float" in node.a.dtype else "_wrapped"
            return f"{how}({self.expr(node.a)}, {node.dtype!r})"
        assert isinstance(node, Call), type(node)
        return f"FUNCTIONS[{node.name!r}]({', '.join(self.expr(a) for a in node.args)})"

    def stmt(self, stmt: Stmt, depth: int) -> None:
        pad = "    " * depth
        if isinstance(stmt, Seq):
            self.lines.append(f"{pad}pass")
            for part in stmt.stmts:
                self.stmt(part, depth)
        elif isinstance(stmt, For):
            order = f"range({stmt.extent})"
            if stmt.kind in ("parallel", "vectorized"):
                order = f"reversed({order})"
            self.lines.append(f"{pad}for {self.name(stmt.var, 'v')} in {order}:")
            self.stmt(stmt.body, depth + 1)
        elif isinstance(stmt, Let):
            self.lines.append(f"{pad}{self.name(stmt.var, 'v')} = {self.expr(stmt.value)}")
            self.stmt(stmt.body, depth)
        elif isinstance(stmt, If):
            self.lines.append(f"{pad}if {self.expr(stmt.cond)}:")
            self.stmt(stmt.then, depth + 1)
            if stmt.otherwise is not None:
                self.lines.append(f"{pad}else:")
                self.stmt(stmt.otherwise, depth + 1)
        elif isinstance(stmt, Store):
            array = self.name(stmt.buffer, "b")
            place = self.index(stmt.buffer, stmt.indices)
            self.lines.append(f"{pad}{array}[{place}] = {self.expr(stmt.value)}")
        elif isinstance(stmt, Intrinsic):
            self.stmt(stmt.body, depth)
        elif isinstance(stmt, Prefetch):  # any address is fine, but what the address is read from is checked
            self.lines.append(f"{pad}({', '.join(map(self.expr, stmt.indices))},)")
        elif isinstance(stmt, Barrier):
            self.lines.append(f"{pad}pass")
        else:
            assert isinstance(stmt, Allocate), type(stmt)
            array = self.name(stmt.buffer, "b")
            self.lines.append(f"{pad}{array} = [POISON] * {stmt.buffer.elements}")
            self.stmt(stmt.body, depth)


def run_program(
    program: LoopProgram, arrays: dict[str, Any], in_place: Sequence[tuple[Buffer, Buffer]] = ()
) -> dict[str, Any]:
    """Values of all arguments after the kernels ran; ``arrays`` are the inputs by name.

    Pairs of an output and an input that are ``in_place`` are one memory.
    """
    memory: dict[int, list[Any]] = {}
    for buffer in (*program.arguments, *program.workspaces):
        memory[id(buffer)] = [POISON] * buffer.elements
        if buffer.name in arrays:
            for place, value in zip(_places(buffer), arrays[buffer.name].ravel().tolist(), strict=True):
                memory[id(buffer)][place] = value
    for output, source in in_place:
        memory[id(output)] = memory[id(source)]
    for kernel in program.kernels:
        text = _Text({})
        outer = (*program.arguments, *program.workspaces)
        names = [text.name(buffer, "b") for buffer in outer]
        text.lines.append(f"def kernel({', '.join(names)}):")
        text.stmt(kernel.body, 1)
        space = {
            "_fetch": _fetch,
            "_in_range": _in_range,
            "_cast": _cast,
            "_saturated": _saturated,
            "_wrapped": _wrapped,
            "OPERATIONS": OPERATIONS,
            "FUNCTIONS": FUNCTIONS,
            "POISON": POISON,
        }
        exec(compile("\n".join(text.lines), kernel.name, "exec"), space)
        space["kernel"](*(memory[id(buffer)] for buffer in outer))
    return {
        buffer.name: _array(memory[id(buffer)], buffer)
        for buffer in program.arguments
        if buffer.name not in arrays
    }


def _places(buffer: Buffer) -> list[int]:
    """Flat position of every element, in row-major order of the indices."""
    places = np.zeros((), np.int64)
    for size, stride in zip(buffer.shape, buffer.strides, strict=True):
        places = places[..., None] + np.arange(size) * stride
    return [int(p) for p in places.ravel()]


def _array(memory: list[Any], buffer: Buffer) -> Any:
    places = _places(buffer)
    values = [memory[p] for p in places]
    missing = sum(v is POISON for v in values)
    if missing:
        raise AccessError(f"{missing} elements of {buffer.name} are never written")
    if sum(v is not POISON for v in memory) != len(places):
        raise AccessError(f"elements between those of {buffer.name} were written")
    return np.array(values, dtype=buffer.dtype).reshape(buffer.shape)
