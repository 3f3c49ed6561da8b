"""Sketches: knobs and constraints are discovered, configurations share paths, and binding is running the function."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune import te
from autotune.errors import AutotuneError, KnobError
from autotune.lower.examples import chain, matmul
from autotune.schedule import Schedule
from search_spaces.sketch import Sketch
from tests.schedule.random_programs import random_program
from tests.schedule.random_sketches import random_schedule_function


def gemm_sketch() -> Sketch:
    """Tiles of a product; one half of the configurations packs B, and only those have an order of the panels."""
    _, _, b, c = matmul(48, 64, 32)

    def schedule(s: Schedule) -> None:
        rows = s.knob("rows", (2, 4, 6), default=6)
        vectors = s.knob("vectors", (1, 2, 4), default=2)
        s.require("fits", (rows, vectors), lambda r, v: r * v <= 12, "registers")
        s[c].tile(*s[c].op.axis, rows, vectors * 8)
        if s.knob("pack", (False, True)):
            copy = s[s.cache_read(b, "global", [c])]
            columns_first = s.knob("columns_first", (False, True))
            s.require("narrow", (vectors, columns_first), lambda v, first: (v < 4) | ~first)
            if columns_first:
                copy.reorder(*reversed(copy.op.axis))

    return Sketch(schedule, [c])


def test_knobs_and_constraints_of_all_paths_are_found() -> None:
    sketch = gemm_sketch()
    assert [k.name for k in sketch.knobs] == ["rows", "vectors", "pack", "columns_first"]
    assert {c.name: set(c.knobs) for c in sketch.constraints} == {
        "fits": {"rows", "vectors"},
        "narrow": {"vectors", "columns_first", "pack"},
    }
    columns = {"vectors": np.full(4, 4), "pack": np.arange(4) > 1, "columns_first": np.arange(4) % 2 == 1}
    assert sketch.constraints[1].mask(columns).tolist() == [True, True, True, False]


def test_configurations_share_the_path_of_equal_answers() -> None:
    sketch = gemm_sketch()
    columns: dict[str, Any] = {
        "rows": np.asarray([2, 4, 6, 6, 2, 4]),
        "vectors": np.asarray([1, 2, 1, 2, 4, 1]),
        "pack": np.asarray([False, True, True, False, False, True]),
        "columns_first": np.asarray([False, True, False, True, False, True]),
    }
    paths = sketch.paths(columns)
    assert sorted(sorted(rows.tolist()) for rows, _ in paths) == [[0, 3, 4], [1, 5], [2]]
    assert sorted(len(path.trace) for _, path in paths) == [1, 2, 3]
    assert [path.active for rows, path in paths if 0 in rows] == [("rows", "vectors", "pack")]


def test_inactive_knobs_make_no_other_candidate() -> None:
    sketch = gemm_sketch()
    one = {"rows": 2, "vectors": 1, "pack": False, "columns_first": True}
    assert sketch.canonical(one) == {**one, "columns_first": False}
    assert sketch.bind(one) == sketch.bind(sketch.canonical(one))


def test_illegal_configurations_are_refused() -> None:
    sketch = gemm_sketch()
    with pytest.raises(KnobError, match="constraint 'fits' does not hold for rows=6, vectors=4: registers"):
        sketch.bind({"rows": 6, "vectors": 4})
    with pytest.raises(KnobError, match="the sketch has no knob 'row'; did you mean 'rows'"):
        sketch.bind({"row": 6})
    with pytest.raises(KnobError, match="knob 'rows' cannot be 3"):
        sketch.bind({"rows": 3})


def test_what_the_function_refuses_for_some_is_refused_for_those() -> None:
    _, _, _, c = chain(16)

    def schedule(s: Schedule) -> None:
        (i,) = s[c].op.axis
        s[c].split(i, factor=2)
        if s.knob("again", (False, True)):
            s[c].split(i, factor=2)

    sketch = Sketch(schedule, [c])
    assert len(sketch.bind({"again": False})) == 1
    with pytest.raises(AutotuneError, match="i is no longer a loop"):
        sketch.bind({"again": True})
    paths = sketch.paths({"again": np.asarray([True, False, True])})
    assert sorted((rows.tolist(), path.error is None) for rows, path in paths) == [
        ([0, 2], False),
        ([1], True),
    ]


def test_a_knob_with_other_values_elsewhere_is_refused() -> None:
    _, _, _, c = chain(16)

    def schedule(s: Schedule) -> None:
        size = s.knob("size", (4, 8))
        s.knob("part", [d for d in (1, 2, 4, 8) if d <= size])

    with pytest.raises(KnobError, match="knob 'part' is declared with other values on another path"):
        Sketch(schedule, [c])


def test_a_function_that_depends_on_more_than_knobs_is_refused() -> None:
    _, _, _, c = chain(16)
    calls = iter(range(100))

    def schedule(s: Schedule) -> None:
        if s.knob("a", (False, True)) if next(calls) % 2 else s.knob("b", (False, True)):
            s[c].unroll(s[c].op.axis[0])

    with pytest.raises(KnobError, match="does not do the same each time"):
        Sketch(schedule, [c])


def test_a_rule_for_single_values_is_refused() -> None:
    sketch = Sketch(
        lambda s: s.require("r", [s.knob("a", (1, 2)), s.knob("b", (1, 2))], lambda a, b: a < 2 and b < 2),
        [chain(16)[3]],
    )
    with pytest.raises(KnobError, match="the rule of 'r' does not take arrays"):
        sketch.constraints[0].mask({"a": np.asarray([1, 2]), "b": np.asarray([1, 2])})


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**32))
def test_binding_is_running_the_function(seed: int) -> None:
    """For random programs, functions and configurations: the same trace, loops and refusals."""
    outputs = random_program(random.Random(seed)).tensors()[1]
    function = random_schedule_function(seed, lambda: te.create_schedule(outputs))
    sketch = Sketch(function, outputs)
    rng = random.Random(seed)
    configs = [{k.name: rng.choice(k.values) for k in sketch.knobs} for _ in range(8)]
    for config in configs:
        try:
            direct = sketch.schedule(config)
        except AutotuneError:
            with pytest.raises(AutotuneError):
                sketch.bind(config).apply(te.create_schedule(outputs))
            continue
        trace = sketch.bind(config)
        assert trace == direct.trace
        assert not trace.knobs
        again = trace.apply(te.create_schedule(outputs))
        assert [s.nest_text() for s in again.stages] == [s.nest_text() for s in direct.stages]
    if sketch.knobs:
        columns = {k.name: np.asarray([c[k.name] for c in configs]) for k in sketch.knobs}
        paths = sketch.paths(columns)
        assert sorted(row for rows, _ in paths for row in rows) == list(range(len(configs)))
        for rows, path in paths:
            for row in rows if path.error is None else ():
                assert path.active == sketch.path(configs[row]).active
