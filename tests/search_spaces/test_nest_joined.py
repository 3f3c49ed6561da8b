"""Loop nests of several paths in one: what follows from it is what follows from each alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cost_models import features
from search_spaces.nest import Body, Loop, LoopKind, LoopNest, TensorAccess
from search_spaces.nest.joined import expanded, frame_of, joined, positions
from search_spaces.spaces import space_for
from tests.search_spaces import workloads as make
from tests.search_spaces.test_derived_nests import CASES, SOME

ONE = np.ones(1)


def nest(*loops: tuple[str, LoopKind], outside: frozenset[str] = frozenset(), size: int = 8) -> LoopNest:
    return LoopNest(
        family="program",
        lanes=16,
        flops=1.0,
        extents=dict.fromkeys((axis for axis, _ in loops), size),
        loops=tuple(Loop(axis, ONE * 2, kind) for axis, kind in loops),
        accesses=(TensorAccess("A", 4, ((("i", 1),),), (8,), outside=outside),),
        body=Body(*[ONE] * 7),
        tail_operations=ONE,
        serial=ONE > 1,
    )


def test_a_frame_has_the_loops_of_both_in_their_order_and_those_of_bodies_inside() -> None:
    a = nest(("i", "parallel"), ("k", "serial"), ("j", "serial"), ("j", "vectorized"))
    b = nest(("i", "parallel"), ("j", "serial"), ("k", "serial"), ("k", "unrolled"), ("j", "vectorized"))
    frame = joined(frame_of(a), frame_of(b))
    assert frame is not None
    assert [loop.kind for loop in frame.loops[frame.body_level :]] == ["unrolled", "vectorized"]
    for own in (a, b):
        assert [frame.loops[p].axis for p in positions(own, frame)] == [loop.axis for loop in own.loops]
        found = expanded(own, frame)
        assert np.prod([np.max(loop.extent) for loop in found.loops]) == 2 ** len(own.loops)


def test_one_frame_has_no_room_for_different_data() -> None:
    a = nest(("i", "parallel"))
    assert joined(frame_of(a), frame_of(nest(("i", "parallel"), size=9))) is None
    longer = replace(a, accesses=(replace(a.accesses[0], shape=(9,)),))
    assert joined(frame_of(a), frame_of(longer)) is None


def test_one_frame_has_no_room_for_a_loop_that_repeats_an_access_in_one_nest_only() -> None:
    before = nest(("i", "parallel"), ("k", "serial"), outside=frozenset({"k"}))
    assert joined(frame_of(before), frame_of(nest(("i", "parallel"), ("k", "serial")))) is None
    other = nest(("i", "parallel"), ("j", "serial"), outside=frozenset({"j"}))
    frame = joined(frame_of(before), frame_of(other))
    assert frame is not None
    assert frame.accesses[0].outside == {"j", "k"}
    assert joined(frame, frame_of(nest(("i", "parallel")))) is None


@SOME
@pytest.mark.parametrize("name", sorted(CASES))
def test_features_are_the_same_in_any_company(name: str, count: int, every: int) -> None:
    space = space_for(CASES[name](), make.AVX512)
    population = space.population(np.random.default_rng(1), count)
    together = features.extract(space, population)
    fresh = space_for(CASES[name](), make.AVX512)
    rows = range(0, len(population), every)
    alone = [features.extract(fresh, [population.config(row)])[0] for row in rows]
    np.testing.assert_allclose(alone, together[::every], rtol=1e-6)
