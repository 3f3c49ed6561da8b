"""Integer index arithmetic in linear normal form, with ranges.

An index is ``sum(coefficient * atom) + constant``. Atoms are loop variables, or quotients, remainders, minima
and reads that ranges could not resolve; equal ones are one object, so that differences cancel.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping

from autotune.te.dtypes import INDEX_DTYPE, integer_limits, is_float
from autotune.te.expr import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    IterVar,
    Not,
    Select,
    Var,
    binary,
    const,
    negate,
    select,
)

Range = tuple[int, int]
"""Smallest and largest value, both included."""

UNBOUNDED: Range = (-(1 << 60), 1 << 60)


_SMALL = ("uint8", "int8", "uint16", "int16", "uint32")
"""Types whose arithmetic is expected to wrap; indices of the others are taken to stay in range."""


class Lin:
    """A linear form; treat it as immutable."""

    __slots__ = ("constant", "terms")

    def __init__(self, terms: dict[Expr, int], constant: int) -> None:
        self.terms = terms
        self.constant = constant

    def __add__(self, other: Lin | int) -> Lin:
        if isinstance(other, int):
            return Lin(self.terms, self.constant + other)
        if not other.terms:
            return Lin(self.terms, self.constant + other.constant)
        terms = dict(self.terms)
        for atom, c in other.terms.items():
            total = terms.get(atom, 0) + c
            if total:
                terms[atom] = total
            else:
                del terms[atom]
        return Lin(terms, self.constant + other.constant)

    def __sub__(self, other: Lin | int) -> Lin:
        return self + (-other if isinstance(other, int) else other.scaled(-1))

    def scaled(self, factor: int) -> Lin:
        """Return this form times an integer."""
        if factor == 0:
            return Lin({}, 0)
        if factor == 1:
            return self
        return Lin({a: c * factor for a, c in self.terms.items()}, self.constant * factor)

    @property
    def is_constant(self) -> bool:
        """Return whether there are no variables."""
        return not self.terms

    def expr(self) -> Expr:
        """Return the form as an expression."""
        result: Expr | None = None
        negative: list[tuple[Expr, int]] = []
        for atom, c in self.terms.items():
            if c < 0:
                negative.append((atom, c))
                continue
            term = atom if c == 1 else Binary("*", atom, const(c), "int64")
            result = term if result is None else Binary("+", result, term, "int64")
        for atom, c in negative:
            start = const(0) if result is None else result
            term = atom if c == -1 else Binary("*", atom, const(-c), "int64")
            result = Binary("-", start, term, "int64")
        if result is None:
            return const(self.constant)
        if self.constant:
            op = "+" if self.constant > 0 else "-"
            return Binary(op, result, const(abs(self.constant)), "int64")
        return result


def constant_form(value: int) -> Lin:
    """Return the linear form without variables."""
    return Lin({}, value)


class Simplifier:
    """Turns index expressions into linear forms, knowing the ranges of variables.

    ``values`` replaces variables by forms on the way (the axes of a stage by what its loops compute).
    """

    def __init__(self) -> None:
        self.ranges: dict[Expr, Range] = {}
        self._atoms: dict[tuple[object, ...], Expr] = {}
        self._compares: dict[tuple[object, ...], Expr] = {}
        self._quotients: dict[Expr, tuple[Expr, Lin, int]] = {}
        """For each quotient its remainder, the dividend and the divisor."""

    @contextlib.contextmanager
    def narrowed(self, form: Lin, high: int) -> Iterator[None]:
        """Assume within the block that the variable of which ``form`` consists is at most ``high``."""
        atom = next(iter(form.terms)) if len(form.terms) == 1 else None
        if atom is None or form.terms[atom] != 1 or atom not in self.ranges:
            yield
            return
        old = self.ranges[atom]
        self.ranges[atom] = (old[0], min(old[1], high - form.constant))
        try:
            yield
        finally:
            self.ranges[atom] = old

    def declare(self, var: Var, low: int, high: int) -> None:
        """Tell the range of a variable."""
        self.ranges[var] = (low, high)

    # -- ranges ----------------------------------------------------------------------------------------------

    def range_of(self, form: Lin) -> Range:
        """Return bounds of a form from the ranges of its atoms."""
        low = high = form.constant
        for atom, c in form.terms.items():
            a, b = self.ranges.get(atom, UNBOUNDED)
            low += c * (a if c > 0 else b)
            high += c * (b if c > 0 else a)
        return low, high

    # -- forms -----------------------------------------------------------------------------------------------

    def form(self, expr: Expr, values: Mapping[Expr, Lin] | None = None) -> Lin:
        """Return the linear form of an integer expression."""
        return self._form(expr, values or {}, {})

    def _form(self, node: Expr, values: Mapping[Expr, Lin], memo: dict[int, Lin]) -> Lin:
        done = memo.get(id(node))
        if done is None:
            done = memo[id(node)] = self._form_of(node, values, memo)
        return done

    def _form_of(self, node: Expr, values: Mapping[Expr, Lin], memo: dict[int, Lin]) -> Lin:
        if isinstance(node, Const):
            return Lin({}, int(node.value))
        if isinstance(node, Var):
            known = values.get(node)
            if known is not None:
                return known
            if node not in self.ranges and isinstance(node, IterVar):
                self.ranges[node] = (node.start, node.start + max(node.extent, 1) - 1)
            return Lin({node: 1}, 0)
        if isinstance(node, Binary):
            a = self._form(node.a, values, memo)
            b = self._form(node.b, values, memo)
            form = self._binary(node.op, a, b)
            if node.dtype not in _SMALL or self._within(form, integer_limits(node.dtype)):
                return form
        if isinstance(node, Cast) and not is_float(node.a.dtype) and node.a.dtype != "bool":
            form = self._form(node.a, values, memo)
            if self._keeps(node, form):
                return form
        if isinstance(node, Select):
            cond = self.condition(node.cond, values)
            if isinstance(cond, Const):
                return self._form(node.a if cond.value else node.b, values, memo)
            a, b = self._form(node.a, values, memo), self._form(node.b, values, memo)
            low = min(self.range_of(a)[0], self.range_of(b)[0])
            high = max(self.range_of(a)[1], self.range_of(b)[1])
            return self._atom(select(cond, a.expr(), b.expr()), (low, high), None)
        if node.dtype != INDEX_DTYPE:  # atoms are added to others: they need the type of an index
            return self._atom(Cast(node, INDEX_DTYPE), UNBOUNDED, ("index", id(node)))
        return self._atom(node, UNBOUNDED, None)

    def _keeps(self, cast: Cast, form: Lin) -> bool:
        """Return whether a conversion to another integer type leaves each value what it is."""
        (low, high), (least, most) = integer_limits(cast.dtype), integer_limits(cast.a.dtype)
        return (low <= least and most <= high) or self._within(form, (low, high))

    def _within(self, form: Lin, limits: Range) -> bool:
        """Return whether all values of a form are between limits."""
        low, high = self.range_of(form)
        return limits[0] <= low and high <= limits[1]

    def _binary(self, op: str, a: Lin, b: Lin) -> Lin:
        if op == "+":
            return a + b
        if op == "-":
            return a - b
        if op == "*":
            if b.is_constant:
                return a.scaled(b.constant)
            if a.is_constant:
                return b.scaled(a.constant)
        if op in ("//", "%") and b.is_constant and b.constant > 0:
            return self.divide(op, a, b.constant)
        if op in ("min", "max"):
            low, high = self.range_of(a - b)
            if high <= 0:
                return a if op == "min" else b
            if low >= 0:
                return b if op == "min" else a
            (al, ah), (bl, bh) = self.range_of(a), self.range_of(b)
            pick = min if op == "min" else max
            return self._atom_of(op, a, b, (pick(al, bl), pick(ah, bh)))
        (al, ah), (bl, bh) = self.range_of(a), self.range_of(b)
        bounds = UNBOUNDED
        if op == "*" and UNBOUNDED not in ((al, ah), (bl, bh)):
            corners = [x * y for x in (al, ah) for y in (bl, bh)]
            bounds = (min(corners), max(corners))
        return self._atom_of(op, a, b, bounds)

    def divide(self, op: str, a: Lin, c: int) -> Lin:
        """Return the quotient or remainder by a positive constant, the divisible part taken out first."""
        whole = Lin({v: k // c for v, k in a.terms.items() if k % c == 0}, a.constant // c)
        rest = Lin({v: k for v, k in a.terms.items() if k % c}, a.constant % c)
        low, high = self.range_of(rest)
        if low // c == high // c:
            return whole + low // c if op == "//" else rest - (low // c) * c
        quotient = self._atom_of("//", rest, constant_form(c), (low // c, high // c))
        step = math.gcd(c, *rest.terms.values())
        first = rest.constant % step
        remainder = self._atom_of("%", rest, constant_form(c), (first, c - step + first))
        self._quotients[_atom(quotient)] = (_atom(remainder), rest, c)
        return whole + quotient if op == "//" else remainder

    def joined(self, form: Lin) -> Lin:
        """Return the form with ``c * (a // c) + a % c`` as ``a``: rows taken apart and put together again."""
        for quotient in [atom for atom in form.terms if atom in self._quotients]:
            remainder, dividend, c = self._quotients[quotient]
            step = form.terms.get(remainder, 0)
            if step and form.terms.get(quotient) == step * c:
                form = form - Lin({quotient: step * c, remainder: step}, 0) + dividend.scaled(step)
        return form

    def _atom_of(self, op: str, a: Lin, b: Lin, bounds: Range) -> Lin:
        key = (op, _key(a), _key(b))
        expr = binary(op, a.expr(), b.expr())
        if isinstance(expr, Const):
            return Lin({}, int(expr.value))
        return self._atom(expr, bounds, key)

    def _atom(self, expr: Expr, bounds: Range, key: tuple[object, ...] | None) -> Lin:
        if key is None:
            key = ("node", id(expr))  # the table keeps the node, so its id stays its own
        atom = self._atoms.setdefault(key, expr)
        self.ranges.setdefault(atom, bounds)
        return Lin({atom: 1}, 0)

    # -- conditions ------------------------------------------------------------------------------------------

    def condition(self, node: Expr, values: Mapping[Expr, Lin] | None = None) -> Expr:
        """Return a simplified condition: constant where the ranges decide it."""
        values = values or {}
        if isinstance(node, Compare) and not is_float(node.a.dtype) and node.a.dtype != "bool":
            a, b = self.form(node.a, values), self.form(node.b, values)
            return self.compared(node.op, a, b)
        if isinstance(node, Binary) and node.op in ("and", "or"):
            return binary(node.op, self.condition(node.a, values), self.condition(node.b, values))
        if isinstance(node, Not):
            return negate(self.condition(node.a, values))
        return node

    def compared(self, op: str, a: Lin, b: Lin) -> Expr:
        """Return ``a op b``, decided by the ranges where possible."""
        low, high = self.range_of(a - b)
        verdict: bool | None = None
        if op == "<":
            verdict = True if high < 0 else False if low >= 0 else None
        elif op == "<=":
            verdict = True if high <= 0 else False if low > 0 else None
        elif op == ">":
            verdict = True if low > 0 else False if high <= 0 else None
        elif op == ">=":
            verdict = True if low >= 0 else False if high < 0 else None
        elif op in ("==", "!=") and (low > 0 or high < 0 or low == high == 0):
            verdict = (low == high == 0) == (op == "==")
        if verdict is not None:
            return const(verdict)
        # Equal comparisons are one node, so that a list of conditions has no duplicates by identity.
        key = (op, _key(a), _key(b))
        return self._compares.setdefault(key, Compare(op, a.expr(), b.expr()))


def _atom(form: Lin) -> Expr:
    """Return the atom of a form that is one."""
    (atom,) = form.terms
    return atom


def _key(form: Lin) -> tuple[object, ...]:
    return (tuple(sorted((id(a), c) for a, c in form.terms.items())), form.constant)
