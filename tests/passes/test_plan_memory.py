"""The memory plan: values that live together never overlap, and the plan stays near its bound."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InternalError
from autotune.passes.memory.plan_memory import ALIGNMENT, Lifetime, align, lower_bound, plan_memory
from tests.passes.exact_memory import least_bytes


@st.composite
def lifetimes(draw):
    spans = draw(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 20), st.integers(0, 6)), max_size=25))
    return [Lifetime(f"v{i}", size, a, a + n) for i, (size, a, n) in enumerate(spans)]


@given(lifetimes())
def test_live_values_never_overlap(values):
    plan = plan_memory(values)
    for i, a in enumerate(values):
        assert plan.offsets[a.name] % ALIGNMENT == 0
        assert plan.offsets[a.name] + a.nbytes <= plan.arena_bytes
        for b in values[i + 1 :]:
            if a.first <= b.last and b.first <= a.last and a.nbytes and b.nbytes:
                x, y = plan.offsets[a.name], plan.offsets[b.name]
                assert x + a.nbytes <= y or y + b.nbytes <= x, (a, b)


@given(lifetimes())
def test_plan_lies_between_the_bound_and_no_reuse(values):
    plan = plan_memory(values)
    assert plan.lower_bound <= plan.arena_bytes <= sum(align(v.nbytes) for v in values)


@pytest.mark.parametrize("seed", range(60))
def test_small_plans_are_as_small_as_can_be(seed):
    rng = random.Random(seed)
    spans = [(rng.randint(1, 9), rng.randint(0, 6), rng.choice((0, 1, 1, 2, 3))) for _ in range(7)]
    values = [Lifetime(f"v{i}", 64 * size, a, min(a + n, 7)) for i, (size, a, n) in enumerate(spans)]
    plan = plan_memory(values)
    assert plan.lower_bound <= least_bytes(values) == plan.arena_bytes


def test_the_oracle_finds_what_heuristics_do_not():
    spans = [(2, 2, 3), (2, 2, 6), (2, 2, 3), (1, 1, 1), (3, 2, 6), (1, 2, 4), (2, 5, 7), (3, 4, 7)]
    values = [Lifetime(f"v{i}", 64 * size, a, z) for i, (size, a, z) in enumerate(spans)]
    assert least_bytes(values) == 640 == lower_bound(values)
    assert 640 <= plan_memory(values).arena_bytes <= 704


def test_chain_needs_two_buffers():
    chain = [Lifetime(f"v{i}", 640, i, i + 1) for i in range(10)]
    assert plan_memory(chain).arena_bytes == 1280 == lower_bound(chain)


def test_the_best_heuristic_is_kept():
    # By size alone, c lands above a and b; another order reaches the bound.
    values = [
        Lifetime("a", 64 * 3, 0, 1),
        Lifetime("b", 64 * 2, 1, 2),
        Lifetime("c", 64 * 4, 2, 3),
        Lifetime("d", 64 * 3, 3, 4),
        Lifetime("e", 64 * 2, 0, 0),
    ]
    assert plan_memory(values).arena_bytes <= 1.2 * lower_bound(values)


def test_no_values():
    plan = plan_memory([])
    assert plan.arena_bytes == 0
    assert "arena 0 bytes" in plan.render()


def test_picture_has_a_row_a_value():
    plan = plan_memory([Lifetime("first", 100, 0, 2), Lifetime("second", 100, 1, 300)])
    rows = plan.render(columns=40).splitlines()[2:]
    assert len(rows) == 2
    assert rows[0].endswith("first")
    assert all(len(row) < 80 for row in rows)


@pytest.mark.parametrize(
    "values",
    [[Lifetime("a", 1, 2, 1)], [Lifetime("a", 1, 0, 1), Lifetime("a", 1, 2, 3)]],
)
def test_impossible_lifetimes_are_refused(values):
    with pytest.raises(InternalError):
        plan_memory(values)
