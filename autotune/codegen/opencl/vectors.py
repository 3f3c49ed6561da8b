"""Vectorized loops as vectors of OpenCL C, where all that they do is arithmetic on neighbours in memory.

Lanes are computed in float32, float64 or int32 with the language's vectors of 2, 4, 8 or 16. Accesses take any
alignment of an element: on GPUs they are ``vload`` and ``vstore``. On CPUs those are functions of a library, which a
driver may make of parts, so that accumulators are no longer kept in registers, or leave as calls: there they are
pointers to vectors of less alignment, which all compilers made from clang know. Loops that do more (another type, a
choice that differs from lane to lane, lanes that are folded into one element) are loops over scalars, which compilers
of CPUs vectorize themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.codegen.opencl.types import Value, vector_type, whole
from autotune.lower.ir import (
    Allocate,
    Buffer,
    For,
    Load,
    Seq,
    Stmt,
    Store,
    expressions,
    nodes,
    sub_statements,
    uses,
)
from autotune.te.expr import Binary, Call, Compare, Const, Expr, Not, Select, Var

if TYPE_CHECKING:
    from autotune.codegen.opencl.expressions import Expressions

_TYPES = ("float32", "float64")
_SIGNS = {"+", "-", "*", "/"}
_CALLS = (
    "exp",
    "exp_nonpositive",
    "log",
    "sqrt",
    "floor",
    "ceil",
    "abs",
    "tanh",
    "sigmoid",
    "erf",
    "trunc",
    "round",
)
"""Functions that are the same on vectors."""
_WIDTHS = (16, 8, 4, 2)


def coefficient(node: Expr, variable: Var) -> int | None:
    """Return the number of steps that an index makes for one of a variable; None where it is not a line.

    >>> i = Var("i")
    >>> coefficient(i * 4 + 3, i), coefficient(i // 2, i), coefficient(Var("j") * 2, i)
    (4, None, 0)
    """
    if node is variable:
        return 1
    if not uses(node, variable):
        return 0
    if not isinstance(node, Binary) or node.op not in ("+", "-", "*"):
        return None
    a, b = coefficient(node.a, variable), coefficient(node.b, variable)
    if a is None or b is None:
        return None
    if node.op == "*":
        if isinstance(node.b, Const):
            return a * int(node.b.value)
        return b * int(node.a.value) if isinstance(node.a, Const) else None
    return a + b if node.op == "+" else a - b


def step(access: Load | Store, variable: Var) -> int | None:
    """Return elements from one lane's access to the next one's."""
    total = 0
    for index, stride in zip(access.indices, access.buffer.strides, strict=True):
        found = coefficient(index, variable)
        if found is None:
            return None
        total += found * stride
    return total


@dataclass(frozen=True)
class _Lanes:
    """The lanes that are written now."""

    variable: Var
    first: int
    count: int


class Vectors:
    """Writes vectorized loops; ``lanes`` is what the device likes for float32.

    ``spaces`` are the address spaces of buffers, where memory is accessed by pointers to vectors.
    """

    def __init__(
        self, expressions: Expressions, lanes: int, spaces: Mapping[Buffer, str] | None = None
    ) -> None:
        self.expressions = expressions
        self.spaces = spaces
        self.code = expressions.code
        self.lanes = lanes
        self.packed: dict[Buffer, int] = {}
        """Buffers that are arrays of vectors of so many lanes: compilers keep these in registers."""

    def packing(self, node: Allocate) -> int:
        """Return lanes of the vectors that a buffer is an array of, 0 where it is one of single elements."""
        buffer = node.buffer
        if buffer.dtype not in _TYPES or not buffer.shape:
            return 0
        found = _packed_width(self, node.body, buffer)
        return found if found > 1 and buffer.elements % found == 0 else 0

    def widths(self, extent: int) -> list[int]:
        """Return lanes of the vectors that cover so many iterations, one after another."""
        found, widest = list[int](), max(2, min(self.lanes, 16))
        while extent > 0:
            found.append(next((w for w in _WIDTHS if w <= min(widest, extent)), 1))
            extent -= found[-1]
        return found

    def loop(self, node: For, scalar: Callable[[], None]) -> None:
        """Write a vectorized loop; ``scalar`` writes it as a loop over elements."""
        stores = _stores(node.body)
        if stores is None or not self.suits(node):
            scalar()
            return
        at = 0
        for width in self.widths(node.extent):
            for store in stores:
                self._store(store, _Lanes(node.var, at, width))
            at += width

    # -- what can be ----------------------------------------------------------------------------------------

    def suits(self, node: For) -> bool:
        """Return whether a loop is written with vectors."""
        stores = _stores(node.body)
        return stores is not None and node.extent > 1 and all(self._suits(s, node.var) for s in stores)

    def _suits(self, store: Store, variable: Var) -> bool:
        return (
            store.buffer.dtype in _TYPES
            and step(store, variable) == 1
            and self._computes(store.value, variable, store.buffer.dtype)
        )

    def _computes(self, node: Expr, variable: Var, dtype: str) -> bool:
        if not any(found is variable for found in nodes(node)):
            return node.dtype == dtype
        if node.dtype != dtype:
            return False
        if isinstance(node, Load):
            return step(node, variable) in (0, 1)
        if isinstance(node, Binary):
            parts = node.op in _SIGNS or node.op in ("min", "max", "max_number")
            return parts and all(self._computes(p, variable, dtype) for p in (node.a, node.b))
        if isinstance(node, Call):
            return node.name in _CALLS and self._computes(node.args[0], variable, dtype)
        if isinstance(node, Select):
            same = not any(found is variable for found in nodes(node.cond))
            flat = isinstance(node.cond, Compare | Binary | Not)
            return same and flat and all(self._computes(p, variable, dtype) for p in (node.a, node.b))
        return False

    # -- how ------------------------------------------------------------------------------------------------

    def _store(self, store: Store, lanes: _Lanes) -> None:
        e = self.expressions
        e.env[lanes.variable] = whole(lanes.first)
        e.ranges.loop(lanes.variable, lanes.first, lanes.first)
        with self.code.statement():
            e.begin(*store.indices, store.value)
            place, pointer = e.place(store.buffer, store.indices), e.pointer(store.buffer)
            if lanes.count == 1:
                self.code.line(f"{pointer}[{place.text}] = {e.value(store.value).text};")
                return
            value = self._spread(self._value(store.value, lanes), store.buffer.dtype, lanes)
            if store.buffer in self.packed:
                self.code.line(f"{pointer}[{_vector_number(place, lanes.count)}] = {value.text};")
                return
            if self.spaces is not None:
                self.code.line(f"{self._pointed(store.buffer, place, lanes.count)} = {value.text};")
                return
            self.code.line(f"vstore{lanes.count}({value.text}, 0, {pointer} + {_bracketed(place)});")

    def _value(self, node: Expr, lanes: _Lanes) -> tuple[Value, bool]:
        """Return a value, and whether it has lanes."""
        if not any(found is lanes.variable for found in nodes(node)):
            return self.expressions.value(node), False
        known = self.code.known(~id(node))
        if known is None:
            known = self._lanes(node, lanes)
            if known.depth > 12:
                known = self.code.named(known, "v", vector_type(node.dtype, lanes.count))
            self.code.remember(~id(node), known)
        return known, True

    def _lanes(self, node: Expr, lanes: _Lanes) -> Value:
        if isinstance(node, Load):
            return self._load(node, lanes)
        if isinstance(node, Select):
            return self._select(node, lanes)
        if isinstance(node, Call):
            return self._call(node, lanes)
        assert isinstance(node, Binary)
        sides = [self._value(part, lanes) for part in (node.a, node.b)]
        depth = max(value.depth for value, _ in sides) + 1
        if node.op in _SIGNS:
            a, b = (value.text for value, _ in sides)
            return Value(f"({a} {node.op} {b})", node.dtype, None, depth)
        # Each side is read more than once.
        wide = [
            self.code.named(self._spread(side, node.dtype, lanes), "v", vector_type(node.dtype, lanes.count))
            for side in sides
        ]
        a, b = wide[0].text, wide[1].text
        if node.op == "max_number":
            return Value(f"select({a}, {b}, {b} > {a})", node.dtype, None, 1)
        sign = "<" if node.op == "min" else ">"
        return Value(f"select({b}, {a}, ({a} {sign} {b}) | ({a} != {a}))", node.dtype, None, 1)

    def _load(self, node: Load, lanes: _Lanes) -> Value:
        if step(node, lanes.variable) == 0:
            value = self.expressions.value(node)
            return self._spread((value, False), node.dtype, lanes)
        place = self.expressions.place(node.buffer, node.indices)
        pointer = self.expressions.pointer(node.buffer)
        if node.buffer in self.packed:
            return Value(f"{pointer}[{_vector_number(place, lanes.count)}]", node.dtype, None, 1)
        if self.spaces is not None:
            return Value(self._pointed(node.buffer, place, lanes.count, "const "), node.dtype, None, 1)
        return Value(f"vload{lanes.count}(0, {pointer} + {_bracketed(place)})", node.dtype, None, 1)

    def _pointed(self, buffer: Buffer, place: Value, lanes: int, const: str = "") -> str:
        """Return lanes in memory from an element on."""
        assert self.spaces is not None
        kind = self.code.function(f"at_{vector_type(buffer.dtype, lanes)}")
        pointer = self.expressions.pointer(buffer)
        return f"*({self.spaces[buffer]} {const}{kind} *)({pointer} + {_bracketed(place)})"

    def _call(self, node: Call, lanes: _Lanes) -> Value:
        from autotune.codegen.opencl.expressions import FUNCTIONS

        value = self._spread(self._value(node.args[0], lanes), node.dtype, lanes)
        if node.name == "sigmoid":
            kind, suffix = vector_type(node.dtype, lanes.count), "" if node.dtype == "float64" else "f"
            x = self.code.named(value, "x", kind).text
            e = self.code.named(Value(f"exp(-fabs({x}))", node.dtype), "e", kind).text
            text = f"(select(({kind})(1.0{suffix}), {e}, {x} < ({kind})(0.0{suffix})) / (1.0{suffix} + {e}))"
            return Value(text, node.dtype, None, 2)
        return Value(f"{FUNCTIONS[node.name]}({value.text})", node.dtype, None, value.depth + 1)

    def _select(self, node: Select, lanes: _Lanes) -> Value:
        """Return one condition for all lanes: a branch."""
        cond = self.expressions.value(node.cond)
        if cond.number is not None:
            side = self._value(node.a if cond.number else node.b, lanes)
            return self._spread(side, node.dtype, lanes)
        name = self.code.fresh("s")
        self.code.line(f"{vector_type(node.dtype, lanes.count)} {name};")
        for head, part in ((f"if ({cond.text})", node.a), ("else", node.b)):
            with self.code.block(head):
                value = self._spread(self._value(part, lanes), node.dtype, lanes)
                self.code.line(f"{name} = {value.text};")
        return Value(name, node.dtype)

    def _spread(self, side: tuple[Value, bool], dtype: str, lanes: _Lanes) -> Value:
        """Return the value in all lanes."""
        value, wide = side
        if wide:
            return value
        return Value(f"({vector_type(dtype, lanes.count)})({value.text})", dtype, None, value.depth + 1)


def _bracketed(place: Value) -> str:
    return place.text if place.number is not None else f"({place.text})"


def _vector_number(place: Value, lanes: int) -> str:
    return str(place.number // lanes) if place.number is not None else f"({place.text}) / {lanes}"


def _packed_width(vectors: Vectors, body: Stmt, buffer: Buffer) -> int:
    """Return lanes of all vectors that access a buffer, each at a multiple of them; 0 where that is not
    how it is accessed."""
    widths = set[int]()
    pending: list[tuple[Stmt, For | None]] = [(body, None)]
    while pending:
        stmt, around = pending.pop()
        if isinstance(stmt, For) and stmt.kind == "vectorized" and vectors.suits(stmt):
            around = stmt
        found: list[Load | Store] = [n for n in nodes(*expressions(stmt)) if isinstance(n, Load)]
        found += [stmt] if isinstance(stmt, Store) else []
        for access in (each for each in found if each.buffer is buffer):
            if around is None or step(access, around.var) != 1:
                return 0
            widths |= {*vectors.widths(around.extent)}
            if len(widths) > 1 or not _multiple(access, around.var, max(widths)):
                return 0
        pending += [(part, around) for part in sub_statements(stmt)]
    return widths.pop() if len(widths) == 1 else 0


def _multiple(access: Load | Store, lane: Var, width: int) -> bool:
    """Return whether the first lane of an access is at a multiple of ``width``."""
    for index, stride in zip(access.indices, access.buffer.strides, strict=True):
        if stride % width == 0:
            continue
        form = _form(index, lane)
        if form is None or any(c * stride % width for c in form):
            return False
    return True


def _form(node: Expr, lane: Var) -> list[int] | None:
    """Return the constant and coefficients of an index that is a line, that of the lane's variable left out."""
    if isinstance(node, Const):
        return [int(node.value)]
    if isinstance(node, Var):
        return [] if node is lane else [1]
    if isinstance(node, Binary) and node.op in ("+", "-"):
        a, b = _form(node.a, lane), _form(node.b, lane)
        return None if a is None or b is None else a + b
    if isinstance(node, Binary) and node.op == "*":
        for factor, other in ((node.b, node.a), (node.a, node.b)):
            if isinstance(factor, Const):
                form = _form(other, lane)
                return None if form is None else [c * int(factor.value) for c in form]
    return None


def _stores(body: Stmt) -> Sequence[Store] | None:
    """Return the stores that a body is, None where it is something else."""
    if isinstance(body, Store):
        return [body]
    if isinstance(body, Seq) and all(isinstance(part, Store) for part in body.stmts):
        return [part for part in body.stmts if isinstance(part, Store)]
    return None


__all__ = ["Vectors", "coefficient", "step"]
