"""Ranges of whole numbers, as far as loops and constants say: what needs no care and fits 32 bits."""

from __future__ import annotations

from collections.abc import MutableMapping

from autotune.te.expr import Binary, Cast, Const, Expr, Select, Var

Range = tuple[int, int]


class Ranges:
    """Least and largest values of int64 expressions; ``variables`` has those of loop variables."""

    def __init__(self) -> None:
        self.variables: MutableMapping[Var, Range] = {}
        self._found: dict[int, tuple[Expr, Range | None]] = {}

    def of(self, node: Expr) -> Range | None:
        """Return the range of a node, None where it is not known. Nodes are kept, so that none takes
        another's place."""
        found = self._found.get(id(node))
        if found is None:
            found = self._found[id(node)] = node, self._of(node)
        return found[1]

    def loop(self, variable: Var, low: int, high: int) -> None:
        """Let a variable run from ``low`` to ``high``; what was found before may not hold any more."""
        if self.variables.get(variable) != (low, high):
            self.variables[variable] = low, high
            self._found.clear()

    def _of(self, node: Expr) -> Range | None:
        if node.dtype != "int64":
            return None
        if isinstance(node, Const):
            return int(node.value), int(node.value)
        if isinstance(node, Var):
            return self.variables.get(node)
        if isinstance(node, Select):
            a, b = self.of(node.a), self.of(node.b)
            return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))
        if isinstance(node, Cast) and node.a.dtype == "bool":
            return 0, 1
        if not isinstance(node, Binary):
            return None
        a, b = self.of(node.a), self.of(node.b)
        if node.op == "%" and b is not None and b[0] > 0:
            return (0, b[1] - 1) if a is None or a[0] < 0 else (0, min(a[1], b[1] - 1))
        return None if a is None or b is None else _combined(node.op, a, b)


def _combined(op: str, a: Range, b: Range) -> Range | None:
    if op == "+":
        return a[0] + b[0], a[1] + b[1]
    if op == "-":
        return a[0] - b[1], a[1] - b[0]
    if op == "*":
        products = [x * y for x in a for y in b]
        return min(products), max(products)
    if op == "//" and b[0] > 0:
        quotients = [x // y for x in a for y in b]
        return min(quotients), max(quotients)
    if op in ("min", "max"):
        choose = min if op == "min" else max
        return choose(a[0], b[0]), choose(a[1], b[1])
    return None


__all__ = ["Range", "Ranges"]
