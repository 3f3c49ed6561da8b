"""Text of expressions, as in C with Python's names."""

from __future__ import annotations

from autotune.te.depth import walks_deep
from autotune.te.dtypes import is_float
from autotune.te.expr import Binary, Call, Cast, Compare, Const, Expr, Not, Read, Reduce, Select, Var

INFIX = {"or": 1, "and": 2, "<": 3, "<=": 3, ">": 3, ">=": 3, "==": 3, "!=": 3}
INFIX |= {"+": 4, "-": 4, "*": 5, "/": 5, "//": 5, "%": 5}
"""Operators between their operands, with how tightly they bind."""
_SYMBOL = {"and": "&&", "or": "||"}


def const_text(node: Const) -> str:
    """A constant as text: ``0f`` style suffixes tell the floating-point types apart."""
    if is_float(node.dtype):
        suffix = {"bfloat16": "bf", "float16": "h", "float32": "f", "float64": ""}[node.dtype]
        text = repr(float(node.value))
        return (text[:-2] if text.endswith(".0") and suffix else text) + suffix
    if node.dtype == "bool":
        return "true" if node.value else "false"
    return str(node.value)


@walks_deep
def expr_text(node: Expr) -> str:
    """The expression as one line."""
    return _text(node, 0)


def _text(node: Expr, level: int) -> str:
    if isinstance(node, Var):
        return node.name
    if isinstance(node, Const):
        return const_text(node)
    if isinstance(node, Binary) and node.op in ("min", "max", "max_number"):
        return f"{node.op}({_text(node.a, 0)}, {_text(node.b, 0)})"
    if isinstance(node, Binary | Compare):
        mine = INFIX[node.op]
        right = _text(node.b, mine + 1)
        text = f"{_text(node.a, mine)} {_SYMBOL.get(node.op, node.op)} {right}"
        return f"({text})" if mine < level else text
    if isinstance(node, Not):
        return "!" + _text(node.a, 6)
    if isinstance(node, Select):
        parts = ", ".join(_text(e, 0) for e in (node.cond, node.a, node.b))
        return f"if_then_else({parts})"
    if isinstance(node, Cast):
        return f"{node.dtype}({_text(node.a, 0)})"
    if isinstance(node, Call):
        return f"{node.name}({', '.join(_text(a, 0) for a in node.args)})"
    if isinstance(node, Read):
        return f"{node.tensor.name}[{', '.join(_text(i, 0) for i in node.indices)}]"
    if isinstance(node, Reduce):
        sources = ", ".join(_text(s, 0) for s in node.sources)
        axes = ", ".join(f"{a.name} in [{a.start}, {a.start + a.extent})" for a in node.axis)
        return f"{node.reducer.name}({sources}, axis=({axes}))"
    return node.text(_text)  # type: ignore[attr-defined,no-any-return]  # nodes of a later stage print themselves
