"""Addresses of accesses: element offsets as linear forms, with what is known of their variables put in."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import NamedTuple

from autotune.codegen.llvm.scoped import Scoped
from autotune.codegen.llvm.types import Value
from autotune.codegen.llvm.writer import Writer
from autotune.lower.ir import Buffer
from autotune.lower.linear import Lin, Simplifier
from autotune.te.dtypes import INDEX_DTYPE, is_float
from autotune.te.expr import Binary, Const, Expr, Var
from autotune.te.folding import folded


class Ramp(NamedTuple):
    """Lanes ``base, base + 1, ...`` of a vectorized loop."""

    base: int
    lanes: int


Environment = dict[Var, int | Ramp | Value]
"""The value of a variable: a known number (an unrolled loop), a ramp of lanes (the vectorized loop) or an SSA value."""


_WHOLE = ("+", "-", "*", "//", "%", "min", "max")
"""Arithmetic on indices that is done while code is emitted."""


class OffsetTerms(NamedTuple):
    """The terms of an offset by what they are in a scope: numbers and ramps, which differ from one copy of an
    unrolled loop to the next, SSA values that stay the same, and what has to be computed where it is used.
    """

    numbers: tuple[tuple[Var, int], ...]
    scalars: tuple[tuple[str, int], ...]
    others: tuple[tuple[Expr, int], ...]


class Address(NamedTuple):
    """An evaluated element offset: a sum of scalars, a constant, a stride over lanes, or a vector.

    ``pattern`` are the numbers of the vector where they are known.
    """

    scalars: tuple[tuple[str, int], ...]
    constant: int
    stride: int
    lanes: Value | None
    pattern: tuple[int, ...] | None = None


class Addresses:
    """Evaluates offsets; ``value`` gives the value of an expression in one."""

    def __init__(self, code: Writer, env: Environment, value: Callable[[Expr], Value]) -> None:
        self.code = code
        self.env = env
        self.linear = Simplifier()
        self.terms: Scoped[Lin, OffsetTerms] = Scoped()
        """The terms of each form; inside ``with`` the variables that are bound there keep their meaning."""
        self._value = value
        self._forms: dict[int, Lin] = {}
        self._divisors: dict[Var, int] = {}
        self._names: dict[Expr, Lin] = {}

    def form(self, key: object, buffer: Buffer, indices: tuple[Expr, ...]) -> Lin:
        """Return the element offset of an access, as a linear form; computed once a node."""
        done = self._forms.get(id(key))
        if done is None:
            done = Lin({}, 0)
            for index, stride in zip(indices, buffer.strides, strict=True):
                done = done + self.linear.form(index).scaled(stride)
            done = self._forms[id(key)] = self.linear.joined(done)
        return self._along_lanes(done)

    def _along_lanes(self, form: Lin) -> Lin:
        """Return the form without names that differ over lanes, where quotients and remainders join when written out.

        So lanes of a fused loop that go on in the next line of a tensor are neighbours. Copies of a loop may share an
        access whose names mean something else in each.
        """
        names = [atom for atom in form.terms if self._spread(atom)]
        if not names:
            return form
        kept = Lin({atom: c for atom, c in form.terms.items() if atom not in names}, form.constant)
        written = sum((self._names[name].scaled(form.terms[name]) for name in names), kept)
        joined = self.linear.joined(written)
        return form if any(isinstance(atom, Binary) for atom in joined.terms) else joined

    def _spread(self, atom: Expr) -> bool:
        known = self.env.get(atom) if isinstance(atom, Var) and atom in self._names else None
        return isinstance(known, Value) and known.lanes > 1

    def address(self, form: Lin) -> Address:
        """Return the offset with the environment put in."""
        terms = self.terms.get(form)
        if terms is None:
            terms = self._sorted_terms(form)
            self.terms.add(form, terms)
        total, stride = form.constant, 0
        for var, c in terms.numbers:
            known = self.env[var]
            if isinstance(known, int):
                total += c * known
            elif isinstance(known, Ramp):
                stride += c
                total += c * known.base
        if not terms.others:
            return Address(terms.scalars, total, stride, None)
        scalars = list(terms.scalars)
        vectors: list[tuple[Value, int]] = []
        patterns: list[tuple[int, ...]] = []
        for atom, c in terms.others:
            known_lanes = self._lanes_of(atom)
            if known_lanes is not None and len(set(known_lanes)) > 1:
                patterns.append(tuple(c * n for n in known_lanes))
                continue
            value = self._value(atom)
            if value.number is not None:
                total += c * value.number
            elif value.lanes == 1:
                scalars.append((value.text, c))
            else:
                vectors.append((value, c))
        if not vectors and not patterns:
            return Address(tuple(scalars), total, stride, None)
        patterns.append(tuple(i * stride for i in range(self.code.lanes)))
        known_sums = tuple(map(sum, zip(*patterns, strict=True)))
        offsets = self._lane_offsets(vectors, known_sums)
        return Address(tuple(scalars), total, 0, offsets, None if vectors else known_sums)

    def _lanes_of(self, atom: Expr) -> tuple[int, ...] | None:
        """Return the number in each lane, where the atom is made of numbers and the vectorized loop alone."""
        if isinstance(atom, Const) and not is_float(atom.dtype):
            return (int(atom.value),) * self.code.lanes
        known = self.env.get(atom) if isinstance(atom, Var) else None
        if isinstance(known, int):
            return (known,) * self.code.lanes
        if isinstance(known, Ramp) and known.lanes == self.code.lanes:
            return tuple(range(known.base, known.base + known.lanes))
        if not isinstance(atom, Binary) or atom.dtype != INDEX_DTYPE or atom.op not in _WHOLE:
            return None
        a, b = self._lanes_of(atom.a), self._lanes_of(atom.b)
        if a is None or b is None:
            return None
        return tuple(folded(atom.op, x, y, INDEX_DTYPE) for x, y in zip(a, b, strict=True))

    def _sorted_terms(self, form: Lin) -> OffsetTerms:
        numbers: list[tuple[Var, int]] = []
        scalars: list[tuple[str, int]] = []
        others: list[tuple[Expr, int]] = []
        for atom, c in form.terms.items():
            known = self.env.get(atom) if isinstance(atom, Var) else None
            if isinstance(atom, Var) and isinstance(known, int | Ramp):
                numbers.append((atom, c))
            elif isinstance(known, Value) and known.lanes == 1 and known.number is None:
                scalars.append((known.text, c))
            else:
                others.append((atom, c))
        return OffsetTerms(tuple(numbers), tuple(scalars), tuple(others))

    def _lane_offsets(self, vectors: list[tuple[Value, int]], known: tuple[int, ...]) -> Value:
        lanes = self.code.lanes
        kind = f"<{lanes} x i64>"
        steps = ", ".join(f"i64 {n}" for n in known)
        total = f"<{steps}>"
        for value, c in vectors:
            scaled = self.code.op(f"mul {kind} {value.text}, splat (i64 {c})")
            total = self.code.op(f"add {kind} {total}, {scaled}")
        return Value(total, "int64", lanes)

    def named(self, name: Var, value: Expr) -> None:
        """Remember an index that has got a name, and what divides it."""
        if value.dtype == INDEX_DTYPE:
            form = self._names[name] = self.linear.form(value)
            self._divisors[name] = self.divisor(form)

    def divisor(self, form: Lin) -> int:
        """Return a number that divides the offset of the first lane."""
        total, divisor = form.constant, 0
        for atom, coefficient in form.terms.items():
            known = self.env.get(atom) if isinstance(atom, Var) else None
            if isinstance(known, Value):
                known = known.number
            if isinstance(known, Ramp):
                total += coefficient * known.base
            elif known is not None:
                total += coefficient * known
            elif isinstance(atom, Var) and atom in self._divisors:
                divisor = gcd(divisor, coefficient * self._divisors[atom])
            elif isinstance(atom, Binary) and atom.op in ("min", "max"):
                sides = [self.divisor(self.linear.form(side)) for side in (atom.a, atom.b)]
                divisor = gcd(divisor, coefficient * gcd(*sides))
            else:
                divisor = gcd(divisor, coefficient)
        return gcd(divisor, total)


__all__ = ["Address", "Addresses", "Environment", "Ramp"]
