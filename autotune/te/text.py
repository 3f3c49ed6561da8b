"""The text of a program of tensor expressions: deterministic, and read back without running anything.

Its form is that of Python, one tensor a line; see :func:`program_text` for an example. Tensors are ``t0, t1, ...`` in
order, loop variables ``i0, i1, ...`` (data) and ``r0, r1, ...`` (reduction); names and extents stand beside the
operation. A part that occurs more than once is named where it occurs first: ``(x0 := ...)``.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence

from autotune.errors import ScheduleError
from autotune.te.depth import walks_deep
from autotune.te.dtypes import INDEX_DTYPE
from autotune.te.expr import Binary, Call, Cast, Compare, Const, Expr, IterVar, Not, Read, Reduce, Select, Var
from autotune.te.printer import INFIX
from autotune.te.reductions import shipped_name
from autotune.te.tensor import ComputeOp, Operation, Tensor, post_order
from autotune.te.traversal import children, nodes

HEADER = "program"
"""The first word of a text."""


def program_text(args: Sequence[Tensor]) -> str:
    """Return the program that computes those of ``args`` that are computed from the others.

    Raises ScheduleError for an expression that has no text, and for inputs that are not among ``args``.

    >>> from autotune.lower.examples import matmul
    >>> _, A, B, C = matmul(4, 6, 8)
    >>> print(program_text([A, B, C]))
    program
    t0 = placeholder("A", (4, 8), "float32")
    t1 = placeholder("B", (8, 6), "float32")
    t2 = compute("C", [("i", 4), ("j", 6)], sum([("k", 8)], t0[i0, r0] * t1[r0, i1]))
    arguments(t0, t1, t2)  # float32[4, 8], float32[8, 6] -> float32[4, 6]
    """
    order = post_order(list(args))
    numbers = {op: number for number, op in enumerate(order)}
    unknown = [op.name for op in order if not isinstance(op, ComputeOp) and op not in {t.op for t in args}]
    if unknown:
        raise ScheduleError(f"the program reads {', '.join(unknown)}, which is not among the arguments")
    lines = [HEADER, *(f"t{number} = {_operation(op, numbers)}" for op, number in numbers.items())]
    last = f"arguments({', '.join(_tensor(t, numbers) for t in args)})"
    return "\n".join([*lines, f"{last}  # {signature(args)}"])


def signature(args: Sequence[Tensor]) -> str:
    """Return dtypes and shapes of inputs and outputs: ``float32[64, 9], float32[9] -> float32[64]``."""
    computed = [isinstance(tensor.op, ComputeOp) for tensor in args]
    takes, gives = (
        ", ".join(f"{t.dtype}{list(t.shape)}" for t, c in zip(args, computed, strict=True) if c == wanted)
        for wanted in (False, True)
    )
    return f"{takes} -> {gives}"


def _operation(op: Operation, numbers: dict[Operation, int]) -> str:
    if op.is_open:
        raise ScheduleError(
            f"{op.name} has sizes that a call brings (te.var); a program with a text has numbers"
        )
    name = json.dumps(op.name, ensure_ascii=False)
    if not isinstance(op, ComputeOp):
        return f'placeholder({name}, {op.shape}, "{op.dtypes[0]}")'
    if op.epilogue is not None:
        raise ScheduleError(
            f"{op.name} has an epilogue, which has no text: give the tensors of the program itself, and combine with "
            f"the value of init= in a stage of its own"
        )
    reduction = op.reduction
    loops = _variables("i", op.axis) | _variables("r", op.reduce_axis)
    writer = _Writer(numbers, loops, op.body if reduction is None else reduction.sources)
    if reduction is None:
        parts = [writer.text(e) for e in op.body]
    else:
        parts = [
            f"{reducer_text(reduction)}({', '.join([_axes(reduction.axis), *map(writer.text, reduction.sources)])})"
        ]
    return f"compute({', '.join([name, _axes(op.axis), *parts])})"


def _axes(axes: Sequence[IterVar]) -> str:
    """Return loops as names and extents; a third number is where one starts."""
    starts = [f", {axis.start}" if axis.start else "" for axis in axes]
    texts = [f"({json.dumps(a.name)}, {a.extent}{start})" for a, start in zip(axes, starts, strict=True)]
    return f"[{', '.join(texts)}]"


def _variables(letter: str, axes: Sequence[IterVar]) -> dict[Expr, str]:
    return {axis: f"{letter}{number}" for number, axis in enumerate(axes)}


def _tensor(tensor: Tensor, numbers: dict[Operation, int]) -> str:
    more = f".output({tensor.value_index})" if tensor.value_index else ""
    return f"t{numbers[tensor.op]}{more}"


def reducer_text(reduction: Reduce) -> str:
    """Return the name of a reducer, or what it does to accumulators ``a0, ...`` and values ``b0, ...``."""
    reducer, dtypes = reduction.reducer, tuple(source.dtype for source in reduction.sources)
    if shipped_name(reducer):
        return reducer.name
    left = tuple(Var(f"a{n}", dtype) for n, dtype in enumerate(dtypes))
    right = tuple(Var(f"b{n}", dtype) for n, dtype in enumerate(dtypes))
    combined, start = reducer.combine(left, right), reducer.identity(dtypes)
    names: dict[Expr, str] = {var: var.name for var in (*left, *right)}
    writer = _Writer({}, names)
    new, first = (", ".join(map(writer.text, exprs)) for exprs in (combined, start))
    return f"reducer({json.dumps(reducer.name)}, [{new}], [{first}])"


class _Writer:
    """Texts of expressions; parts that ``roots`` share are named."""

    def __init__(
        self, numbers: dict[Operation, int], names: dict[Expr, str], roots: Sequence[Expr] = ()
    ) -> None:
        self._numbers = numbers
        self._names = names
        distinct = {id(node): node for root in roots for node in nodes(root)}
        uses = Counter(id(part) for node in distinct.values() for part in children(node))
        self._shared = {key for key, count in uses.items() if count > 1}
        self._given: dict[int, str] = {}

    @walks_deep
    def text(self, node: Expr) -> str:
        """Return the expression as Python."""
        return self._text(node, 0)

    def _text(self, node: Expr, level: int) -> str:
        if isinstance(node, Var):
            if node not in self._names:
                raise ScheduleError(f"the variable {node.name} is no loop of the operation that reads it")
            return self._names[node]
        if isinstance(node, Const):
            return constant_text(node)
        if id(node) in self._given:
            return self._given[id(node)]
        if id(node) not in self._shared:
            return self._plain(node, level)
        text = self._plain(node, 0)
        name = self._given[id(node)] = f"x{len(self._given)}"
        return f"({name} := {text})"

    def _plain(self, node: Expr, level: int) -> str:
        if isinstance(node, Binary | Compare) and node.op in INFIX:
            mine = INFIX[node.op]
            left = mine + 1 if isinstance(node, Compare) else mine
            text = f"{self._text(node.a, left)} {node.op} {self._text(node.b, mine + 1)}"
            return f"({text})" if mine < level else text
        if isinstance(node, Binary):
            return f"{node.op}({self._several(node.a, node.b)})"
        if isinstance(node, Not):
            return f"invert({self._several(node.a)})"
        if isinstance(node, Select):
            return f"select({self._several(node.cond, node.a, node.b)})"
        if isinstance(node, Cast):
            return f'cast("{node.dtype}", {self._several(node.a)})'
        if isinstance(node, Call):
            return f'call("{node.name}", "{node.dtype}", {self._several(*node.args)})'
        if isinstance(node, Read):
            return f"{_tensor(node.tensor, self._numbers)}[{self._several(*node.indices) or '()'}]"
        raise ScheduleError(f"a {type(node).__name__} has no text: it is for intrinsics, not for programs")

    def _several(self, *parts: Expr) -> str:
        return ", ".join(self._text(part, 0) for part in parts)


def constant_text(node: Const) -> str:
    """Return integers, truth values and float32 as Python's, others with their type."""
    value = node.value
    if node.dtype in (INDEX_DTYPE, "bool"):
        return repr(value)
    number = repr(value) if math.isfinite(value) else f'float("{value}")'
    return number if node.dtype == "float32" else f'const("{node.dtype}", {number})'


__all__ = ["HEADER", "constant_text", "program_text", "reducer_text", "signature"]
