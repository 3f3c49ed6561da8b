"""Proof that reductions are complete when they are read: each point of the domain once, in one chain of stores."""

from __future__ import annotations

from typing import Any

from autotune.lower.relations import Relations

_CHAIN = ("init", "update", "load", "store", "fold")


class Accumulations:
    """The checks of all reductions of a program; ``sources`` are the reads, each with the store that it reads from."""

    def __init__(self, relations: Relations, sources: Any) -> None:
        self.r = relations
        self.sources = sources
        self.stores = [i for i in relations.parts(*_CHAIN) if not self._is_last(i)]
        tags = {relations.cells.stored(i).split("[")[0] for i in self.stores}
        readers = [reader for reader in (*relations.readers, *relations.ends) if reader.cell is not None]
        self.readers = [reader for reader in readers if reader.cell.split("[")[0] in tags]  # type: ignore[union-attr]

    def _is_last(self, instance: Any) -> bool:
        return self.r.cells.stored(instance).split("[")[0].endswith("v")

    def check(self) -> None:
        """Raise LoweringError at the first reduction that is not proved."""
        if not self.stores:
            return
        self._check_chain()
        ends = [reader for reader in self.readers if reader.finishes]
        between = self._between(self.r.cells_of(ends))
        updates, folds = self.r.parts("update"), self.r.parts("fold")
        added = self._added(between, updates, folds)
        self._check_points(added, updates)

    def _check_chain(self) -> None:
        """Check that each accumulator is read from where the operation before, on the same element, has left it."""
        operations = self.r.cells_of(self.stores)
        before = self.r.flow(self.r.cells_of(self.readers), operations)
        late = before.get_must_no_source()
        if not late.is_empty():
            raise self.r.wrong("a reduction is read that was never started", late)
        expected = before.get_must_dependence().reverse()
        wrong = expected.subtract(self.sources)
        if not wrong.is_empty():
            raise self.r.wrong("a reduction is read elsewhere than where it was left", wrong)

    def _between(self, ends: Any) -> Any:
        """Return the reader -> the updates and folds of what it reads since that was started."""
        starts = self.r.cells_of(self.r.parts("init"))
        operations = self.r.cells_of(self.r.parts("update", "fold"))
        flow = self.r.flow(ends, starts)
        if not flow.get_must_no_source().is_empty():
            raise self.r.wrong("a reduction is read that was never started", flow.get_must_no_source())
        started = flow.get_must_dependence().reverse()  # reader -> its start
        later = starts.apply_range(operations.reverse()).lex_lt_at_multi_union_pw_aff(self.r.moments)
        earlier = ends.apply_range(operations.reverse()).lex_gt_at_multi_union_pw_aff(self.r.moments)
        return earlier.intersect(started.apply_range(later))

    def _added(self, between: Any, updates: list[Any], folds: list[Any]) -> Any:
        """Return the reader of a finished element -> all its updates, those of its partial sums among them."""
        parts = [reader for reader in self.readers if reader.finishes and reader.instance in folds]
        if not parts:
            return between
        folded = between.intersect_domain(self.r.cells_of(parts).domain())
        if not folded.is_injective():
            raise self.r.wrong("a partial sum is added twice", folded)
        # A fold and its read of the partial sum are the same iterations.
        same = self.r.relation([self.r.piece(part.instance, _tuple(part)) for part in parts if part.instance])
        step = between.apply_range(same)  # reader -> the partial sums folded into what it reads
        deeper = total = between
        for _ in range(1 + max(i.origin.level for i in folds)):
            deeper = step.apply_range(deeper)
            total = total.union(deeper)
        finished = [reader for reader in self.readers if reader.finishes and reader not in parts]
        stores = self.r.cells_of(updates).domain()
        return total.intersect_domain(self.r.cells_of(finished).domain()).intersect_range(stores)

    def _check_points(self, added: Any, updates: list[Any]) -> None:
        """Check that every finished reduction was updated once for each point of its domain, and for nothing else."""
        points = self.r.relation([self.r.piece(i, self.r.cells.point(i)) for i in updates])
        done = added.apply_range(points)
        finished = [
            reader
            for reader in self.readers
            if reader.finishes and reader.instance not in self.r.parts("fold")
        ]
        stages = dict.fromkeys(self.r.cells.schedule.stage_named(i.origin.stage) for i in self.stores)
        domains = self.r.relation([piece for stage in stages for piece in self.r.cells.points(stage)])
        wanted = self.r.cells_of(finished).apply_range(domains)
        if not wanted.is_subset(done):
            raise self.r.wrong("a reduction is read before it is finished", wanted.subtract(done))
        if not done.is_subset(wanted):
            raise self.r.wrong("more is added to a reduction than its domain has", done.subtract(wanted))
        # No two updates agree in reader and point.
        if not added.reverse().range_product(points).is_injective():
            raise self.r.wrong("a point of a reduction is added twice before it is read", added)


def _tuple(reader: Any) -> str:
    return f"{reader.name}[{', '.join(name for name, _ in reader.loops)}]"


__all__ = ["Accumulations"]
