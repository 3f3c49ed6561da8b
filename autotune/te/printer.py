"""Text of expressions, as in C with Python's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from autotune.te.depth import walks_deep
from autotune.te.dtypes import is_float
from autotune.te.expr import Binary, Call, Cast, Compare, Const, Expr, Not, Read, Reduce, Select, Var
from autotune.te.traversal import children, ordered

INFIX = {"or": 1, "and": 2, "<": 3, "<=": 3, ">": 3, ">=": 3, "==": 3, "!=": 3}
INFIX |= {"+": 4, "-": 4, "*": 5, "/": 5, "//": 5, "%": 5}
"""Operators between their operands, with how tightly they bind."""
_SYMBOL = {"and": "&&", "or": "||"}


def const_text(node: Const) -> str:
    """Return a constant as text: ``0f`` style suffixes tell the floating-point types apart."""
    if is_float(node.dtype):
        suffix = {"bfloat16": "bf", "float16": "h", "float32": "f", "float64": ""}[node.dtype]
        text = repr(float(node.value))
        return (text[:-2] if text.endswith(".0") and suffix else text) + suffix
    if node.dtype == "bool":
        return "true" if node.value else "false"
    return str(node.value)


MOST_WRITTEN = 10_000
"""Nodes that an expression may have when it is written out; in one of more, parts that occur again have names."""

Show: TypeAlias = Callable[[Expr, int], str]
"""Gives the text of a part, in brackets where it binds less tightly than a level."""


@walks_deep
def expr_text(node: Expr) -> str:
    """Return the expression as one line; in one that is long because parts of it occur again, these are
    ``(x0 := ...)``."""
    uses = _uses(node)
    return _named(uses)(node, 0) if uses else _text(node, 0)


def _text(node: Expr, level: int) -> str:
    return _plain(node, level, _text)


def _uses(root: Expr) -> Counter[int]:
    """Count the uses of each part as an operand, by its id; empty for an expression that is short when it
    is written out."""
    order = ordered([root], _parts)
    written: dict[int, int] = {}
    for node in order:
        written[id(node)] = 1 + sum(written[id(part)] for part in _parts(node))
    if written[id(root)] <= MOST_WRITTEN:
        return Counter()
    return Counter(id(part) for node in order for part in _parts(node))


def _parts(node: Expr) -> Sequence[Expr]:
    """Return the operands of a node, those of a later stage included."""
    return children(node) or getattr(node, "indices", ())


def _named(uses: Counter[int]) -> Show:
    """Return texts in which what is used more than once has a name where it comes first."""
    names: dict[int, str] = {}

    def text(node: Expr, level: int) -> str:
        if id(node) in names:
            return names[id(node)]
        if uses[id(node)] < 2 or not _parts(node):
            return _plain(node, level, text)
        written = _plain(node, 0, text)
        names[id(node)] = f"x{len(names)}"
        return f"({names[id(node)]} := {written})"

    return text


def _plain(node: Expr, level: int, text: Show) -> str:
    if isinstance(node, Var):
        return node.name
    if isinstance(node, Const):
        return const_text(node)
    if isinstance(node, Binary) and node.op in ("min", "max", "max_number"):
        return f"{node.op}({text(node.a, 0)}, {text(node.b, 0)})"
    if isinstance(node, Binary | Compare):
        mine = INFIX[node.op]
        right = text(node.b, mine + 1)
        both = f"{text(node.a, mine)} {_SYMBOL.get(node.op, node.op)} {right}"
        return f"({both})" if mine < level else both
    if isinstance(node, Not):
        return "!" + text(node.a, 6)
    if isinstance(node, Select):
        parts = ", ".join(text(e, 0) for e in (node.cond, node.a, node.b))
        return f"if_then_else({parts})"
    if isinstance(node, Cast):
        return f"{node.dtype}({text(node.a, 0)})"
    if isinstance(node, Call):
        return f"{node.name}({', '.join(text(a, 0) for a in node.args)})"
    if isinstance(node, Read):
        return f"{node.tensor.name}[{', '.join(text(i, 0) for i in node.indices)}]"
    if isinstance(node, Reduce):
        sources = ", ".join(text(s, 0) for s in node.sources)
        axes = ", ".join(f"{a.name} in [{a.start}, {a.start + a.extent})" for a in node.axis)
        return f"{node.reducer.name}({sources}, axis=({axes}))"
    return node.text(text)  # type: ignore[attr-defined,no-any-return]  # nodes of a later stage print themselves
