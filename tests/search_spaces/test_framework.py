"""Knobs, constraints, groups and spaces, on made-up spaces whose answers are known."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InternalError, KnobError
from autotune.schedule.knob import Knob, config_to_json
from autotune.target import Target
from search_spaces import group as group_module
from search_spaces.constraint import Constraint
from search_spaces.space import Space

ROWS = Knob.of("rows", (1, 2, 4, 8), 4)
VECTORS = Knob.of("vectors", (1, 2, 3), 2)
ORDER = Knob.of("order", ("mn", "nm"), "mn")
PACK = Knob.of("pack", (False, True), False)
FITS = Constraint("fits", ("rows", "vectors"), lambda c: c["rows"] * c["vectors"] <= 8, "registers spill")
EASY = Constraint("easy", ("order", "pack"), lambda c: (c["order"] == "mn") | ~c["pack"])


class _NoRecipe:
    def steps(self, schedule: Any, config: Any) -> None:
        raise NotImplementedError


def space(**changes: Any) -> Space:
    fields: dict[str, Any] = {
        "workload": None,
        "target": Target.parse("x86-64-v3"),
        "family": "contraction",
        "knobs": (ROWS, ORDER, VECTORS, PACK),
        "constraints": (FITS, EASY),
        "recipe": _NoRecipe(),
    } | changes
    return Space(**fields)


def legal_by_hand() -> set[tuple[Any, ...]]:
    return {
        (rows, order, vectors, pack)
        for rows, order, vectors, pack in itertools.product(
            ROWS.values, ORDER.values, VECTORS.values, PACK.values
        )
        if rows * vectors <= 8 and (order == "mn" or not pack)
    }


def test_size_and_enumeration_agree_with_a_count_by_hand() -> None:
    found = {tuple(config.values()) for config in space().enumerate()}
    assert found == legal_by_hand()
    assert space().size() == len(found)


def test_random_gives_distinct_legal_candidates_and_all_of_a_small_space() -> None:
    configs = space().random(np.random.default_rng(1), 10_000)
    assert len(configs) == len(legal_by_hand())
    some = space().random(np.random.default_rng(1), 5)
    assert len({config_to_json(config) for config in some}) == 5
    assert some == space().random(np.random.default_rng(1), 5)


def test_distances_count_each_knob_up_to_one_and_ordered_ones_by_steps() -> None:
    near = {"rows": 1, "order": "mn", "vectors": 1, "pack": False}
    far = {"rows": 4, "order": "nm", "vectors": 2, "pack": False}
    found = space().of([near, far]).distances(space().of([near, far, {**near, "rows": 2}]))
    assert found == pytest.approx(np.array([[0, 2 / 3 + 1 + 1 / 2, 1 / 3], [13 / 6, 0, 1 / 3 + 3 / 2]]))


def test_sampling_is_uniform_over_the_legal_candidates() -> None:
    drawn = space().sample(np.random.default_rng(2), 20_000)
    counts = np.unique(drawn.codes(), return_counts=True)[1]
    expected = 20_000 / len(legal_by_hand())
    assert len(counts) == len(legal_by_hand())
    assert counts.min() > 0.8 * expected
    assert counts.max() < 1.2 * expected


def test_sampling_finds_the_few_survivors_of_a_huge_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_module, "MAX_ROWS", 64)
    knobs = tuple(Knob(f"k{i}", tuple(range(12))) for i in range(6))
    same = Constraint("sum", tuple(knob.name for knob in knobs), lambda c: sum(c.values()) % 500 == 3)
    rare = space(knobs=knobs, constraints=(same,))
    assert not rare.exact
    drawn = rare.sample(np.random.default_rng(3), 50)
    assert len(drawn) == 50
    assert rare.legal(drawn.columns()).all()


def test_a_space_without_candidates_says_which_knobs() -> None:
    never = Constraint("never", ("rows",), lambda c: c["rows"] > 99)
    with pytest.raises(KnobError, match="leave no legal values of the knobs rows"):
        space(constraints=(never,)).size()


def test_neighbours_differ_in_one_knob_and_are_legal() -> None:
    here = {"rows": 4, "order": "mn", "vectors": 2, "pack": True}
    near = space().neighbourhood(space().of([here]))
    assert [tuple(config.values()) for config in near.configs()] == [
        (2, "mn", 2, True),
        (4, "mn", 1, True),
        (4, "mn", 2, False),
    ]


def test_check_explains_each_kind_of_mistake() -> None:
    good = {"rows": 4, "order": "mn", "vectors": 2, "pack": False}
    assert space().check(dict(reversed(good.items()))) == good
    with pytest.raises(KnobError, match=r"knob 'rows' cannot be 5; .*\(nearest: 4\)"):
        space().check(good | {"rows": 5})
    with pytest.raises(KnobError, match="knob 'rows' cannot be True"):
        space().check(good | {"rows": True})
    with pytest.raises(KnobError, match="lacks rows; has unknown row"):
        space().check({"row": 1, "order": "mn", "vectors": 2, "pack": False})
    with pytest.raises(KnobError, match="'fits' does not hold for rows=8, vectors=3: registers"):
        space().check(good | {"rows": 8, "vectors": 3})


def test_explain_counts_what_each_constraint_removed() -> None:
    told = space().explain()
    assert told.exact
    assert told.combinations == 48
    assert told.legal == len(legal_by_hand())
    fits, easy = told.constraints
    assert fits.removed == pytest.approx(3 / 12)
    assert easy.removed == pytest.approx(1 / 4)
    assert fits.only == pytest.approx(3 / 12 * 3 / 4)
    assert "space contraction: 27 of 48 combinations are legal" in str(told)


def test_default_is_the_declared_one_or_the_nearest_legal() -> None:
    assert space().default() == {"rows": 4, "order": "mn", "vectors": 2, "pack": False}
    greedy = (Knob.of("rows", (1, 2, 4, 8), 8), ORDER, VECTORS, PACK)
    fallback = space(knobs=greedy).default()
    assert space(knobs=greedy).check(fallback) == fallback


def test_key_covers_knobs_values_and_constraints_but_not_help() -> None:
    keys = {
        space().key,
        space(knobs=(Knob.of("rows", (1, 2, 4), 4), ORDER, VECTORS, PACK)).key,
        space(constraints=(FITS,)).key,
        space(family="pool").key,
    }
    assert len(keys) == 4
    helped = (Knob.of("rows", (1, 2, 4, 8), 2, "register rows"), ORDER, VECTORS, PACK)
    assert space(knobs=helped).key == space().key


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=9, unique=True), st.data())
def test_knob_json_round_trip(values: list[int], data: st.DataObject) -> None:
    knob = Knob("k", tuple(sorted(values)), data.draw(st.integers(0, len(values) - 1)), "why")
    assert Knob.from_json(knob.to_json()) == knob


def test_steps_are_the_neighbours_of_every_value() -> None:
    ordered, named, lone = Knob("k", (1, 2, 4)), Knob("k", ("a", "b", "c")), Knob("k", (7,))
    assert ordered.steps.tolist() == [[1, -1], [0, 2], [1, -1]]
    assert named.steps.tolist() == [[1, 2], [0, 2], [0, 1]]
    assert lone.steps.shape == (1, 0)
    assert ordered.steps.dtype == np.int16


def test_json_of_a_configuration_is_canonical() -> None:
    assert config_to_json({"b": True, "a": 3, "c": "mn"}) == '{"a":3,"b":true,"c":"mn"}'


@pytest.mark.parametrize("values", [(), (1, "a"), (1.5,), (2, 1), (1, 1), (1, True)])
def test_wrong_knobs_are_refused(values: tuple[Any, ...]) -> None:
    with pytest.raises(KnobError, match="knob 'k'"):
        Knob("k", values)


def test_a_constraint_sees_only_its_knobs_and_must_give_bools() -> None:
    columns = space().enumerate().columns()
    with pytest.raises(KeyError):
        Constraint("peeks", ("rows",), lambda c: c["pack"]).mask(columns)
    with pytest.raises(InternalError, match="'odd' returned"):
        Constraint("odd", ("rows",), lambda c: c["rows"]).mask(columns)
