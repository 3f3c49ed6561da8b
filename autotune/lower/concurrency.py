"""Proof that iterations which may run at the same time, or in any order, leave each other's memory alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autotune.lower.ir import Buffer, is_thread_axis
from autotune.lower.polyhedra import Access, StoreInstances
from autotune.lower.relations import Reader, Relations

_UNORDERED = ("parallel", "vectorized")


class Concurrency:
    """The checks of all parallel, vectorized and thread loops of a program."""

    def __init__(self, relations: Relations) -> None:
        self.r = relations

    def check(self, sources: Any) -> None:
        """Raise LoweringError where iterations read what others wrote, or store where others read or store."""
        self._check_flow(sources)
        for loop in self._loops():
            self._check_conflicts(loop)

    def _check_flow(self, sources: Any) -> None:
        for m in self.r.maps(sources):
            sink, source = self._ends(m)
            for depth, kind in unordered(sink, source):
                if not _folded(sink, source, kind):
                    self._refuse(different(self.r.isl, m, depth), f"a {kind} loop carries a dependence")

    def _loops(self) -> Iterator[tuple[int, tuple[str, ...], str]]:
        """Yield depth, time and kind of each loop whose iterations have no order."""
        found: dict[tuple[int, tuple[str, ...], str], None] = {}
        for instance in self.r.instances:
            for depth, (_, kind) in enumerate(instance.loops):
                if kind in _UNORDERED or is_thread_axis(kind):
                    found[depth, instance.at.time[: 2 + 2 * depth], kind] = None
        return iter(found)

    def _check_conflicts(self, loop: tuple[int, tuple[str, ...], str]) -> None:
        depth, time, kind = loop
        inside = [each for each in self.r.accesses if _inside(each, time)]
        stores = [each for each in inside if isinstance(each, StoreInstances)]
        written = {store.write.buffer for store in stores}
        touched = [
            each for each in inside if isinstance(each, StoreInstances) or each.access.buffer in written
        ]
        both = self.r.touches(stores).apply_range(self.r.touches(touched).reverse())
        for m in self.r.maps(both):
            store, other = self._ends(m)
            if _folded(store, other, kind):
                continue
            clash = different(self.r.isl, m, depth)
            if not clash.is_empty():
                self._refuse(
                    self._harmful(clash, store, other),
                    f"a {kind} loop stores where others of it read or store",
                )

    def _harmful(self, clash: Any, store: Any, other: Any) -> Any:
        """Return clashes but for those of the same finished element, which is computed twice."""
        cell = other.cell if isinstance(other, Reader) else self.r.cells.stored(other)
        if store.origin.part not in ("all", "store") or cell is None:
            return clash
        finished = other.finishes if isinstance(other, Reader) else other.origin.part in ("all", "store")
        if not finished:
            return clash
        same = self.r.cells_of([store]).apply_range(self.r.cells_of([other]).reverse())
        return self.r.isl.UnionMap.from_map(clash).subtract(same)

    def _ends(self, m: Any) -> tuple[Any, Any]:
        kinds = self.r.isl.dim_type
        names = (m.get_tuple_name(kinds.in_), m.get_tuple_name(kinds.out))
        return self.r.of(names[0]), self.r.of(names[1])

    def _refuse(self, pairs: Any, what: str) -> None:
        if not pairs.is_empty():
            raise self.r.wrong(what, pairs)


def unordered(one: StoreInstances | Reader, other: StoreInstances | Reader) -> Iterator[tuple[int, str]]:
    """Yield the depth and kind of the loops around both whose iterations have no order."""
    for depth, ((_, kind), (_, second)) in enumerate(zip(one.loops, other.loops, strict=False)):
        start = one.at.time[: 2 + 2 * depth]
        if not (_inside(one, start) and _inside(other, start)):
            return  # from here on in different loops
        if kind == second and (kind in _UNORDERED or is_thread_axis(kind)):
            yield depth, kind


def _inside(each: StoreInstances | Reader, start: tuple[str, ...]) -> bool:
    """Return whether a statement or a read happens inside of the loop that starts at a time."""
    return len(each.at.time) > len(start) and each.at.time[: len(start)] == start


def _folded(one: StoreInstances | Reader, other: StoreInstances | Reader, kind: str) -> bool:
    """Return whether both belong to updates of one reduction, whose vector lanes are folded."""
    first, second = (each.instance if isinstance(each, Reader) else each for each in (one, other))
    if first is None or second is None or first.origin.stage != second.origin.stage:
        return False
    return kind == "vectorized" and first.origin.part == second.origin.part == "update"


def different(isl: Any, m: Any, depth: int) -> Any:
    """Return pairs that agree in all loops outside of ``depth`` and differ there."""
    kinds = isl.dim_type
    for d in range(depth):
        m = m.equate(kinds.in_, d, kinds.out, d)
    return m.subtract(m.equate(kinds.in_, depth, kinds.out, depth))


def check_overwriting(r: Relations, output: Buffer, source: Buffer) -> None:
    """Check that no element of an input is read once an output is stored there, or concurrently with its store.

    Raises LoweringError where the two must not be one memory.
    """
    read, stored = (
        r.relation([r.piece(e, f"A[{_address(a)}]") for e, a in _accesses(r, b)]) for b in (source, output)
    )
    both = read.apply_range(stored.reverse())
    late = both.lex_gt_at_multi_union_pw_aff(r.moments)
    if not late.is_empty():
        raise r.wrong(f"{source.name} is read where {output.name} has overwritten it", late)
    for m in r.maps(both):
        kinds = r.isl.dim_type
        first, second = r.reader_of[m.get_tuple_name(kinds.in_)], r.of(m.get_tuple_name(kinds.out))
        for depth, _ in unordered(first, second):
            beside = different(r.isl, m, depth)
            if not beside.is_empty():
                raise r.wrong(f"{source.name} is read beside who overwrites it", beside)


def _accesses(r: Relations, buffer: Buffer) -> Iterator[tuple[StoreInstances | Reader, Access]]:
    for each in r.accesses:
        access = each.write if isinstance(each, StoreInstances) else each.access
        if access.buffer is buffer and each.at.time[0] not in r.hoisted:
            yield each, access


def _address(access: Access) -> str:
    """Return the address of an element, counted in elements."""
    terms = zip(access.buffer.strides, access.index, strict=True)
    return " + ".join(f"{stride} * ({index})" for stride, index in terms) or "0"


__all__ = ["Concurrency", "check_overwriting", "different", "unordered"]
