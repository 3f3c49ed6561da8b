"""Reading the text of a program back: parsed and walked as Python's syntax, never run."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from autotune.errors import ScheduleError
from autotune.te.depth import walks_deep
from autotune.te.dtypes import dtype_named
from autotune.te.expr import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    IterVar,
    Not,
    Reduce,
    Reducer,
    Select,
    Var,
    const,
)
from autotune.te.reductions import SHIPPED
from autotune.te.tensor import ComputeOp, PlaceholderOp, Tensor
from autotune.te.text import HEADER
from autotune.te.traversal import substitute
from autotune.te.values import FUNCTIONS

_BINARY: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.And: "and",
    ast.Or: "or",
}
_COMPARE: dict[type[ast.AST], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
_CALLED = ("min", "max", "max_number")


def parse_program(text: str) -> tuple[Tensor, ...]:
    """Return the arguments of a program from what :func:`autotune.te.text.program_text` wrote.

    Raises ScheduleError naming the line for anything else: a text is data, whoever wrote it.
    """
    lines = text.strip().splitlines()
    if not lines or lines[0] != HEADER:
        raise ScheduleError(f"not the text of a program: {text[:80]!r}")
    reader = _Reader()
    for number, line in enumerate(lines[1:], 2):
        try:
            reader.line(line)
        except (
            ScheduleError,
            SyntaxError,
            TypeError,
            ValueError,
            KeyError,
            IndexError,
            RecursionError,
        ) as error:
            raise ScheduleError(f"line {number} of a program, {line[:80]}: {error}") from error
    if not reader.arguments:
        raise ScheduleError("the text of a program ends without its arguments")
    return reader.arguments


class _Reader:
    """Reads line after line; ``tensors`` are the operations so far."""

    def __init__(self) -> None:
        self.tensors: dict[str, PlaceholderOp | ComputeOp] = {}
        self.arguments: tuple[Tensor, ...] = ()

    def line(self, text: str) -> None:
        """Parse one operation, or the arguments at the end."""
        (statement,) = ast.parse(text).body
        if isinstance(statement, ast.Expr):
            name, args = _called(statement.value)
            if name != "arguments":
                raise ScheduleError("expected arguments(...)")
            self.arguments = tuple(self._tensor(arg) for arg in args)
            return
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            raise ScheduleError("expected a tensor and what computes it")
        name, args = _called(statement.value)
        if name == "placeholder":
            label, shape, dtype = map(ast.literal_eval, args)
            made: PlaceholderOp | ComputeOp = PlaceholderOp(_text(label), _extents(shape), dtype_named(dtype))
        elif name == "compute":
            made = self._compute(*args)
        else:
            raise ScheduleError(f"unknown operation {name!r}")
        self.tensors[statement.targets[0].id] = made

    def _compute(self, label: ast.expr, axes: ast.expr, *parts: ast.expr) -> ComputeOp:
        data = _loops(axes, "data")
        names: dict[str, Expr] = {f"i{n}": axis for n, axis in enumerate(data)}
        reduced = self._reduction(parts[0]) if len(parts) == 1 else None
        if reduced is None:
            scope = _Scope(self._tensor, names)
            body = tuple(scope.expr(part) for part in parts)
        else:
            reducer, (loops, *sources) = reduced
            over = _loops(loops, "reduce")
            scope = _Scope(self._tensor, names | {f"r{n}": axis for n, axis in enumerate(over)})
            values = tuple(scope.expr(source) for source in sources)
            body = tuple(Reduce(reducer, values, over, n) for n in range(len(values)))
        if not body:
            raise ScheduleError("an operation computes at least one value")
        return ComputeOp(_text(ast.literal_eval(label)), data, body)

    def _reduction(self, node: ast.expr) -> tuple[Reducer, list[ast.expr]] | None:
        """Return the reducer and the rest, where the expression is a reduction."""
        if not isinstance(node, ast.Call):
            return None
        if isinstance(node.func, ast.Call):
            return _reducer(*_called(node.func)[1]), node.args
        name, args = _called(node)
        listed = bool(args) and isinstance(args[0], ast.List)
        return (SHIPPED[name], args) if name in SHIPPED and listed else None

    def _tensor(self, node: ast.expr) -> Tensor:
        index = 0
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "output":
            index, node = int(ast.literal_eval(node.args[0])), node.func.value
        if not isinstance(node, ast.Name) or node.id not in self.tensors:
            raise ScheduleError(f"{ast.unparse(node)} is no tensor")
        op = self.tensors[node.id]
        if not 0 <= index < len(op.dtypes):
            raise ScheduleError(f"{op.name} has no output {index}")
        return op.output(index)


class _Scope:
    """Expressions over the loops of one operation; ``(x := ...)`` adds a name."""

    def __init__(self, tensor: Callable[[ast.expr], Tensor], names: dict[str, Expr]) -> None:
        self._tensor = tensor
        self._names = names

    @walks_deep
    def expr(self, node: ast.expr) -> Expr:
        """Return the expression that a node of Python's syntax stands for."""
        return self._expr(node)

    def _expr(self, node: ast.expr) -> Expr:
        if isinstance(node, ast.Name):
            if node.id in self._names:
                return self._names[node.id]
            raise ScheduleError(f"unknown name {node.id!r}")
        if isinstance(node, ast.NamedExpr):
            return self._names.setdefault(node.target.id, self._expr(node.value))
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            return self._binary(_BINARY[type(node.op)], node.left, node.right)
        if isinstance(node, ast.BoolOp):
            first, *rest = node.values
            found = self._expr(first)
            for value in rest:
                found = _joined(_BINARY[type(node.op)], found, self._expr(value))
            return found
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
            return Compare(
                _COMPARE[type(node.ops[0])], *_alike(self._expr(node.left), self._expr(node.comparators[0]))
            )
        if isinstance(node, ast.Subscript):
            inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            return self._tensor(node.value)(*map(self._expr, inside))
        if isinstance(node, ast.Call):
            return self._call(*_called(node))
        return _constant(node)

    def _binary(self, op: str, left: ast.expr, right: ast.expr) -> Expr:
        return _joined(op, self._expr(left), self._expr(right))

    def _call(self, name: str, args: list[ast.expr]) -> Expr:
        if name in _CALLED:
            return self._binary(name, *args)
        if name == "invert":
            return Not(*map(self._expr, args))
        if name == "select":
            condition, *sides = map(self._expr, args)
            return Select(condition, *_alike(*sides))
        if name == "const":
            dtype, value = args
            return Const(_number(value), dtype_named(ast.literal_eval(dtype)))
        if name == "float":
            return Const(_number(ast.Call(ast.Name("float"), args, [])), "float32")
        if name == "cast":
            return Cast(self._expr(args[1]), dtype_named(ast.literal_eval(args[0])))
        if name == "call":
            function, dtype = map(ast.literal_eval, args[:2])
            if function not in FUNCTIONS:
                raise ScheduleError(f"unknown function {function!r}")
            return Call(function, tuple(map(self._expr, args[2:])), dtype_named(dtype))
        raise ScheduleError(f"unknown function {name!r}")


def _reducer(label: ast.expr, combined: ast.expr, start: ast.expr) -> Reducer:
    """Return a reducer from what it does to accumulators ``a0, ...`` and values ``b0, ...``, and its start values."""
    if not isinstance(combined, ast.List) or not isinstance(start, ast.List):
        raise ScheduleError("a reducer is reducer(name, [new accumulators], [start values])")
    identity = tuple(_Scope(_no_tensor, {}).expr(node) for node in start.elts)
    pairs = [(Var(f"a{n}", e.dtype), Var(f"b{n}", e.dtype)) for n, e in enumerate(identity)]
    scope = _Scope(_no_tensor, {var.name: var for pair in pairs for var in pair})
    body = tuple(scope.expr(node) for node in combined.elts)

    def combine(accumulators: tuple[Expr, ...], values: tuple[Expr, ...]) -> tuple[Expr, ...]:
        known: dict[Expr, Expr] = {}
        for (a, b), accumulator, value in zip(pairs, accumulators, values, strict=True):
            known[a], known[b] = accumulator, value
        return tuple(substitute(e, known) for e in body)

    return Reducer(_text(ast.literal_eval(label)), combine, lambda _: identity)


def _no_tensor(node: ast.expr) -> NoReturn:
    raise ScheduleError("a reducer reads no tensors")


def _called(node: ast.expr) -> tuple[str, list[ast.expr]]:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.keywords:
        raise ScheduleError(f"{ast.unparse(node)} is not understood")
    return node.func.id, node.args


def _loops(node: ast.expr, kind: str) -> tuple[IterVar, ...]:
    found = ast.literal_eval(node)
    if not all(isinstance(loop, tuple) and len(loop) in (2, 3) for loop in found):
        raise ScheduleError("loops are pairs of a name and an extent")
    extents = [_extents(loop[1:]) for loop in found]
    return tuple(
        IterVar(_text(name), extent, kind, sum(start))
        for (name, *_), (extent, *start) in zip(found, extents, strict=True)
    )


def _extents(value: Any) -> tuple[int, ...]:
    if not isinstance(value, tuple) or not all(type(n) is int for n in value) or min(value, default=0) < 0:
        raise ScheduleError(f"expected numbers of at least 0, got {value!r}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ScheduleError(f"expected a name, got {value!r}")
    return value


def _alike(*operands: Expr) -> Sequence[Expr]:
    if len({operand.dtype for operand in operands}) != 1:
        raise ScheduleError(f"operands have the types {', '.join(operand.dtype for operand in operands)}")
    return operands


def _joined(op: str, a: Expr, b: Expr) -> Expr:
    x, y = _alike(a, b)
    return Binary(op, x, y, x.dtype)


def _constant(node: ast.expr) -> Expr:
    value = _number(node)
    return Const(value, "float32") if isinstance(value, float) else const(value)


def _number(node: ast.expr) -> int | float | bool:
    """Return a number or truth value; ``float("inf")`` and the like are those that Python has no literal for."""
    if isinstance(node, ast.Call):
        name, (text,) = _called(node)
        word = ast.literal_eval(text)
        if name != "float" or word not in ("inf", "-inf", "nan"):
            raise ScheduleError(f"{ast.unparse(node)} is no number")
        return math.inf if word == "inf" else -math.inf if word == "-inf" else math.nan
    value = ast.literal_eval(node)
    if not isinstance(value, int | float):
        raise ScheduleError(f"{ast.unparse(node)} is no number")
    return value


__all__ = ["parse_program"]
