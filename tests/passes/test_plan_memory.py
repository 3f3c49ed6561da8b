"""The memory plan: values that live together never overlap, and the plan stays near its bound."""

import random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InternalError
from autotune.passes.memory import plan_memory as planner
from autotune.passes.memory.plan_memory import (
    ALIGNMENT,
    Lifetime,
    MemoryPlan,
    align,
    lower_bound,
    plan_memory,
    value_lifetimes,
)
from tests.passes.exact_memory import least_bytes


@st.composite
def lifetimes(draw):
    spans = draw(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 20), st.integers(0, 6)), max_size=25))
    return [Lifetime(f"v{i}", size, a, a + n) for i, (size, a, n) in enumerate(spans)]


def values_of(*spans):
    """Lifetimes a, b, c, ... of so many cache lines from one step to another."""
    return [
        Lifetime(name, 64 * lines, a, z) for name, (lines, a, z) in zip("abcdefghij", spans, strict=False)
    ]


def names(values):
    return "".join(value.name for value in values)


def test_the_alignment_is_a_cache_line():
    assert ALIGNMENT == 64
    assert [align(n) for n in (0, 1, 63, 64, 65, 128)] == [0, 64, 64, 64, 128, 128]


def test_the_bound_is_what_the_fullest_step_holds():
    assert lower_bound([]) == 0
    assert lower_bound(values_of((2, 0, 1), (3, 2, 4))) == 192  # one after another
    assert lower_bound(values_of((2, 0, 2), (3, 2, 4))) == 320  # together at step 2
    assert lower_bound(values_of((2, 0, 2), (3, 2, 4), (4, 3, 3), (1, 0, 0))) == 448
    assert lower_bound([Lifetime("a", 1, 0, 1), Lifetime("b", 65, 1, 1)]) == 192
    assert lower_bound(values_of((5, 3, 3), (1, 3, 3), (2, 1, 1))) == 384


def test_orders():
    values = values_of((2, 2, 3), (5, 3, 3), (2, 0, 1), (1, 0, 3), (2, 2, 2), (2, 2, 2), (5, 1, 1))
    assert names(planner._by_size(values)) == "gbcaefd"
    assert names(planner._by_length(values)) == "dacbgef"
    assert names(planner._by_area(values)) == "gbcdaef"
    assert names(planner._by_start(values)) == "cdgaefb"
    assert names(planner._by_breadth(values)) == "gcdbaef"  # 8 lines at step 1 and 3, 7 at 2, 3 at 0
    swapped = values_of((1, 0, 0), (3, 1, 1), (1, 0, 0))
    assert names(planner._by_breadth(swapped)) == "bac"
    assert names(planner._by_size(swapped[::-1])) == "bac"
    assert names(planner._by_length(swapped[::-1])) == "bac"
    assert names(planner._by_start(swapped[::-1])) == "acb"
    assert names(planner._by_area(swapped[::-1])) == "bac"


@pytest.mark.parametrize(
    ("heuristic", "spans"),
    [
        ("size", [(1, 0, 2), (2, 2, 2), (1, 0, 1), (3, 0, 0), (2, 2, 4)]),
        ("breadth", [(3, 1, 3), (4, 0, 2), (2, 0, 0), (3, 3, 3), (3, 3, 3)]),
        ("area", [(2, 0, 2), (3, 1, 3), (3, 2, 4), (4, 0, 1), (4, 3, 4)]),
        ("length of life", [(2, 2, 2), (3, 3, 5), (1, 2, 3), (1, 0, 2), (3, 0, 1)]),
        ("start", [(3, 0, 2), (4, 3, 3), (3, 2, 3), (4, 0, 1)]),
    ],
)
def test_the_order_that_reaches_the_bound_is_taken(heuristic, spans):
    """Of each of these only one order reaches the bound."""
    values = values_of(*spans)
    plan = plan_memory(values)
    assert (plan.heuristic, plan.arena_bytes, plan.lower_bound) == (
        heuristic,
        lower_bound(values),
        lower_bound(values),
    )
    for name, order in planner._ORDERS.items():
        assert (planner._place(order(values))[0] == plan.arena_bytes) == (name == heuristic)


def test_a_value_goes_into_the_smallest_gap_that_fits():
    at = Lifetime("at", 0, 0, 0)
    other = Lifetime("other", 0, 1, 1)
    placed = [(0, 64, at), (256, 320, at), (448, 512, at), (640, 704, at)]  # gaps: 192, 128, 128
    find = planner._smallest_gap
    assert find(placed, at, 192) == 64
    assert find(placed, at, 128) == 320  # the first of equal ones
    assert find(placed, at, 64) == 320
    assert find(placed, at, 193) == 704
    assert find(placed, other, 640) == 0
    assert find([], at, 640) == 0
    assert find([(128, 192, at)], at, 64) == 0
    assert find([(0, 512, at), (64, 128, at), (576, 640, at)], at, 64) == 512  # one lies over another
    for first, last, free in (
        (0, 1, True),
        (0, 2, False),
        (3, 3, False),
        (5, 5, False),
        (5, 9, False),
        (6, 9, True),
    ):
        held = [(0, 64, Lifetime("held", 64, 2, 5))]
        assert find(held, Lifetime("v", 64, first, last), 64) == (0 if free else 64)


def test_placing_gives_up_above_the_limit():
    values = values_of((2, 0, 3), (3, 0, 3), (4, 0, 3))
    assert planner._place(values) == (576, {"a": 0, "b": 128, "c": 320})
    assert planner._place(values, 576) == (576, {"a": 0, "b": 128, "c": 320})
    assert planner._place(values, 575)[0] > 575
    assert planner._place(values, 319) == (320, {"a": 0, "b": 128})
    assert planner._place(values, 320)[0] == 576


ABOVE_THE_BOUND = [(4, 5, 7), (3, 3, 3), (2, 2, 3), (9, 3, 5), (1, 7, 9), (8, 6, 8), (4, 6, 6)]
"""No order reaches the bound."""


def test_a_plan_above_the_bound_is_improved_by_moving_values():
    values = values_of(*ABOVE_THE_BOUND)
    orders = min(planner._place(order(values))[0] for order in planner._ORDERS.values())
    plan = plan_memory(values)
    assert lower_bound(values) == plan.arena_bytes == 1024 < orders == 1088
    assert plan.heuristic.endswith(", perturbed")
    assert plan.heuristic.count("perturbed") == 1
    assert plan_memory(values) == plan


def test_perturbing_ends_with_the_bound_or_after_so_many_tries(monkeypatch):
    tried = []
    place = planner._place
    values = values_of(*ABOVE_THE_BOUND)

    def counted(ordered, limit):
        tried.append(limit)
        return place(ordered, limit)

    monkeypatch.setattr(planner, "_place", counted)
    size, offsets = place(values)
    best = (size, "given", offsets)
    found = planner._perturb(best, values, 0)
    assert len(tried) == 1024
    assert tried == sorted(tried, reverse=True)  # never above the best
    assert found[0] == 1024 < size
    assert found[1] == "given, perturbed"
    tried.clear()
    assert planner._perturb(best, values, found[0])[0] == found[0]
    assert len(tried) < 1024
    monkeypatch.setattr(planner, "_PERTURBATION_WORK", 100 * 49)
    tried.clear()
    planner._perturb(best, values, 0)
    assert len(tried) == 100
    monkeypatch.setattr(planner, "_PERTURBATION_WORK", 49)
    tried.clear()
    planner._perturb(best, values, 0)
    assert len(tried) == 64


@pytest.mark.parametrize(("most", "perturbed"), [(7, True), (6, False)])
def test_plans_of_many_values_are_not_perturbed(most, perturbed, monkeypatch):
    assert (planner._PERTURBED_VALUES, planner._PERTURBATION_WORK) == (512, 40_000_000)
    monkeypatch.setattr(planner, "_PERTURBED_VALUES", most)
    assert ("perturbed" in plan_memory(values_of(*ABOVE_THE_BOUND)).heuristic) is perturbed


def test_values_live_from_the_first_that_writes_to_the_last_that_reads():
    step = lambda inputs, outputs: SimpleNamespace(reads=tuple(inputs), outputs=tuple(outputs), repeats=())  # noqa: E731
    roots = {"x": "x", "k": "k", "a": "a", "part": "a", "b": "b", "c": "c", "y": "y", "view": "y"}
    parts = SimpleNamespace(
        inputs=("x",),
        constants={"k": None},
        outputs=("view",),
        placements={name: SimpleNamespace(root=root) for name, root in roots.items()},
        dispatches=(
            step("xk", "a"),
            step("a", "b"),
            step(["part"], "c"),
            step("bc", "y"),
            step("c", ["view"]),
        ),
        root_nbytes={"a": 100, "b": 200, "c": 300}.__getitem__,
    )
    assert value_lifetimes(parts) == [
        Lifetime("a", 100, 0, 2),
        Lifetime("b", 200, 1, 3),
        Lifetime("c", 300, 2, 4),
    ]


def test_the_picture_of_a_plan():
    values = (Lifetime("a", 64, 0, 1), Lifetime("b", 128, 1, 3), Lifetime("c", 100, 2, 3))
    plan = MemoryPlan(values, {"a": 128, "b": 0, "c": 128}, 256, 128, "hand", {"c": "a"})
    head = "arena 256 bytes, at least 128 needed (2.00x), packed by hand\noffset   bytes  steps  live\n"
    assert plan.render() == (
        head
        + "     0     128    1-3   ###  b\n"
        + "   128      64    0-1  ##    a\n"
        + "   128     100    2-3    ##  c, over a"
    )
    assert plan.render(2) == (
        head
        + "     0     128    1-3  ##  b\n   128      64    0-1  #   a\n   128     100    2-3   #  c, over a"
    )
    assert plan.render(3) == plan.render(2)  # two steps a column
    assert plan.render(4) == plan.render()
    assert MemoryPlan((), {}, 0, 0, "hand").render().startswith("arena 0 bytes, at least 0 needed (1.00x)")


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
    [[Lifetime("a", 1, 2, 1)], [Lifetime("a", -1, 2, 2)], [Lifetime("a", 1, 0, 1), Lifetime("a", 1, 2, 3)]],
)
def test_impossible_lifetimes_are_refused(values):
    with pytest.raises(InternalError):
        plan_memory(values)


def test_a_value_of_one_step_or_of_nothing_is_possible():
    assert plan_memory([Lifetime("a", 1, 2, 2), Lifetime("b", 0, 0, 3)]).arena_bytes == 64


def test_a_picture_has_64_columns_at_most():
    for last, columns in ((63, 64), (64, 33), (127, 64)):
        row = plan_memory([Lifetime("a", 64, 0, last)]).render().splitlines()[-1]
        assert row.count("#") == columns
