"""From a schedule to loops: the nest of one stage after another, remainders with code of their own.

The generator walks the leaf loops of a stage outermost first. Opening a loop may fix the extent of an inner
one: a split that does not divide is settled there (peeled, overlapped or guarded), so all extents below are
constants. Stages attached to a loop are generated right after it is opened, from the region needed there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autotune.errors import InternalError, LoweringError
from autotune.lower.frame import Frame
from autotune.lower.ir import Allocate, Buffer, For, If, Let, Load, Stmt, Store, sequence
from autotune.lower.linear import Lin, Simplifier, constant_form
from autotune.lower.regions import Box, Region, required
from autotune.lower.translate import Place, Translator
from autotune.schedule.relations import Fuse, Split
from autotune.schedule.stage import Stage
from autotune.te.expr import Const, Expr, IterVar, Read, Reduce, Var, binary, reads
from autotune.te.tensor import ComputeOp

REGISTER_ELEMENTS = 2048
"""Largest accumulator tile that is moved out of memory for the length of a reduction."""


class NestBuilder:
    """Generates the loop nest of root stages; one object a schedule."""

    def __init__(
        self,
        bodies: Mapping[Stage, tuple[Expr, ...]],
        order: Sequence[Stage],
        places: dict[Stage, Place],
        translator: Translator,
    ) -> None:
        self.bodies = bodies
        self.order = order
        self.places = places
        self.translator = translator
        self.simplifier: Simplifier = translator.simplifier
        self._reads = {stage: [r for e in body for r in reads(e)] for stage, body in bodies.items()}

    def root(self, stage: Stage) -> Stmt:
        """The whole nest of a stage at the root."""
        region: Region = [(constant_form(0), d) for d in stage.op.shape]
        return self._nest(Frame(stage, region), 0, "all", self.places[stage])

    # -- loops -----------------------------------------------------------------------------------------------

    def _nest(self, frame: Frame, at: int, mode: str, out: Place) -> Stmt:
        """Loops from leaf number ``at``.

        ``mode`` is "all", or inside a reduction "update", or "init", "load" and "store", which run over the data
        loops only.
        """
        leaves = frame.stage.leaf_iter_vars
        data_only = mode in ("init", "load", "store")
        while at < len(leaves) and data_only and leaves[at].kind == "reduce":
            at += 1
        if at == len(leaves):
            return self._innermost(frame, mode, out)
        iv = leaves[at]
        if mode == "all" and iv.kind == "reduce":
            return self._reduction(frame, at, out)
        if mode == "update" and out.registers is None and self._promotes_at(frame, at):
            return self._promoted(frame, at, out, start="load")
        split = self._directly_peeled(frame, iv)
        if split is None:
            return self._loop(frame, at, mode, out, frame.extent(iv))
        extent, width = frame.extent(split.parent), frame.width(split)
        main, tail = frame.branch(), frame.branch()
        for part, size in ((main, width), (tail, extent % width)):
            part.extents[split.inner] = size
            part.settled.add(split)
        tail.values[iv] = constant_form(extent // width)
        tail.opened.add(iv)
        stmts = [self._loop(main, at, mode, out, extent // width)]
        stmts.append(self._opened(tail, at, mode, out))
        return sequence(stmts)

    def _directly_peeled(self, frame: Frame, iv: IterVar) -> Split | None:
        """The split whose remainder becomes a second loop nest after loop ``iv``, if there is one."""
        if frame.stage.kind_of(iv) in ("parallel", "vectorized"):
            return None
        for relation in frame.stage.relations:
            if isinstance(relation, Split) and relation.outer is iv:
                if relation.tail != "peel" or relation in frame.settled or frame.touched(relation.inner):
                    return None
                extent, width = frame.extent(relation.parent), frame.width(relation)
                return relation if extent > width and extent % width else None
        return None

    def _loop(self, frame: Frame, at: int, mode: str, out: Place, extent: int) -> Stmt:
        iv = frame.stage.leaf_iter_vars[at]
        kind = frame.stage.kind_of(iv)
        if extent == 0:
            return sequence([])
        frame = frame.branch()
        frame.opened.add(iv)
        if extent == 1:
            frame.values[iv] = constant_form(0)
            return self._opened(frame, at, mode, out)
        var = Var(iv.name)
        self.simplifier.declare(var, 0, extent - 1)
        frame.values[iv] = Lin({var: 1}, 0)
        return For(var, extent, kind, self._opened(frame, at, mode, out))

    def _opened(self, frame: Frame, at: int, mode: str, out: Place) -> Stmt:
        """What follows the opening of leaf ``at``: settle splits, then attached stages, then inner loops."""
        return self._settle(frame, lambda settled: self._attached(settled, at, mode, out))

    # -- deriving values and settling remainders -------------------------------------------------------------

    def _settle(self, frame: Frame, then: Callable[[Frame], Stmt]) -> Stmt:
        # A loop of one iteration has its value before it is opened: regions inferred outside of it are exact.
        for iv in frame.stage.leaf_iter_vars:
            if iv not in frame.values and frame.extent(iv) == 1:
                frame.values[iv] = constant_form(0)
                frame.opened.add(iv)
        for relation in reversed(frame.stage.relations):
            if isinstance(relation, Fuse):
                if relation.fused in frame.values and relation.outer not in frame.values:
                    return self._unfuse(frame, relation, then)
            elif relation.outer in frame.values or relation.inner in frame.values:
                wrap = self._settle_split(frame, relation, then)
                if wrap is not None:
                    return wrap
        return then(frame)

    def _unfuse(self, frame: Frame, fuse: Fuse, then: Callable[[Frame], Stmt]) -> Stmt:
        fused = frame.values[fuse.fused]
        inner_extent = frame.extent(fuse.inner)
        frame = frame.branch()
        frame.opened |= {fuse.outer, fuse.inner}
        outer = self.simplifier.divide("//", fused, max(inner_extent, 1))
        inner = self.simplifier.divide("%", fused, max(inner_extent, 1))
        return self._named(
            frame,
            [(fuse.outer, outer), (fuse.inner, inner)],
            lambda: self._settle(frame, then),
        )

    def _named(self, frame: Frame, values: list[tuple[IterVar, Lin]], body: Callable[[], Stmt]) -> Stmt:
        """Give values to loops, each under a name of its own unless it is simple."""
        names: list[tuple[Var, Lin]] = []
        for iv, value in values:
            frame.values[iv] = self._name(iv.name, value, names)
        return _lets(names, body())

    def _name(self, name: str, value: Lin, names: list[tuple[Var, Lin]]) -> Lin:
        if value.is_constant or all(isinstance(a, Var) for a in value.terms):
            return value
        var = Var(name)
        self.simplifier.declare(var, *self.simplifier.range_of(value))
        names.append((var, value))
        return Lin({var: 1}, 0)

    def _settle_split(self, frame: Frame, split: Split, then: Callable[[Frame], Stmt]) -> Stmt | None:
        """Advance one split; None when there is nothing to do, else the code from here on."""
        if split.parent in frame.values:
            return None
        width, rest = frame.width(split), frame.rest(split)
        if split.outer in frame.values and split.inner not in frame.values:
            if split in frame.settled:
                return None
            frame.settled.add(split)
            if rest != width and not frame.touched(split.inner):
                return self._settle_tail(frame, split, width, rest, then)
            if rest != width:
                frame.guarded.add(split)
            frame.extents[split.inner] = width
            return None
        if split.outer not in frame.values:
            return None
        base = frame.bases.get(split)
        inner = frame.values[split.inner]
        value = frame.values[split.outer].scaled(width) + inner if base is None else base + inner
        if split in frame.guarded or (split not in frame.settled and rest != width):
            condition = self.simplifier.compared("<", value, constant_form(frame.extent(split.parent)))
            if not (isinstance(condition, Const) and condition.value):
                frame.conditions.append((condition, split.parent.kind == "reduce"))
        frame.values[split.parent] = value
        frame.opened.add(split.parent)
        return self._settle(frame, then)

    def _settle_tail(
        self, frame: Frame, split: Split, width: int, rest: int, then: Callable[[Frame], Stmt]
    ) -> Stmt:
        outer = frame.values[split.outer]
        extent = frame.extent(split.parent)
        last = extent // width
        names: list[tuple[Var, Lin]] = []
        if split.tail == "overlap" and extent >= width and not frame.inside_reduction(split):
            low = self.simplifier.form(binary("min", outer.scaled(width).expr(), extent - width))
            frame.bases[split] = self._name(split.parent.name + ".base", low, names)
            frame.extents[split.inner] = width
            return _lets(names, self._settle(frame, then))
        if split.tail == "guard":
            frame.guarded.add(split)
            frame.extents[split.inner] = width
            return self._settle(frame, then)
        condition = self.simplifier.compared("<", outer, constant_form(last))
        main, tail = frame.branch(), frame.branch()
        main.extents[split.inner] = width
        tail.extents[split.inner] = rest
        if isinstance(condition, Const):
            return self._settle(main if condition.value else tail, then)
        tail.values[split.outer] = constant_form(last)
        names = []
        if len(outer.terms) > 1 or outer.constant:
            # A name of its own, so that the branch knows its range.
            var = Var(split.outer.name)
            self.simplifier.declare(var, *self.simplifier.range_of(outer))
            names.append((var, outer))
            outer = main.values[split.outer] = Lin({var: 1}, 0)
            condition = self.simplifier.compared("<", outer, constant_form(last))
        with self.simplifier.narrowed(outer, last - 1):
            body = self._settle(main, then)
        return _lets(names, If(condition, body, self._settle(tail, then)))

    # -- attached stages -------------------------------------------------------------------------------------

    def _attached(self, frame: Frame, at: int, mode: str, out: Place) -> Stmt:
        iv = frame.stage.leaf_iter_vars[at]
        attached = [s for s in self.order if s.attach_stage is frame.stage and s.attach_ivar is iv]
        if not attached or mode in ("init", "load", "store"):
            return self._nest(frame, at + 1, mode, out)
        regions = self._regions(frame, at)
        stmts: list[Stmt] = []
        buffers: list[Buffer] = []
        for stage in attached:
            # Starts stay expressions of the consumer's loops, so that they cancel in the consumer's indices.
            place = _local_place(stage, regions[stage])
            buffers += place.buffers
            self.places[stage] = place
            stmts.append(self._nest(Frame(stage, regions[stage]), 0, "all", place))
        stmts.append(self._nest(frame, at + 1, mode, out))
        for stage in attached:
            del self.places[stage]
        body = sequence(stmts)
        for buffer in reversed(buffers):
            body = Allocate(buffer, body)
        return body

    def _regions(self, frame: Frame, at: int) -> dict[Stage, Region]:
        """Regions of all stages attached inside, as seen from loop ``at`` of the frame's stage."""
        inside = self._inside(frame.stage, at)
        boxes: dict[Stage, Mapping[Expr, Box]] = {frame.stage: frame.boxes()}
        regions: dict[Stage, Region] = {}
        for stage in reversed(self.order):
            if stage not in inside:
                continue
            uses: list[tuple[Read, Mapping[Expr, Box]]] = []
            for consumer in self.order:
                if consumer not in self._reads:
                    continue
                found = [r for r in self._reads[consumer] if stage.schedule[r.tensor] is stage]
                if found and consumer not in boxes:
                    raise LoweringError(
                        f"stage {stage.op.name} is computed at {frame.stage.op.name}, "
                        f"{frame.stage.leaf_iter_vars[at].name}, but stage {consumer.op.name} reads it from "
                        f"outside of that loop; attach it where all its readers are, or compute it at the root"
                    )
                uses += [(r, boxes[consumer]) for r in found]
            region = required(self.simplifier, stage.op.shape, uses)
            regions[stage] = region
            boxes[stage] = _whole_boxes(stage, region)
        return regions

    def _inside(self, stage: Stage, at: int) -> set[Stage]:
        """Stages attached to leaf ``at`` of a stage or deeper, and to those."""
        deeper = stage.leaf_iter_vars[at:]
        result: set[Stage] = set()
        for other in self.order:
            if other.attach_stage is stage and any(other.attach_ivar is iv for iv in deeper):
                result |= {other} | self._inside(other, 0)
        return result

    # -- reductions ------------------------------------------------------------------------------------------

    def _reduction(self, frame: Frame, at: int, out: Place) -> Stmt:
        """Start values, then the updates; the accumulators in registers for as long as possible."""
        if self._promotes_at(frame, at):
            if not self._is_tile(frame, out):
                return self._promoted(frame, at, out, start="init")
            out = Place(out.buffers, out.starts, registers=out)
        init = self._nest(frame.branch(), at, "init", out)
        return sequence([init, self._nest(frame.branch(), at, "update", out)])

    def _promotes_at(self, frame: Frame, at: int) -> bool:
        """Whether from leaf ``at`` on there are only reduction loops and unrolled or vectorized data loops."""
        leaves = frame.stage.leaf_iter_vars
        if leaves[at].kind != "reduce":
            return False
        if any(iv.kind == "reduce" and frame.stage.kind_of(iv) == "vectorized" for iv in leaves[:at]):
            return False  # lanes are folded into the accumulator by each update
        if any(
            iv.kind == "data" and frame.extent(iv) > 1 and frame.stage.kind_of(iv) == "serial"
            for iv in leaves[at:]
        ):
            return False
        size = 1
        for axis in frame.op.axis:
            size *= frame.reach(axis)[1]
        return size <= REGISTER_ELEMENTS

    def _is_tile(self, frame: Frame, out: Place) -> bool:
        """Whether the stage's own buffer is exactly the tile that the loops below work on."""
        if any(b.scope != "local" for b in out.buffers):
            return False
        return all(
            frame.reach(axis)[1] == extent
            for axis, (_, extent) in zip(frame.op.axis, frame.region, strict=True)
        )

    def _promoted(self, frame: Frame, at: int, out: Place, start: str) -> Stmt:
        boxes = frame.boxes()
        tile: Region = [boxes[axis] for axis in frame.op.axis]
        shape = tuple(size for _, size in tile)
        buffers = tuple(Buffer(f"{b.name}.acc", shape, b.dtype, "local") for b in out.buffers)
        registers = Place(buffers, tuple(low for low, _ in tile))
        place = Place(out.buffers, out.starts, registers)
        stmts = [
            self._nest(frame.branch(), at, start, place),
            self._nest(frame.branch(), at, "update", place),
            self._nest(frame.branch(), at, "store", place),
        ]
        body = sequence(stmts)
        for buffer in reversed(buffers):
            body = Allocate(buffer, body)
        return body

    # -- the innermost statement -----------------------------------------------------------------------------

    def _innermost(self, frame: Frame, mode: str, out: Place) -> Stmt:
        values = frame.axis_values()
        index = [values[axis] for axis in frame.op.axis]
        body = self.bodies[frame.stage]
        acc = out.registers or out
        if mode == "load":
            stmt = sequence([_copy(out, i, acc, index) for i in range(len(body))])
        elif mode == "store":
            stmt = sequence([_copy(acc, i, out, index) for i in range(len(body))])
        elif mode == "all":
            stmt = self._stores(acc, index, [self.translator.value(e, values) for e in body])
        else:
            reduction = body[0]
            if not isinstance(reduction, Reduce):
                raise InternalError(f"stage {frame.stage.op.name} has reduction loops but no reduction")
            dtypes = tuple(s.dtype for s in reduction.sources)
            if mode == "init":
                stmt = self._stores(acc, index, list(reduction.reducer.identity(dtypes)))
            else:
                old = tuple(Load(b, acc.indices(index)) for b in acc.buffers)
                memo: dict[int, Expr] = {}
                new = tuple(self.translator.value(s, values, memo) for s in reduction.sources)
                stmt = self._stores(acc, index, list(reduction.reducer.combine(old, new)))
        conditions = [c for c, is_reduce in frame.conditions if mode in ("all", "update") or not is_reduce]
        conditions += frame.bounds_conditions(self.simplifier, frame.op.shape)
        for condition in reversed(dict.fromkeys(conditions)):
            if isinstance(condition, Const):
                if not condition.value:
                    return sequence([])
                continue
            stmt = If(condition, stmt, None)
        return stmt

    def _stores(self, place: Place, index: list[Lin], values: list[Expr]) -> Stmt:
        indices = place.indices(index)
        if len(values) == 1:
            return Store(place.buffers[0], indices, values[0])
        # All components of a tuple are computed before any is stored: they read one another's old values.
        names = [Var(f"{b.name}.new", v.dtype) for b, v in zip(place.buffers, values, strict=True)]
        stmt: Stmt = sequence([Store(b, indices, n) for b, n in zip(place.buffers, names, strict=True)])
        for name, value in zip(reversed(names), reversed(values), strict=True):
            stmt = Let(name, value, stmt)
        return stmt


def _copy(source: Place, number: int, target: Place, index: list[Lin]) -> Stmt:
    load = Load(source.buffers[number], source.indices(index))
    return Store(target.buffers[number], target.indices(index), load)


def _whole_boxes(stage: Stage, region: Region) -> dict[Expr, Box]:
    assert isinstance(stage.op, ComputeOp)
    boxes: dict[Expr, Box] = dict(zip(stage.op.axis, region, strict=True))
    for axis in stage.op.reduce_axis:
        boxes[axis] = (constant_form(axis.start), axis.extent)
    return boxes


def _local_place(stage: Stage, region: Region) -> Place:
    shape = tuple(extent for _, extent in region)
    dtypes = stage.op.dtypes
    names = [t.name for t in (stage.op.output(i) for i in range(len(dtypes)))]
    buffers = tuple(Buffer(n, shape, d, "local") for n, d in zip(names, dtypes, strict=True))
    return Place(buffers, tuple(low for low, _ in region))


def _lets(names: list[tuple[Var, Lin]], body: Stmt) -> Stmt:
    for var, value in reversed(names):
        body = Let(var, value.expr(), body)
    return body
