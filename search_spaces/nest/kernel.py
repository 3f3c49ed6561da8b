"""The common part of the candidates of one path: kernels, the stage with most work, and the readers of each read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from autotune.schedule.arithmetic import Value, least, most, where
from autotune.schedule.stage import Stage
from autotune.target import ITEM_BYTES, Target
from autotune.te.expr import Binary, Const, Expr, IterVar, Read, Reduce
from autotune.te.tensor import PlaceholderOp, Tensor
from autotune.te.traversal import nodes
from search_spaces.analysis import cost_of, is_of_bits, row_bytes
from search_spaces.nest.axes import Axes, Terms
from search_spaces.nest.loops import CACHE_LINE
from search_spaces.nest.work import Work, around, root_of

_ALIGNED = 16
"""Bytes that NumPy places arrays at multiples of."""


@dataclass(frozen=True)
class About:
    """Facts of a program in loop nests beside its loops: family, target, inputs known at compile time, strides."""

    family: str
    flops: float
    target: Target
    constants: frozenset[str] = frozenset()
    strides: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def row_bytes(self, tensor: Tensor) -> int:
        """Return the distance of neighbours in the last but one dimension of a strided tensor, 0 of a dense one."""
        return row_bytes(tensor, self.strides)


@dataclass(frozen=True, eq=False)
class TensorRead:
    """One read of memory by a stage: for each dimension what moves it, and the axes that do so through a look-up."""

    stage: Stage
    tensor: Tensor
    dims: tuple[Terms, ...]
    exact: bool
    looked_up: frozenset[str]
    inside: Stage | None
    """The producer, where it is computed in the same kernel."""
    offsets: tuple[frozenset[int], ...] = ()
    """For each dimension the constants that reads which move alike have beside what moves them."""
    row_bytes: int = 0
    """Bytes from one row to the next; 0 of what is computed in the same kernel."""
    stepped: frozenset[str] = frozenset()
    """The axes that move its last dimension by a quotient."""
    runs: Mapping[str, int] = field(default_factory=dict)
    """For axes that move other dimensions by quotients alone how many neighbours there are in one run."""
    given: bool = False
    """True if it is an input that is not known at compile time."""
    panel: bool = False
    """True if it was packed in the order in which it is read."""

    @cached_property
    def key(self) -> tuple[object, ...]:
        """Equal for reads that touch the same elements at the same time."""
        dims = tuple(tuple(sorted(terms.items())) for terms in self.dims)
        return (self.tensor.op, self.tensor.value_index, self.panel, dims)

    @cached_property
    def moved(self) -> frozenset[str]:
        """The axes that move it."""
        return frozenset(name for terms in self.dims for name in terms)

    def in_vectors(self, lanes: Collection[str], width: int) -> bool:
        """Return whether ``width`` neighbours along the axes of ``lanes`` lie next to one another, in panels too."""
        moving = [name for name in lanes if name in self.moved]
        if self.panel:
            return bool(moving)
        if not moving or set(moving) & (self.looked_up | self.stepped) or self.dims[-1].get(moving[0]) != 1:
            return False
        return not any(walks(terms, moving[0], width) for terms in self.dims[:-1])

    def crossing(self, lanes: Value, again: bool) -> Value:
        """Return the share of the loads of ``lanes`` elements that cross cache lines.

        Those of rows that are no multiple do; else of an operand given at the call that is loaded ``again`` for other
        rows all or none, as it happens to lie: the mean over the places that an allocator takes counts.
        """
        size = lanes * ITEM_BYTES[self.tensor.dtype]
        aligned = most(size - _ALIGNED, 0) / CACHE_LINE if self.given and again else 0.0
        return where(self.row_bytes % size == 0, least(1.0, aligned), least(1.0, size / CACHE_LINE))


def walks(terms: Terms, name: str, width: int) -> bool:
    """Return whether ``width`` steps of an axis move an index; quotients by at least as much stay the same."""
    return abs(terms.get(name, 0)) * width > 1


class Kernels:
    """The kernels of a path; the nest is about that of the ``main`` stage, the others are passes before it."""

    def __init__(self, work: Work, main: Stage, about: About) -> None:
        self.places = work.places
        self.recording = work.recording
        self.knobs = work.knobs
        self.frames = work.frames
        self.operations = work.operations
        self._about = about
        self.main = main
        self.root = root_of(main)
        self.stages: Sequence[Stage] = work.computed[self.root]
        self.passes = [root for root in work.computed if root is not self.root]
        self.before = [stage for root in self.passes for stage in work.computed[root]]
        self.axes = Axes(self.places, [*self.stages, *self.before], self.main)
        self.axes.rename(self._by_tensors())

    def finish(self, stage: Stage) -> int:
        """Return arithmetic of what a stage makes of a finished reduction, in vector instructions an element."""
        last = self.places.epilogues.get(stage)
        return 0 if last is None else sum(cost_of(node) for node in nodes(last))

    def of_bits(self, stage: Stage) -> set[str]:
        """Return the axes that operations on bits in a sum depend on; none where there are no such operations."""
        body = self.places.bodies[stage]
        sources = body[0].sources if isinstance(body[0], Reduce) else ()
        found = [node for source in sources for node in nodes(source) if is_of_bits(node)]
        return {self.axes.name(v) for node in found for v in nodes(node) if isinstance(v, IterVar)}

    @cached_property
    def chain(self) -> list[tuple[Stage, Sequence[IterVar]]]:
        """The stages around the main one, outermost first, each with its loops that are around the next."""
        return around(self.main)

    @cached_property
    def sources(self) -> Mapping[Stage, Sequence[TensorRead]]:
        """Return the reads of each stage, each distinct index once."""
        return {stage: self._sources(stage) for stage in (*self.stages, *self.before)}

    def _sources(self, stage: Stage) -> list[TensorRead]:
        found: dict[tuple[object, ...], TensorRead] = {}
        for read in self.places.reads[stage]:
            source = self._source(stage, read)
            known = found.setdefault(source.key, source)
            both = zip(known.offsets, source.offsets, strict=True)
            found[source.key] = replace(known, offsets=tuple(a | b for a, b in both))
        return list(found.values())

    def _source(self, stage: Stage, packed: Read) -> TensorRead:
        producer = self.places.replayed.schedule[packed.tensor]
        read, panel = self.places.unpacked(packed)
        looked_up = [self._looked_up(index) for index in read.indices]
        dims = tuple(map(self._terms, read.indices, looked_up))
        exact = all(self.axes.is_exact(index) for index in read.indices)
        inside = producer if producer in self.stages else None
        offsets = tuple(frozenset({self.places.indexes.form(index).constant}) for index in read.indices)
        return TensorRead(
            stage,
            read.tensor,
            dims,
            exact,
            frozenset[str]().union(*looked_up),
            inside,
            offsets,
            self._row(read, inside, panel),
            self._stepped(read),
            self._runs(read),
            isinstance(producer.op, PlaceholderOp) and producer.op.name not in self._about.constants,
            panel,
        )

    def _terms(self, index: Expr, looked_up: set[str]) -> Terms:
        """Return what moves an index; what does so through a look-up moves it by steps of one."""
        return {**self.axes.terms(index), **dict.fromkeys(looked_up, 1)}

    def _looked_up(self, index: Expr) -> set[str]:
        """Return the axes that move an index through a look-up."""
        inner = self.places.indexes.reads(index)
        return {name for read in inner for i in read.indices for name in self.axes.terms(i)}

    def _stepped(self, read: Read) -> frozenset[str]:
        found = set[str]()
        for index in read.indices[-1:]:
            atoms = self.places.indexes.form(index).terms
            for atom in (atom for atom in atoms if isinstance(atom, Binary) and atom.op == "//"):
                found |= self.axes.terms(atom).keys()
        return frozenset(found)

    def _runs(self, read: Read) -> dict[str, int]:
        found: dict[str, int] = {}
        plain = set[str]()
        for dimension, index in enumerate(read.indices[:-1]):
            for atom, factor in self.places.indexes.form(index).terms.items():
                run = _run_of(atom)
                row = dimension == len(read.indices) - 2 and factor == 1
                for name in self.axes.terms(atom):
                    if row and run == read.tensor.shape[-1]:  # the next run is next in memory
                        found.setdefault(name, self.axes.size(name))
                    elif run is None:
                        plain.add(name)
                    else:
                        found[name] = min(run, found.get(name, run))
        return {name: run for name, run in found.items() if name not in plain}

    def _row(self, read: Read, inside: Stage | None, panel: bool) -> int:
        dense = read.tensor.shape[-1] * ITEM_BYTES[read.tensor.dtype] if read.tensor.shape else 0
        return 0 if inside is not None or panel else self._about.row_bytes(read.tensor) or dense

    def _by_tensors(self) -> dict[str, str]:
        """Return axes by the dimensions that they walk along: paths that compute the same by other
        stages agree in them."""
        found: dict[str, str] = {}
        for dimension, axis in enumerate(self.root.op.axis):
            found.setdefault(self.axes.name(axis), f"{self.root.op.name}.{dimension}")
        schedule, unpacked = self.places.replayed.schedule, self.places.unpacked
        packed = [read for stage in self.stages for read in self.places.reads[stage]]
        given = [unpacked(read)[0] for read in packed if schedule[read.tensor] not in self.stages]
        for read in sorted(given, key=lambda read: read.tensor.name):
            for dimension, index in enumerate(read.indices):
                terms = self._terms(index, self._looked_up(index))
                if len(terms) == 1:
                    found.setdefault(next(iter(terms)), f"{read.tensor.name}.{dimension}")
        return found


def _run_of(index: Expr) -> int | None:
    """Return the number of neighbours that have the same quotient; None without a quotient, or a remainder of one."""
    if isinstance(index, Binary) and index.op == "%":
        return _run_of(index.a)
    if isinstance(index, Binary) and index.op == "//" and isinstance(index.b, Const):
        return int(index.b.value)
    return None


__all__ = ["About", "Kernels", "TensorRead", "walks"]
