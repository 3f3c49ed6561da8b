"""The relations that the proof of ``verify_isl`` compares: statements, times, elements, as isl unions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from autotune.errors import LoweringError
from autotune.lower.cells import Cells
from autotune.lower.ir import Buffer
from autotune.lower.polyhedra import Access, Extraction, NotAffine, ProgramPoint, StoreInstances, loads_of
from autotune.lower.values import Needed, compare
from autotune.schedule.stage import Stage


@dataclass(frozen=True)
class Reader:
    """A read: of a store, of a value that gets a name, of an address to prefetch, or of an output at the end.

    ``cell`` is what must be found; None where anything that was stored will do.
    """

    name: str
    at: ProgramPoint
    access: Access
    cell: str | None
    instance: StoreInstances | None = None
    finishes: bool = False
    """True if a reduction that is read must be complete."""

    @property
    def loops(self) -> tuple[tuple[str, str], ...]:
        """Name and kind of each loop around, outermost first."""
        return self.at.loops


class Relations:
    """Statements, times and accesses of one program as isl unions."""

    def __init__(self, isl: Any, context: Any, cells: Cells, extraction: Extraction) -> None:
        self.isl = isl
        self.context = context
        self.cells = cells
        self.instances = extraction.instances
        self.by_name = {i.name: i for i in self.instances}
        self.skipped: list[str] = []
        self.readers: list[Reader] = []
        for instance in self.instances:
            self._compare(instance)
        self._evaluated(extraction.evaluated)
        self.kernels, self.hoisted = extraction.kernels, extraction.hoisted
        self.ends = [self._end(number, *output) for number, output in enumerate(cells.outputs)]
        self.reader_of = {reader.name: reader for reader in (*self.readers, *self.ends)}
        self.buffers: dict[Buffer, str] = {}
        self.depth = max(len(each.at.time) for each in self._everything())

    @property
    def accesses(self) -> list[StoreInstances | Reader]:
        """All stores, and all reads but those of the outputs at the end."""
        return [*self.instances, *self.readers]

    def _everything(self) -> list[StoreInstances | Reader]:
        return [*self.accesses, *self.ends]

    @cached_property
    def times(self) -> Any:
        """Stores and reads -> when they happen."""
        return self.relation([self._time(each) for each in self._everything()] + [self._first()])

    @cached_property
    def moments(self) -> Any:
        """The times as a function."""
        return self.isl.MultiUnionPwAff.from_union_map(self.times)

    def _time(self, what: StoreInstances | Reader) -> str:
        padded = [*what.at.time, *["0"] * (self.depth - len(what.at.time))]
        return self.piece(what, f"T[{', '.join(padded)}]")

    def _first(self) -> str:
        """Return the time before everything, so that a program in which nothing runs has times too."""
        return f"BEGIN[] -> T[{', '.join(['-1'] * self.depth)}]"

    def of(self, name: str) -> StoreInstances | Reader:
        """Return the store or the read of a name."""
        return self.by_name.get(name) or self.reader_of[name]

    # -- reads -----------------------------------------------------------------------------------------------

    def _compare(self, instance: StoreInstances) -> None:
        found = compare(self.isl, self.context, self.cells, instance)
        self.skipped += found.skipped
        for needed in found.needed:
            self._add(instance.at, needed, instance)

    def _add(self, at: ProgramPoint, needed: Needed, instance: StoreInstances | None) -> None:
        finishes = needed.cell is not None and not needed.accumulates
        moment = ProgramPoint(at.loops, (*at.conditions, needed.access.test.text), needed.time)
        name = f"R{len(self.readers)}"
        self.readers.append(Reader(name, moment, needed.access, needed.cell, instance, finishes))

    def _evaluated(self, found: Iterable[tuple[ProgramPoint, Any]]) -> None:
        """Collect reads of what gets a name, wherever the name is used, and of addresses of prefetches."""
        for at, expr in found:
            for load, test in loads_of(at, expr):
                try:
                    access = at.access(load.buffer, load.indices, test)
                except NotAffine:
                    self.skipped.append(f"a read of {load.buffer.name} at an index that is not affine")
                    continue
                self._add(at, Needed(access, at.time, None), None)

    def _end(self, number: int, buffer: Buffer, stage: Stage, component: int) -> Reader:
        axes = tuple(f"i{d}" for d in range(len(stage.op.shape)))
        bounds = tuple(f"0 <= {axis} < {extent}" for axis, extent in zip(axes, stage.op.shape, strict=True))
        at = ProgramPoint(tuple((axis, "") for axis in axes), ("true", *bounds), (str(self.kernels),))
        cell = f"{self.cells.finished_tag(stage, component)}[{', '.join(axes)}]"
        return Reader(f"END{number}", at, Access(buffer, axes), cell, finishes=True)

    # -- isl texts -------------------------------------------------------------------------------------------

    def relation(self, parts: Sequence[str]) -> Any:
        """Return the union of the given pieces."""
        return self.isl.UnionMap("{ " + "; ".join(parts) + " }", context=self.context)

    def piece(self, what: StoreInstances | Reader, target: str) -> str:
        """Return the text of ``S[loops] -> target`` over the domain of a statement or a read."""
        loops = ", ".join(name for name, _ in what.loops)
        return f"{what.name}[{loops}] -> {target} : {what.at.domain}"

    def element(self, access: Access) -> str:
        """Return the text of an element of a buffer."""
        name = self.buffers.setdefault(access.buffer, f"B{len(self.buffers)}")
        return f"{name}[{', '.join((*access.around, *access.index))}]"

    def touches(self, what: Iterable[StoreInstances | Reader]) -> Any:
        """Return the map of statements and reads to the element that each touches."""
        return self.relation([self.piece(each, self.element(_access(each))) for each in what])

    def cells_of(self, what: Iterable[StoreInstances | Reader]) -> Any:
        """Return stores -> the cells that they leave behind, reads -> those that they need."""
        return self.relation([self.piece(each, self._cell(each)) for each in what])

    def _cell(self, what: StoreInstances | Reader) -> str:
        cell = self.cells.stored(what) if isinstance(what, StoreInstances) else what.cell
        assert cell is not None
        return cell

    def parts(self, *names: str) -> list[StoreInstances]:
        """Return the stores of some parts of computations."""
        return [i for i in self.instances if i.origin.part in names]

    def flow(self, reads: Any, writes: Any) -> Any:
        """Return the last write before each read.

        isl misses sources whose index divides a quotient again (a fused loop, fused again) unless the equalities
        behind the quotients are explicit.
        """
        info = self.isl.UnionAccessInfo.from_sink(reads.detect_equalities())
        info = info.set_must_source(writes.detect_equalities())
        return info.set_schedule_map(self.times).compute_flow()

    # -- messages --------------------------------------------------------------------------------------------

    def maps(self, union: Any) -> list[Any]:
        """Return the maps of a union, one a pair of tuples."""
        maps: list[Any] = []
        union.foreach_map(maps.append)
        return maps

    def wrong(self, what: str, witness: Any) -> LoweringError:
        """Return the error, with one counterexample and the statements by their stages."""
        text = str(witness.sample() if hasattr(witness, "sample") else witness)
        text = re.sub(r"\b([SR]\d+|END\w+)\[", lambda found: f"{self._title(found[1])}[", text)
        stages = self.cells.schedule.stages
        text = re.sub(r"\bE(\d+)c\d+(?:v|a\d+)p?\[", lambda found: f"{stages[int(found[1])].op.name}[", text)
        return LoweringError(f"verify: {what}: {text}")

    def _title(self, name: str) -> str:
        found = self.of(name)
        instance = found.instance if isinstance(found, Reader) else found
        if instance is not None:
            return f"{instance.origin.stage}.{instance.origin.part}"
        return "END" if name.startswith("END") else "a read"


def _access(what: StoreInstances | Reader) -> Access:
    return what.write if isinstance(what, StoreInstances) else what.access


__all__ = ["Reader", "Relations"]
