"""Drawings of graphs: nothing overlaps, edges go down, and every edge is there."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from autotune.profiling.layers import drawn

SIZE = (100.0, 40.0)


def graph(seed: int, boxes: int, edges: int) -> list[tuple[str, str]]:
    """Edges of a random acyclic graph."""
    pairs = np.sort(np.random.default_rng(seed).integers(0, boxes, (edges, 2)), axis=1)
    return [(str(a), str(b)) for a, b in pairs if a != b]


@pytest.mark.parametrize("seed", range(5))
def test_boxes_are_apart_and_edges_go_down(seed: int) -> None:
    edges = graph(seed, 60, 90)
    made = drawn({str(n): SIZE for n in range(60)}, edges)
    places = sorted(made.places.values(), key=lambda place: place[::-1])
    for (x, y), (u, v) in pairwise(places):
        assert v - y >= SIZE[1] if v != y else u - x >= SIZE[0]
    assert {*made.edges, *made.arcs} == {*edges}
    for edge, points in made.edges.items():
        assert all(high < low for (_, high), (_, low) in pairwise(points))
        assert points[0] == (made.places[edge[0]][0], made.places[edge[0]][1] + SIZE[1] / 2)
        assert points[-1] == (made.places[edge[1]][0], made.places[edge[1]][1] - SIZE[1] / 2)
    inside = [place for points in made.edges.values() for place in points] + places
    assert all(0 < x < made.width and 0 < y < made.height for x, y in inside)


def test_a_chain_is_straight_and_what_it_implies_far_away_is_an_arc() -> None:
    names = [str(n) for n in range(12)]
    made = drawn(dict.fromkeys(names, SIZE), [*pairwise(names), ("0", "3"), ("0", "11")])
    assert {*made.arcs} == {("0", "11")}
    chain = drawn(dict.fromkeys(names, SIZE), pairwise(names))
    assert len({x for x, _ in chain.places.values()}) == 1


def test_a_far_edge_that_nothing_implies_has_a_lane() -> None:
    names = [str(n) for n in range(12)]
    made = drawn(dict.fromkeys(["a", *names], SIZE), [*pairwise(names), ("a", "11")])
    assert (len(made.edges["a", "11"]), made.arcs) == (12, {})


def test_nothing_has_a_drawing_too() -> None:
    assert drawn({}, []).places == {}
