"""Index arithmetic: linear forms, their ranges and folded conditions against plain evaluation."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from autotune.lower.linear import Lin, Simplifier
from autotune.te.expr import Binary, Compare, Const, Expr, Not, Select, Var, binary, compare, select

BLOCK = 120


def value(node: Expr, env: Mapping[Var, int]) -> int:
    """An index expression by Python's integers."""
    if isinstance(node, Const):
        return int(node.value)
    if isinstance(node, Var):
        return env[node]
    if isinstance(node, Select):
        return value(node.a if value(node.cond, env) else node.b, env)
    if isinstance(node, Not):
        return int(not value(node.a, env))
    assert isinstance(node, Binary | Compare), type(node)
    a, b = value(node.a, env), value(node.b, env)
    operations = {
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b,
        "//": lambda: a // b,
        "%": lambda: a % b,
        "min": lambda: min(a, b),
        "max": lambda: max(a, b),
        "and": lambda: int(bool(a and b)),
        "or": lambda: int(bool(a or b)),
        "<": lambda: int(a < b),
        "<=": lambda: int(a <= b),
        ">": lambda: int(a > b),
        ">=": lambda: int(a >= b),
        "==": lambda: int(a == b),
        "!=": lambda: int(a != b),
    }
    return operations[node.op]()


class Case:
    """Variables with ranges, and random expressions over them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.simplifier = Simplifier()
        self.ranges: dict[Var, tuple[int, int]] = {}
        for k in range(self.rng.randint(1, 3)):
            low = self.rng.choice((0, 0, 0, -3, 2))
            variable = Var(f"v{k}")
            self.ranges[variable] = (low, low + self.rng.choice((0, 1, 3, 6, 11, 15)))
            self.simplifier.declare(variable, *self.ranges[variable])

    def index(self, depth: int) -> Expr:
        if depth == 0 or self.rng.random() < 0.15:
            if self.rng.random() < 0.3:
                return Const(self.rng.randint(-8, 8), "int64")
            return self.rng.choice(list(self.ranges))
        kind = self.rng.random()
        a = self.index(depth - 1)
        if kind < 0.25:
            return binary(self.rng.choice(("//", "%")), a, self.rng.choice((1, 2, 3, 4, 5, 8, 16)))
        if kind < 0.4:
            return binary("*", a, self.rng.randint(-4, 4))
        if kind < 0.5:
            return select(self.condition(depth - 1), a, self.index(depth - 1))
        return binary(self.rng.choice(("+", "+", "-", "min", "max")), a, self.index(depth - 1))

    def condition(self, depth: int) -> Expr:
        operator = self.rng.choice(("<", "<=", ">", ">=", "==", "!="))
        test = compare(operator, self.index(depth), self.index(depth))
        if self.rng.random() < 0.25:
            other = compare("<", self.index(depth), self.index(depth))
            return binary(self.rng.choice(("and", "or")), test, other)
        return test

    def points(self) -> list[dict[Var, int]]:
        """The corners' neighbourhoods and some points between."""
        return [
            {v: self.rng.choice((a, b, self.rng.randint(a, b))) for v, (a, b) in self.ranges.items()}
            for _ in range(25)
        ]


@pytest.mark.parametrize("block", range(6))
def test_forms_have_the_value_of_their_expression(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        case = Case(seed)
        expr = case.index(4)
        form = case.simplifier.form(expr)
        low, high = case.simplifier.range_of(form)
        for point in case.points():
            wanted = value(expr, point)
            assert value(form.expr(), point) == wanted, f"seed {seed}: {expr} at {point}"
            assert low <= wanted <= high, f"seed {seed}: {expr} is outside of ({low}, {high})"


@pytest.mark.parametrize("block", range(6))
def test_conditions_keep_their_truth(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        case = Case(seed)
        test = case.condition(3)
        folded = case.simplifier.condition(test)
        for point in case.points():
            wanted = bool(value(test, point))
            assert bool(value(folded, point)) == wanted, f"seed {seed}: {test} at {point}: {folded}"


def test_equal_forms_cancel() -> None:
    simplifier = Simplifier()
    i, j = Var("i"), Var("j")
    simplifier.declare(i, 0, 7)
    simplifier.declare(j, 0, 3)
    a = simplifier.form(binary("//", i * 3 + j, 4))
    b = simplifier.form(binary("//", j + i * 3, 4))
    assert (a - b).is_constant


def same(form: Lin, other: Lin) -> bool:
    return (form.constant, form.terms) == (other.constant, other.terms)


def test_a_divisible_part_leaves_the_quotient() -> None:
    simplifier = Simplifier()
    i, j = Var("i"), Var("j")
    simplifier.declare(i, 0, 7)
    simplifier.declare(j, 0, 3)
    assert same(simplifier.form((i * 4 + j) // 4), simplifier.form(i))
    assert same(simplifier.form((i * 4 + j) % 4), simplifier.form(j))


@pytest.mark.parametrize("block", range(3))
def test_joined_forms_have_the_value_of_their_expression(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        case = Case(seed)
        divisor, step = case.rng.choice((2, 3, 5, 8)), case.rng.randint(-3, 3)
        index, other = case.index(3), case.index(3)
        taken_apart = [binary("//", index, divisor), binary("%", index, divisor), other]
        scales = [step * divisor, step, 1]
        form = sum(
            (case.simplifier.form(e).scaled(k) for e, k in zip(taken_apart, scales, strict=True)),
            start=case.simplifier.form(Const(0, "int64")),
        )
        joined = case.simplifier.joined(form)
        for point in case.points():
            wanted = step * value(index, point) + value(other, point)
            assert value(joined.expr(), point) == wanted, f"seed {seed}: {index} by {divisor} at {point}"


def test_rows_taken_apart_are_put_together() -> None:
    simplifier = Simplifier()
    i, j = Var("i"), Var("j")
    simplifier.declare(i, 0, 99)
    simplifier.declare(j, 0, 3)
    form = simplifier.form(binary("//", i, 24)).scaled(24) + simplifier.form(binary("%", i, 24))
    assert same(simplifier.joined(form + simplifier.form(j)), simplifier.form(i + j))
    apart = simplifier.form(binary("//", i, 24)).scaled(25) + simplifier.form(binary("%", i, 24))
    assert same(simplifier.joined(apart), apart)


def test_a_remainder_of_multiples_is_one_of_them() -> None:
    simplifier = Simplifier()
    i = Var("i")
    simplifier.declare(i, 0, 7)
    assert simplifier.range_of(simplifier.divide("%", Lin({i: 3}, 0), 6)) == (0, 3)
    assert simplifier.range_of(simplifier.divide("%", Lin({i: 4}, 7), 6)) == (1, 5)
