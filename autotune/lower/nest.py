"""From a schedule to loops: the nest of one stage after another, remainders with code of their own.

The generator walks the leaf loops of a stage outermost first. Opening a loop may fix the extent of an inner
one: a split that does not divide is decided there (peeled, overlapped or guarded), so all extents below are
constants. Stages attached to a loop are generated right after it is opened, from the region needed there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.errors import LoweringError
from autotune.lower.across_threads import folded_by_all
from autotune.lower.attached import BLOCK_SCOPES, BoundInference, local_place
from autotune.lower.elements import Elements
from autotune.lower.intrinsics import IntrinsicCall
from autotune.lower.ir import (
    NEUTRAL,
    NONTEMPORAL,
    Allocate,
    Barrier,
    Buffer,
    For,
    If,
    Stmt,
    is_thread_axis,
    sequence,
)
from autotune.lower.linear import Lin, constant_form
from autotune.lower.opened import OpenFrame
from autotune.lower.partial_sums import is_long_sum, iterations_in_part
from autotune.lower.pipeline import pipelined
from autotune.lower.prefetch import Prefetches
from autotune.lower.regions import Region
from autotune.lower.remainders import Remainders
from autotune.lower.sequential import sequential_statement
from autotune.lower.translate import StageBuffers, Translator
from autotune.schedule.pipelining import computed_ahead, iterations_ahead
from autotune.schedule.stage import Stage
from autotune.te.expr import Const, Expr, IterVar, Reduce, Var
from autotune.te.reductions import update_condition
from autotune.te.sequential import SequentialOp
from autotune.te.tensor import ComputeOp
from autotune.te.traversal import axes_of, reads

_DATA_ONLY = ("init", "load", "store", "fold")
"""Loops of a reduction before and after its updates."""


class NestBuilder:
    """Generates the loop nest of root stages; one object a schedule."""

    def __init__(
        self,
        bodies: Mapping[Stage, tuple[Expr, ...]],
        epilogues: Mapping[Stage, Expr],
        order: Sequence[Stage],
        places: dict[Stage, StageBuffers],
        translator: Translator,
        *,
        with_origins: bool = False,
    ) -> None:
        self.bodies = bodies
        self.epilogues = epilogues
        self.order = order
        self.places = places
        self.translator = translator
        self.simplifier = translator.simplifier
        self.threads: dict[str, tuple[Var, int]] = {}
        """Thread axes whose loops are open: variable and extent."""
        self.ahead: dict[IterVar, list[Buffer]] = {}
        """Buffers of an iteration that are filled in earlier ones, by loop."""
        self.inside_calls: set[Stage] = set()
        self.holding: set[Expr] = set()
        """Conditions that the code around the current place makes sure of."""
        self.remainders = Remainders(self.simplifier)
        read = {s: [r for e in body for r in reads(e)] for s, body in bodies.items()}
        for stage, last in epilogues.items():
            read[stage] += reads(last)
        self.bounds = BoundInference(order, read, self.simplifier, self.threads, self.remainders.named)
        self.prefetches = Prefetches(translator, self.bounds, self.remainders.named)
        self.elements = Elements(bodies, epilogues, translator, with_origins=with_origins)

    def root(self, stage: Stage) -> Stmt:
        """Return the whole nest of a stage at the root."""
        assert isinstance(stage.op, ComputeOp)
        region: Region = [(constant_form(0), axis.extent) for axis in stage.op.axis]
        return self._nest(self._frame(stage, region), 0, "all", self.places[stage])

    def _frame(self, stage: Stage, region: Region) -> OpenFrame:
        """Return the loops of a stage before any is open."""
        finishes = stage in self.epilogues
        return OpenFrame(stage, region, self.simplifier, self.threads, finishes=finishes)

    # -- loops -----------------------------------------------------------------------------------------------

    def _nest(self, frame: OpenFrame, at: int, mode: str, out: StageBuffers) -> Stmt:
        """Return loops from leaf number ``at``.

        ``mode`` is "all", or inside a reduction "update", or one of "init", "load", "store" and "fold", which run over
        the data loops only.
        """
        leaves = frame.stage.leaf_iter_vars
        if isinstance(frame.op, SequentialOp) and (at == len(leaves) or leaves[at].kind == "reduce"):
            point = sequential_statement(frame.op, frame.axis_values(), out, self.translator)
            return self.elements.guarded(frame, "all", point)
        data_only = mode in _DATA_ONLY
        while at < len(leaves) and data_only and leaves[at].kind == "reduce":
            at += 1
        if at == len(leaves):
            return self.elements.statement(frame, mode, out)
        iv = leaves[at]
        begins = iv.kind == "reduce" and not self._is_around_call(frame, at)
        if mode == "all" and (begins or iv is frame.stage.init_at):
            return self._reduction(frame, at, out)
        replaced = iv in frame.stage.tensorized and frame.stage not in self.inside_calls
        if replaced and self._is_whole(frame, at):
            return self._tensorized(frame, at, mode, out)
        return self._remainder_or_loop(frame, at, mode, out)

    def _remainder_or_loop(self, frame: OpenFrame, at: int, mode: str, out: StageBuffers) -> Stmt:
        """Return the loop number ``at``, and after it the narrower rest when its split leaves one here."""
        iv = frame.stage.leaf_iter_vars[at]
        if mode == "update" and out.registers is None and frame.promotes(at):
            ends = ("init", "fold") if self._in_parts(frame) else ("load", "store")
            return self._promoted(frame, at, out, *ends)
        split = frame.peeled_after(iv)
        if split is None:
            return self._loop(frame, at, mode, out, frame.extent(iv))
        extent, width = frame.extent(split.parent), frame.width(split)
        main, tail = frame.branch(), frame.branch()
        for part, size in ((main, width), (tail, extent % width)):
            part.resize(split.inner, size)
            part.decided.add(split)
        tail.values[iv] = constant_form(extent // width)
        tail.opened.add(iv)
        stmts = [self._loop(main, at, mode, out, extent // width)]
        stmts.append(self._opened(tail, at, mode, out))
        return sequence(stmts)

    def _loop(self, frame: OpenFrame, at: int, mode: str, out: StageBuffers, extent: int) -> Stmt:
        iv = frame.stage.leaf_iter_vars[at]
        if extent == 0:
            return sequence([])
        if iv in frame.stage.peeled and iv not in frame.stage.reduced_together():
            return self._peeled(frame, at, mode, out, extent)
        if is_thread_axis(_kind(frame, iv)):
            return self._threads_loop(frame, at, mode, out, extent)
        return self._iterations(frame, at, mode, out, 0, extent)

    def _iterations(
        self, frame: OpenFrame, at: int, mode: str, out: StageBuffers, first: int, count: int
    ) -> Stmt:
        """Return iterations ``first`` to ``first + count`` of a loop."""
        if mode == "update" and out.registers is not None and self._in_parts(frame):
            size = iterations_in_part(frame, at, count)
            if size:
                return self._partial_sums(frame, at, out.registers, first, count, size)
        return self._counted(frame, at, mode, out, constant_form(first), count)

    def _counted(
        self, frame: OpenFrame, at: int, mode: str, out: StageBuffers, first: Lin, count: int
    ) -> Stmt:
        """Return ``count`` iterations of a loop from ``first`` on."""
        iv = frame.stage.leaf_iter_vars[at]
        frame = frame.branch()
        frame.opened.add(iv)
        if count == 1:
            frame.values[iv] = first
            single = self._opened(frame, at, mode, out)
            self.ahead.pop(iv, None)  # nothing follows that could be computed ahead
            return single
        var = Var(iv.name)
        self.simplifier.declare(var, 0, count - 1)
        frame.values[iv] = Lin({var: 1}, 0) + first
        body = self._opened(frame, at, mode, out)
        loop = For(var, count, _kind(frame, iv), body, _hints(frame.stage, iv))
        ahead = self.ahead.pop(iv, [])
        return pipelined(loop, ahead, iterations_ahead(frame.stage, iv)) if ahead else loop

    def _peeled(self, frame: OpenFrame, at: int, mode: str, out: StageBuffers, extent: int) -> Stmt:
        """Return the first and last iterations with code of their own around the rest."""
        first, last = frame.stage.peeled[frame.stage.leaf_iter_vars[at]]
        first = min(first, extent)
        last = min(last, extent - first)
        middle = [(first, extent - first - last)] if extent > first + last else []
        parts = [(n, 1) for n in range(first)] + middle + [(n, 1) for n in range(extent - last, extent)]
        return sequence([self._iterations(frame, at, mode, out, start, count) for start, count in parts])

    def _threads_loop(self, frame: OpenFrame, at: int, mode: str, out: StageBuffers, extent: int) -> Stmt:
        """Return a bound loop; inside of a loop over the same thread axis it is the thread's own iteration."""
        iv = frame.stage.leaf_iter_vars[at]
        tag = frame.stage.kind_of(iv)
        known = self.threads.get(tag)
        if known is None or tag.startswith("vthread"):
            var = Var(iv.name)
            self.simplifier.declare(var, 0, extent - 1)
            key = tag if known is None else f"{tag} {len(self.threads)}"
            self.threads[key] = (var, extent)
            body = self._as_thread(frame, at, mode, out, var)
            del self.threads[key]
            return For(var, extent, tag, body)
        var, size = known
        if extent > size:
            raise LoweringError(
                f"loop {iv.name} of stage {frame.stage.op.name} has {extent} iterations bound to {tag}, which has "
                f"{size} threads there; split it by {size} first"
            )
        if extent == size:
            return self._as_thread(frame, at, mode, out, var)
        with self.simplifier.narrowed(Lin({var: 1}, 0), extent - 1):
            body = self._as_thread(frame, at, mode, out, var)
        return If(self.simplifier.compared("<", Lin({var: 1}, 0), constant_form(extent)), body, None)

    def _as_thread(self, frame: OpenFrame, at: int, mode: str, out: StageBuffers, var: Var) -> Stmt:
        iv = frame.stage.leaf_iter_vars[at]
        frame = frame.branch()
        frame.opened.add(iv)
        frame.values[iv] = Lin({var: 1}, 0)
        return self._opened(frame, at, mode, out)

    # -- intrinsics ------------------------------------------------------------------------------------------

    def _is_around_call(self, frame: OpenFrame, at: int) -> bool:
        """Return whether the reduction loop ``at`` is one of a single step around a call that stands for the whole
        reduction, start values and all."""
        stage, leaves = frame.stage, frame.stage.leaf_iter_vars
        calls = (n for n in range(at, len(leaves)) if leaves[n] in stage.tensorized)
        if (call := next(calls, None)) is None or stage in self.inside_calls:
            return False
        once = all(iv.kind != "reduce" or frame.extent(iv) == 1 for iv in leaves[at:call])
        return once and leaves[call].kind == "data" and "body" in stage.tensorized[leaves[call]].instructions

    def _is_whole(self, frame: OpenFrame, at: int) -> bool:
        """Return whether the tensorized loops from ``at`` on have their full extents, no remainder cut them short."""
        return all(frame.extent(iv) == iv.extent for iv in frame.stage.leaf_iter_vars[at:])

    def _tensorized(self, frame: OpenFrame, at: int, mode: str, out: StageBuffers) -> Stmt:
        """Return the loops from ``at`` on as a call of an intrinsic, or as loops where it has nothing for this part."""
        stage = frame.stage
        intrin = stage.tensorized[stage.leaf_iter_vars[at]]
        reduces = mode == "all" and stage.first_reduction() < len(stage.leaf_iter_vars)
        part = "body" if mode == "all" else mode
        if intrin.instructions:
            if reduces and ("body" not in intrin.instructions or stage in self.epilogues):
                return self._reduction(frame, at, out)
            if part not in intrin.instructions:
                return self._loops_instead(frame, at, mode, out)
        elif reduces:
            return self._reduction(frame, at, out)
        elif mode in _DATA_ONLY:
            return self._remainder_or_loop(frame, at, mode, out)
        if reduces:  # the loops of a whole reduction, start values and all, are what the call stands for
            self.inside_calls.add(stage)
            body = self._reduction(frame, at, out)
            self.inside_calls.discard(stage)
        else:
            body = self._remainder_or_loop(frame, at, mode, out)
        call = IntrinsicCall(frame, at, self.translator)
        return call.statement(body, out.registers or out, part)

    def _loops_instead(self, frame: OpenFrame, at: int, mode: str, out: StageBuffers) -> Stmt:
        """Return loops for a part that an intrinsic has no instructions for; updates cannot go without."""
        stage = frame.stage
        if mode == "update":
            intrin = stage.tensorized[stage.leaf_iter_vars[at]]
            around = [iv.name for iv in stage.leaf_iter_vars[:at] if iv.kind == "reduce"]
            raise LoweringError(
                f"tensorize of stage {stage.op.name}: {intrin.name} replaces a whole reduction, but "
                f"{', '.join(around) or 'the rest of the reduction'} is outside of it; declare it with instructions "
                f"for (body, init, update)"
            )
        return self._remainder_or_loop(frame, at, mode, out)

    def _opened(self, frame: OpenFrame, at: int, mode: str, out: StageBuffers) -> Stmt:
        """Return the code after the opening of leaf ``at``: decide splits, then attached stages, then inner loops."""
        return self.remainders.follow(frame, lambda decided: self._within_bounds(decided, at, mode, out))

    def _within_bounds(self, frame: OpenFrame, at: int, mode: str, out: StageBuffers) -> Stmt:
        """Return the code for elements of an attached stage that are inside of its tensor.

        That is tested as soon as the open loops tell, once for all that is inside. Threads that meet at barriers must
        all get there: for them each element is tested.
        """
        stage = frame.stage
        if stage.attach_stage is None or self.threads or stage in self.inside_calls:
            return self._attached(frame, at, mode, out)
        conditions = [c for c in frame.bounds_conditions() if c not in self.holding]
        frame.bounded |= {axis for axis in frame.op.axis if axis in frame.values}
        if any(isinstance(condition, Const) for condition in conditions):
            return sequence([])  # none of them holds always
        self.holding.update(conditions)
        stmt = self._attached(frame, at, mode, out)
        self.holding.difference_update(conditions)
        for condition in reversed(conditions):
            stmt = If(condition, stmt, None)
        return stmt

    def _attached(self, frame: OpenFrame, at: int, mode: str, out: StageBuffers) -> Stmt:
        """Return prefetches, then the stages attached to leaf ``at``, then the loops inside."""
        iv = frame.stage.leaf_iter_vars[at]
        if mode in _DATA_ONLY:
            return self._nest(frame, at + 1, mode, out)
        attached = [s for s in self.order if s.attach_stage is frame.stage and s.attach_ivar is iv]
        stmts = self.prefetches.at(frame, at) if frame.stage.prefetches else []
        if not attached:
            return sequence([*stmts, self._nest(frame, at + 1, mode, out)])
        regions = self.bounds.regions(frame, at, frame.boxes())
        buffers: list[Buffer] = []
        for stage in attached:
            # Starts stay expressions of the consumer's loops, so that they cancel in the consumer's indices.
            place = local_place(stage, regions[stage])
            buffers += place.buffers
            self.places[stage] = place
            nest = self._nest(self._frame(stage, regions[stage]), 0, "all", place)
            stmts += [Barrier(), nest, Barrier()] if stage.scope in BLOCK_SCOPES else [nest]
        stmts.append(self._nest(frame, at + 1, mode, out))
        for stage in computed_ahead(frame.stage, iv):
            self.ahead.setdefault(iv, []).extend(self.places[stage].buffers)
        for stage in attached:
            del self.places[stage]
        needed = None if self.threads or iv in self.ahead else self._update_condition(frame, mode, attached)
        stmt = sequence(stmts)
        return _allocated(buffers, stmt if needed is None else If(needed, stmt, None, NEUTRAL))

    def _update_condition(self, frame: OpenFrame, mode: str, attached: Sequence[Stage]) -> Expr | None:
        """Return the condition without which an iteration's updates, and the stages attached for them, are left out.

        None where there is none, or it depends on loops or stages inside.
        """
        reduction = self.bodies[frame.stage][0]
        condition = (
            update_condition(reduction) if mode == "update" and isinstance(reduction, Reduce) else None
        )
        if condition is None or not axes_of(condition) <= frame.values.keys():
            return None
        if any(read.tensor.op is stage.op for read in reads(condition) for stage in attached):
            return None
        return self.translator.value(condition, frame.axis_values())

    # -- reductions ------------------------------------------------------------------------------------------

    def _reduction(self, frame: OpenFrame, at: int, out: StageBuffers) -> Stmt:
        """Start values, then the updates; the accumulators in registers for as long as possible."""
        together = frame.stage.reduced_together()
        if together:
            return self._by_all_threads(frame, at, out, together)
        if frame.stage in self.epilogues:
            return self._promoted(frame, at, out, "init", "store")
        if frame.promotes(at):
            if not self._is_tile(frame, out):
                return self._promoted(frame, at, out, "init", "store")
            out = StageBuffers(out.buffers, out.starts, registers=out, level=out.level)
        init = self._nest(frame.branch(), at, "init", out)
        return sequence([init, self._nest(frame.branch(), at, "update", out)])

    def _is_tile(self, frame: OpenFrame, out: StageBuffers) -> bool:
        """Return whether the stage's own buffer is exactly the tile that the loops below work on."""
        if any(b.scope != "local" for b in out.buffers):
            return False
        return all(
            frame.reach(axis)[1] == extent
            for axis, (_, extent) in zip(frame.op.axis, frame.region, strict=True)
        )

    def _in_parts(self, frame: OpenFrame) -> bool:
        """Return whether sums are made of partial sums."""
        return not self.threads and is_long_sum(frame.stage)

    def _partial_sums(
        self, frame: OpenFrame, at: int, total: StageBuffers, first: int, count: int, size: int
    ) -> Stmt:
        """Return iterations of a reduction loop: every ``size`` of them have registers of their own."""
        parts, rest = divmod(count, size)
        var = Var(f"{frame.stage.leaf_iter_vars[at].name}.part")
        self.simplifier.declare(var, 0, parts - 1)
        stmt = self._partial_sum(frame, at, total, Lin({var: size}, first), size)
        stmts: list[Stmt] = [For(var, parts, _kind(frame, frame.stage.leaf_iter_vars[at]), stmt)]
        if rest:
            stmts.append(self._partial_sum(frame, at, total, constant_form(first + parts * size), rest))
        return sequence(stmts)

    def _partial_sum(self, frame: OpenFrame, at: int, total: StageBuffers, first: Lin, count: int) -> Stmt:
        buffers = tuple(Buffer(f"{b.name}.part", b.shape, b.dtype, "local") for b in total.buffers)
        parts = StageBuffers(buffers, total.starts, level=total.level + 1)
        place = StageBuffers(total.buffers, total.starts, registers=parts, level=total.level)
        stmts = [
            self._nest(frame.branch(), at, "init", place),
            self._counted(frame, at, "update", place, first, count),
            self._nest(frame.branch(), at, "fold", place),
        ]
        return _allocated(buffers, sequence(stmts))

    def _by_all_threads(
        self, frame: OpenFrame, at: int, out: StageBuffers, together: Sequence[IterVar]
    ) -> Stmt:
        """Return a reduction whose loops ``together`` are threads, which start here unless they run already."""
        axes = [frame.stage.kind_of(iv) for iv in together]
        starting = [iv for iv in together if frame.stage.kind_of(iv) not in self.threads]
        for iv in starting:
            self.threads[frame.stage.kind_of(iv)] = Var(iv.name), frame.extent(iv)
            self.simplifier.declare(self.threads[frame.stage.kind_of(iv)][0], 0, frame.extent(iv) - 1)
        place = self._accumulators(frame, out, out.level)
        own = place.registers
        assert own is not None
        reduction = self.bodies[frame.stage][0]
        assert isinstance(reduction, Reduce)
        store = self._nest(frame.branch(), at, "store", place)
        stmts = [self._nest(frame.branch(), at, mode, place) for mode in ("init", "update")]
        stmts.append(folded_by_all(reduction, own.buffers, axes, self.threads, store))
        body = _allocated(own.buffers, sequence(stmts))
        for iv in reversed(starting):
            var, extent = self.threads.pop(frame.stage.kind_of(iv))
            body = For(var, extent, frame.stage.kind_of(iv), body)
        return body

    def _promoted(self, frame: OpenFrame, at: int, out: StageBuffers, start: str, end: str) -> Stmt:
        place = self._accumulators(frame, out, out.level + (end == "fold"))
        assert place.registers is not None
        stmts = [
            self._nest(frame.branch(), at, start, place),
            self._nest(frame.branch(), at, "update", place),
            self._nest(frame.branch(), at, end, place),
        ]
        return _allocated(place.registers.buffers, sequence(stmts))

    def _accumulators(self, frame: OpenFrame, out: StageBuffers, level: int) -> StageBuffers:
        """Return the place with accumulators for all elements that the loops from here on compute;
        ``level`` is theirs."""
        boxes = frame.boxes()
        tile: Region = [boxes[axis] for axis in frame.op.axis]
        shape = tuple(size for _, size in tile)
        dtypes = [b.dtype for b in out.buffers]
        if frame.stage in self.epilogues:
            dtypes = [e.dtype for e in self.bodies[frame.stage]]
        named = zip(out.buffers, dtypes, strict=True)
        buffers = tuple(Buffer(f"{b.name}.acc", shape, dtype, "local") for b, dtype in named)
        registers = StageBuffers(buffers, tuple(low for low, _ in tile), level=level)
        return StageBuffers(out.buffers, out.starts, registers, out.level)


def _allocated(buffers: Sequence[Buffer], body: Stmt) -> Stmt:
    for buffer in reversed(buffers):
        body = Allocate(buffer, body)
    return body


def _kind(frame: OpenFrame, iv: IterVar) -> str:
    """Return the kind of a loop: blocks and virtual threads do not reduce together, one of them does."""
    kind = frame.stage.kind_of(iv)
    serial = iv.kind == "reduce" and is_thread_axis(kind) and iv not in frame.stage.reduced_together()
    return "serial" if serial else kind


def _hints(stage: Stage, iv: IterVar) -> str:
    """Return the schedule's hints about a loop for code generators."""
    return NONTEMPORAL if NONTEMPORAL in stage.pragmas.get(iv, ()) else ""


__all__ = ["NestBuilder"]
