"""Which loops of a kernel run as groups and work items, found before any code is written.

A kernel's outermost loops over blocks are its groups. Inside of a group there may be several nests of loops over
threads, one after another, with serial loops around them: work items meet at a barrier after each. A thread loop of a
nest runs as work items where all of the nest's stores are inside of loops over that axis; else its iterations follow
each other in each work item, which nests with barriers cannot have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autotune.errors import BuildError
from autotune.lower.ir import (
    Allocate,
    Barrier,
    For,
    Prefetch,
    Seq,
    Stmt,
    Store,
    is_thread_axis,
    sub_statements,
    walk,
)

Tag = str


def is_group_axis(kind: str) -> bool:
    """Whether the iterations of a loop are groups."""
    return kind.startswith("blockIdx")


def is_item_axis(kind: str) -> bool:
    """Whether the iterations of a loop are work items of a group; virtual threads are not."""
    return kind.startswith("threadIdx")


def dimension(tag: Tag) -> int:
    """OpenCL's number of an axis: x is 0."""
    return "xyz".index(tag[-1])


def has_threads(stmt: Stmt) -> bool:
    """Whether there is a loop over work items in a statement."""
    return any(isinstance(part, For) and is_item_axis(part.kind) for part in walk(stmt))


def has_axes(stmt: Stmt) -> bool:
    """Whether a kernel has loops that are bound to any thread axis."""
    return any(isinstance(part, For) and is_thread_axis(part.kind) for part in walk(stmt))


def has_barrier(stmt: Stmt) -> bool:
    """Whether work items wait for one another inside of a statement."""
    return any(isinstance(part, Barrier) for part in walk(stmt))


@dataclass(frozen=True)
class Nest:
    """A nest of loops over work items: the axes that run as such; the others are serial."""

    tags: frozenset[Tag]


def nest_of(loop: For) -> Nest:
    """How the nest under its outermost loop over work items runs; raises BuildError where it cannot."""
    found = {p.kind for p in walk(loop) if isinstance(p, For) and is_item_axis(p.kind)}
    serial = {tag for open_tags in _leaves(loop, frozenset()) for tag in found - open_tags}
    if serial and has_barrier(loop):
        raise BuildError(
            f"{', '.join(sorted(serial))} of loop {loop.var.name} ({loop.kind}) does not enclose all that its threads "
            f"do between barriers; bind the outer loops, and put the loop of {', '.join(sorted(serial))} right inside"
        )
    return Nest(frozenset(found - serial))


def _leaves(stmt: Stmt, open_tags: frozenset[Tag]) -> Iterator[frozenset[Tag]]:
    """The axes that are open at each place where something happens."""
    if isinstance(stmt, Prefetch):
        return
    if isinstance(stmt, Store | Barrier | Allocate) or (isinstance(stmt, Seq) and not stmt.stmts):
        yield open_tags
    if isinstance(stmt, For) and is_item_axis(stmt.kind):
        open_tags |= {stmt.kind}
    for part in sub_statements(stmt):
        yield from _leaves(part, open_tags)


def group_sizes(body: Stmt) -> tuple[int, int, int]:
    """Work items of a group by dimension: as many as the longest loop of each axis that runs as such."""
    sizes = [1, 1, 1]
    _measure(body, frozenset(), False, sizes)
    return sizes[0], sizes[1], sizes[2]


def _measure(stmt: Stmt, tags: frozenset[Tag], inside: bool, sizes: list[int]) -> None:
    if isinstance(stmt, For) and is_item_axis(stmt.kind):
        if not inside:
            tags, inside = nest_of(stmt).tags, True
        if stmt.kind in tags:
            number = dimension(stmt.kind)
            sizes[number] = max(sizes[number], stmt.extent)
    for part in sub_statements(stmt):
        _measure(part, tags, inside, sizes)


def whole_group(extents: Mapping[Tag, int], sizes: tuple[int, int, int]) -> bool:
    """Whether loops over so many work items are run by all of the group."""
    open_sizes = [1, 1, 1]
    for tag, extent in extents.items():
        open_sizes[dimension(tag)] = extent
    return tuple(open_sizes) == sizes


__all__ = [
    "Nest",
    "dimension",
    "group_sizes",
    "has_axes",
    "has_barrier",
    "has_threads",
    "is_group_axis",
    "is_item_axis",
    "nest_of",
    "whole_group",
]
