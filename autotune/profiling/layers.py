"""A layered drawing of an acyclic graph, as of Sugiyama, Tagawa and Toda (1981): places of boxes and paths of edges.

A box is in the layer below all that it follows. Edges pass the layers between in lanes of their own, boxes are ordered
by the means of their neighbours, and stand as near to these as their widths allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import TypeVar

Box = str
Lane = tuple[Box, Box, int]
"""The place of an edge in a layer that it passes."""
Item = Box | Lane
Edge = tuple[Box, Box]
Point = tuple[float, float]
T = TypeVar("T")

_GAP, _BETWEEN, _LANE = 24.0, 40.0, 12.0
"""Between boxes of a layer, between layers, and the width of a lane."""
_SWEEPS = 12
_FAR = 6
"""An edge that passes more layers has no lane if a way of other edges leads there too: it is an arc at the side."""


@dataclass(frozen=True)
class Drawing:
    """Middles of boxes, the points of edges, those of arcs, and the size of all."""

    places: Mapping[Box, Point]
    edges: Mapping[Edge, tuple[Point, ...]]
    arcs: Mapping[Edge, tuple[Point, Point]]
    width: float
    height: float


def drawn(sizes: Mapping[Box, Point], edges: Iterable[Edge]) -> Drawing:
    """Return the drawing of boxes of these widths and heights, which come after all that they follow."""
    edges = list(dict.fromkeys(edges))
    ranks = _ranks(sizes, edges)
    far = {edge for edge in _implied(sizes, edges) if ranks[edge[1]] - ranks[edge[0]] > _FAR}
    lanes = {edge: _lanes(edge, ranks) for edge in edges if edge not in far}
    links = [pair for lane in lanes.values() for pair in pairwise(lane)]
    layers = _layers(sizes, ranks, lanes.values())
    wide = {item: sizes[item][0] if isinstance(item, str) else _LANE for layer in layers for item in layer}
    across = _placed(layers, links, wide)
    left = min((across[item] - wide[item] / 2 for item in wide), default=0.0) - _GAP
    middles, height = _heights(layers, sizes)
    at = {item: (across[item] - left, middles[n]) for n, layer in enumerate(layers) for item in layer}
    places = {box: at[box] for box in sizes}
    paths = {edge: _path([at[item] for item in lane], edge, sizes) for edge, lane in lanes.items()}
    sides = {edge: _side(edge, places, sizes) for edge in sorted(far)}
    right = max((at[item][0] + wide[item] / 2 for item in wide), default=0.0) + _GAP
    return Drawing(
        places, paths, sides, right + max((bulge(*ends) for ends in sides.values()), default=0.0), height
    )


def bulge(begin: Point, end: Point) -> float:
    """Return how far to the right an arc reaches."""
    return min(120.0, 20.0 + abs(end[1] - begin[1]) / 20)


def _ranks(boxes: Iterable[Box], edges: Sequence[Edge]) -> dict[Box, int]:
    ranks = dict.fromkeys(boxes, 0)
    before = _neighbours((end, begin) for begin, end in edges)
    for box in ranks:
        ranks[box] = max((ranks[other] + 1 for other in before.get(box, ())), default=0)
    return ranks


def _neighbours(pairs: Iterable[tuple[T, T]]) -> dict[T, list[T]]:
    found: dict[T, list[T]] = {}
    for one, other in pairs:
        found.setdefault(one, []).append(other)
    return found


def _implied(boxes: Iterable[Box], edges: Sequence[Edge]) -> set[Edge]:
    """Return the edges to what is reached by way of other boxes too."""
    bits = {box: 1 << number for number, box in enumerate(boxes)}
    above, before, found = dict[Box, int](), _neighbours((end, begin) for begin, end in edges), set[Edge]()
    for box in bits:
        mine = before.get(box, [])
        above[box] = 0
        for other in mine:
            above[box] |= above[other]
        found |= {(other, box) for other in mine if above[box] & bits[other]}
        for other in mine:
            above[box] |= bits[other]
    return found


def _lanes(edge: Edge, ranks: Mapping[Box, int]) -> list[Item]:
    begin, end = edge
    return [begin, *((begin, end, rank) for rank in range(ranks[begin] + 1, ranks[end])), end]


def _layers(
    boxes: Iterable[Box], ranks: Mapping[Box, int], lanes: Iterable[Sequence[Item]]
) -> list[list[Item]]:
    layers: list[list[Item]] = [[] for _ in range(max(ranks.values(), default=0) + 1)]
    for box in boxes:
        layers[ranks[box]].append(box)
    for lane in lanes:
        for item in lane[1:-1]:
            layers[int(item[2])].append(item)
    return layers


def _placed(
    layers: Sequence[list[Item]], links: Sequence[tuple[Item, Item]], wide: Mapping[Item, float]
) -> dict[Item, float]:
    """Order the layers, and return where each item stands: swept down and up, each as near to its neighbours of the
    layer before as those beside it allow."""
    above, below = _neighbours((end, begin) for begin, end in links), _neighbours(links)
    across = {item: 0.0 for layer in layers for item in layer}
    for sweep in range(_SWEEPS):
        near, order = (below, layers[::-1]) if sweep % 2 else (above, layers)
        for layer in order:
            wanted = {i: fmean(across[n] for n in near[i]) if near.get(i) else across[i] for i in layer}
            layer.sort(key=wanted.__getitem__)
            across |= zip(layer, _apart([wanted[i] for i in layer], [wide[i] for i in layer]), strict=True)
    return across


def _apart(wanted: Sequence[float], wide: Sequence[float]) -> list[float]:
    """Return the places nearest to those wanted, by least squares, at which nothing overlaps (pool adjacent violators).

    >>> _apart([0.0, 0.0, 100.0], [10.0, 10.0, 10.0])
    [-17.0, 17.0, 100.0]
    """
    offsets = [0.0]
    for one, other in pairwise(wide):
        offsets.append(offsets[-1] + (one + other) / 2 + _GAP)
    pools = list[tuple[float, int]]()
    for place, offset in zip(wanted, offsets, strict=False):
        pools.append((place - offset, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (last, many), (first, few) = pools.pop(), pools.pop()
            pools.append(((last * many + first * few) / (many + few), many + few))
    levels = [mean for mean, count in pools for _ in range(count)]
    return [level + offset for level, offset in zip(levels, offsets, strict=False)]


def _heights(layers: Sequence[Sequence[Item]], sizes: Mapping[Box, Point]) -> tuple[list[float], float]:
    """Return the middle of each layer, and where the last ends."""
    middles, top = [], _GAP
    for layer in layers:
        high = max((sizes[item][1] for item in layer if isinstance(item, str)), default=0.0)
        middles.append(top + high / 2)
        top += high + _BETWEEN
    return middles, top - _BETWEEN + _GAP


def _path(points: Sequence[Point], edge: Edge, sizes: Mapping[Box, Point]) -> tuple[Point, ...]:
    """Return the points of an edge from the lower side of its first box to the upper side of its last."""
    (x, y), (u, v) = points[0], points[-1]
    return ((x, y + sizes[edge[0]][1] / 2), *points[1:-1], (u, v - sizes[edge[1]][1] / 2))


def _side(edge: Edge, places: Mapping[Box, Point], sizes: Mapping[Box, Point]) -> tuple[Point, Point]:
    """Return the ends of an arc, at the right sides of its boxes."""
    begin, end = ((places[box][0] + sizes[box][0] / 2, places[box][1]) for box in edge)
    return begin, end


__all__ = ["Drawing", "bulge", "drawn"]
