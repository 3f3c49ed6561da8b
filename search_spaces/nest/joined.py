"""One loop nest for the candidates of several paths, so that what follows from it is computed for all at once.

A *frame* is a loop nest without numbers that has room for those of some paths: their loops in one order, of which
some run once in a path that does not have them, and as many bodies and passes as any path has, idle in the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, TypeVar

from search_spaces.nest.loops import Body, Loop, LoopNest, Pass, TensorAccess

_ONCE: Any = 1.0
_NONE: Any = 0.0
_IDLE = Body(*(_NONE for _ in fields(Body)))
T = TypeVar("T")


def frame_of(nest: LoopNest) -> LoopNest:
    """Return a frame that fits one loop nest."""
    return replace(
        nest,
        loops=_idle(nest.loops),
        accesses=tuple(_bare(access) for access in nest.accesses),
        body=_IDLE,
        rests=(_IDLE,) * len(nest.rests),
        passes=_without_bytes(nest.passes),
        tail_operations=_NONE,
        resumed=_NONE,
        serial=_NONE,
        scratch=nest.scratch and (_NONE, _NONE),
        tags=dict.fromkeys(nest.tags, _NONE),
    )


def joined(a: LoopNest, b: LoopNest) -> LoopNest | None:
    """Return a frame with room for all that two others have room for; None where their data or axes differ."""
    extents = {**a.extents, **b.extents}
    if a.lanes != b.lanes or extents != {**b.extents, **a.extents} or len(a.accesses) != len(b.accesses):
        return None
    accesses: list[TensorAccess] = []
    for one, other in zip(a.accesses, b.accesses, strict=True):
        outside = one.outside | other.outside
        own: dict[str, Any] = {
            name: _known(getattr(one, name), getattr(other, name)) for name in TensorAccess.OWN
        }
        access = replace(one, outside=outside, **own)
        if bool(one.outside) != bool(other.outside):
            return None
        if _inside(a, outside - one.outside) or _inside(b, outside - other.outside):
            return None
        if access != replace(other, outside=outside, **own):
            return None
        accesses.append(access)
    outer = _supersequence(a.loops[: a.body_level], b.loops[: b.body_level])
    inner = _supersequence(a.loops[a.body_level :], b.loops[b.body_level :])
    return replace(
        a,
        extents=extents,
        loops=outer + inner,
        accesses=tuple(accesses),
        rests=max(a.rests, b.rests, key=len),
        passes=_supersequence(a.passes, b.passes),
        scratch=a.scratch or b.scratch,
        tags={**a.tags, **b.tags},
    )


def expanded(nest: LoopNest, frame: LoopNest) -> LoopNest:
    """Return a loop nest in a frame that has room for it."""
    loops, passes = list(frame.loops), list(frame.passes)
    for position, loop in zip(positions(nest, frame), nest.loops, strict=True):
        loops[position] = loop
    for position, one in zip(_places(_without_bytes(nest.passes), passes), nest.passes, strict=True):
        passes[position] = one
    return replace(
        frame,
        loops=tuple(loops),
        accesses=tuple(_filled(*both) for both in zip(frame.accesses, nest.accesses, strict=True)),
        body=nest.body,
        rests=(*nest.rests, *frame.rests[len(nest.rests) :]),
        passes=tuple(passes),
        tail_operations=nest.tail_operations,
        resumed=nest.resumed,
        serial=nest.serial,
        scratch=nest.scratch or frame.scratch,
        tags={**frame.tags, **nest.tags},
    )


def positions(nest: LoopNest, frame: LoopNest) -> list[int]:
    """Return the places of the loops of a nest among those of a frame that has room for it."""
    own, depth, room = _idle(nest.loops), nest.body_level, frame.body_level
    outer = _places(own[:depth], frame.loops[:room])
    return outer + [room + place for place in _places(own[depth:], frame.loops[room:])]


def _idle(loops: Sequence[Loop]) -> tuple[Loop, ...]:
    return tuple(Loop(loop.axis, _ONCE, loop.kind) for loop in loops)


def _without_bytes(passes: Sequence[Pass]) -> tuple[Pass, ...]:
    return tuple(replace(one, read=_NONE, written=_NONE) for one in passes)


def _bare(access: TensorAccess) -> TensorAccess:
    return access.having(dict.fromkeys(access.own, _NONE))


def _filled(frame: TensorAccess, access: TensorAccess) -> TensorAccess:
    return frame.having(access.own)


def _known(a: Any, b: Any) -> Any:
    return None if a is None and b is None else _NONE


def _inside(nest: LoopNest, axes: frozenset[str]) -> bool:
    """Return whether some of the axes are those of loops, so that it matters whether an access is outside of these."""
    return any(loop.axis in axes for loop in nest.loops)


@lru_cache(maxsize=1 << 14)
def _supersequence(a: tuple[T, ...], b: tuple[T, ...]) -> tuple[T, ...]:
    """Return the shortest sequence that has both, each in its order."""
    if not a or not b:
        return a + b
    if a[0] == b[0]:
        return (a[0], *_supersequence(a[1:], b[1:]))
    first, second = (a[0], *_supersequence(a[1:], b)), (b[0], *_supersequence(a, b[1:]))
    return min(first, second, key=len)


def _places(parts: Sequence[object], whole: Sequence[object]) -> list[int]:
    """Return the places of the parts of a sequence in one that has them in this order."""
    found: list[int] = []
    for part in parts:
        found.append(whole.index(part, found[-1] + 1 if found else 0))
    return found


__all__ = ["expanded", "frame_of", "joined", "positions"]
