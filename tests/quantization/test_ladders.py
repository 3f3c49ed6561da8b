"""The plans that the search for a front begins with."""

from collections.abc import Mapping
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from autotune.quantization.ladders import first_plans
from autotune.quantization.precision import BFLOAT16, FLOAT32, INT8, PrecisionOption, Precisions
from autotune.quantization.within import PrecisionSearch

COSTS = {INT8: (1.0, 1e-4), BFLOAT16: (2.0, 1e-6), FLOAT32: (4.0, 0.0)}


def search(products: Mapping[str, tuple[str, ...]], limit: float) -> Any:
    """Return a search that knows the square of a plan as the sum of those of its products."""
    options = {
        product: [PrecisionOption(one, *COSTS[one]) for one in choices]
        for product, choices in products.items()
    }

    def holds(plan: Precisions) -> bool:
        return sum(COSTS[one][1] for one in plan.values()) <= limit

    def steps_of(of: Any) -> Any:
        return PrecisionSearch.steps_of(search, of)  # type: ignore[arg-type]

    return SimpleNamespace(options=options, holds=holds, steps_of=steps_of, settled=lambda plan: plan)


def test_plans_begin_with_the_fastest_and_with_all_in_bfloat16() -> None:
    products = dict.fromkeys("abcdefghijkl", (INT8, BFLOAT16, FLOAT32)) | {"last": (INT8, FLOAT32)}
    plans = first_plans(search(products, 1.0))
    assert plans[0] == dict.fromkeys(products, INT8)
    assert plans[1] == {**dict.fromkeys(products, BFLOAT16), "last": FLOAT32}
    assert len(plans) <= 16
    assert len({tuple(plan.values()) for plan in plans}) == len(plans)
    counts = sorted([*plan.values()].count(BFLOAT16) for plan in plans if INT8 not in plan.values())
    assert counts[0] == 1
    assert max(b - a for a, b in pairwise(counts)) <= 2


def test_plans_are_within_the_budget_and_never_all_in_float32() -> None:
    products = dict.fromkeys("ab", (INT8, BFLOAT16, FLOAT32))
    plans = first_plans(search(products, 1e-5))
    assert plans == [
        {"a": BFLOAT16, "b": BFLOAT16},
        {"a": FLOAT32, "b": BFLOAT16},
    ]
    assert first_plans(search({"a": (FLOAT32,)}, 1.0)) == []
