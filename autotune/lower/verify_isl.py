"""An independent proof, by integer sets, that a lowered program respects every flow dependence of its schedule.

Nothing of bound inference, simplification or remainders is trusted: the loops are taken as they will run, the last
write before each read is computed exactly (Feautrier, 1991; isl's implementation by Verdoolaege, 2010), and compared
with what the tensor expressions say must be read. For affine programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from autotune.errors import LoweringError, MissingExtraError
from autotune.lower.ir import Buffer, LoopProgram
from autotune.lower.overwriting import overwriting
from autotune.lower.polyhedra import Access, Instance, NotAffine, extract
from autotune.lower.program import lower_schedule
from autotune.lower.relations import Relations, box
from autotune.schedule.pipelining import reductions_ahead
from autotune.schedule.schedule import Schedule
from autotune.schedule.stage import Stage
from autotune.te.tensor import ComputeOp, Tensor

MAX_OPERATIONS = 6_000_000
"""Steps of isl that a proof may take, some seconds: the same programs are judged on every machine."""

Status = Literal["proven", "not affine", "too large", "threads", "ahead"]


@dataclass(frozen=True)
class Verified:
    """What became of a proof that found no error.

    "proven": every flow dependence. "not affine": every one but those of the reads that ``reason`` names, whose
    index is not an affine function of the loops; nothing, where a branch or a store is not affine. "too large": isl
    did not finish within MAX_OPERATIONS steps.
    "threads": threads wait for one another at barriers, which only the interpreter judges. "ahead": so are reductions
    of which an element may be started for a later iteration before it is read in this one. The counts are 0 where
    nothing was proved.
    """

    status: Status
    reason: str = ""
    statements: int = 0
    dependences: int = 0

    def text(self) -> str:
        """The verdict in one line."""
        counts = f"{self.statements} statements, {self.dependences} dependences" if self.statements else ""
        detail = "; ".join(part for part in (counts, self.reason) if part)
        return f"{self.status}: {detail}" if detail else self.status


def verify(
    schedule: Schedule,
    args: Sequence[Tensor],
    *,
    constants: frozenset[str] = frozenset(),
    strides: Mapping[str, tuple[int, ...]] | None = None,
) -> Verified:
    """Prove that the loops of a schedule compute what its stages say, in an order that respects every dependence.

    For each read of a stage: the value read is the last one stored there before, it is that of the element which the
    tensor expression names, and it is finished: a reduction has been updated once for each point of its domain since
    its start value. Every output element is stored. A parallel or vectorized loop carries no dependence (other than a
    reduction folded across lanes). Nothing is read of an input after an output that may be the same memory
    (:mod:`autotune.lower.overwriting`) was stored there. Raises LoweringError with a counterexample, MissingExtraError
    without islpy.
    """
    isl = load_isl()
    program = lower_schedule(schedule, args, constants=constants, strides=strides, with_origins=True)
    return prove(isl, schedule, program)


def load_isl() -> Any:
    """The module islpy; raises MissingExtraError naming the extra."""
    try:
        import islpy
    except ImportError as error:
        raise MissingExtraError("verifying schedules needs islpy: pip install 'autotune[verify]'") from error
    return islpy


def prove(isl: Any, schedule: Schedule, program: LoopProgram, *, limit: int = MAX_OPERATIONS) -> Verified:
    """The proof for a program that was lowered with origins, in at most ``limit`` steps; see :func:`verify`."""
    try:
        extraction = extract(program)
    except NotAffine as error:
        return Verified("not affine", str(error))
    if extraction.barriers:
        return Verified(
            "threads", "threads that wait at barriers are run by the interpreter, not judged here"
        )
    ahead = ", ".join(stage.op.name for stage in reductions_ahead(schedule))
    if ahead:
        reason = (
            f"reductions computed ahead of their readers are run by the interpreter, not judged here: {ahead}"
        )
        return Verified("ahead", reason)
    context = isl.Context()
    context.set_max_operations(limit)
    try:
        return _Proof(isl, context, schedule, program, extraction).run(overwriting(program))
    except isl.Error:
        if not _exhausted(isl, context):
            raise
        count = len(extraction.instances)
        return Verified("too large", f"{count} stores, not judged within {limit} steps of isl")


def _exhausted(isl: Any, context: Any) -> bool:
    """Whether the steps of a context are used up: then every operation fails, with whatever message."""
    try:
        isl.Set("{ [i] : 0 <= i < 3 }", context=context)
    except isl.Error:
        return True
    return False


class _Proof(Relations):
    """The checks, one after another."""

    def run(self, overwriting: Sequence[tuple[Buffer, Buffer]] = ()) -> Verified:
        """All checks, of ``overwriting`` pairs of an output and an input too; raises LoweringError at the first that
        fails."""
        writes = self.relation([self.piece(i, self.element(i.write)) for i in self.instances])
        reads = self.relation(
            [
                self.piece(i, self.element(read), read.condition)
                for i in self.instances
                for read in i.reads
                if read.buffer in self.written
            ]
            + self._end_reads()
        )
        flow = self.flow(reads, writes)
        missing = flow.get_must_no_source()
        if not missing.is_empty():
            raise self.wrong("a value is read that nothing stored before", missing)
        sources = flow.get_must_dependence().reverse()  # reader -> the statement that wrote what it reads
        self._check_elements(sources)
        self._check_carried(sources)
        self._check_reductions(sources)
        for output, source in overwriting:
            self._check_overwriting(output, source)
        status: Status = "not affine" if self.skipped else "proven"
        reason = "; ".join(dict.fromkeys(self.skipped))
        return Verified(status, reason, len(self.instances), len(self.maps(sources)))

    def _end_reads(self) -> list[str]:
        parts = []
        for number, (buffer, stage, _) in enumerate(self.outputs):
            axes = tuple(f"i{d}" for d in range(len(stage.op.shape)))
            target = self.element(Access(buffer, axes, "true"))
            parts.append(f"END{number}[{', '.join(axes)}] -> {target} : {box(axes, stage)}")
        return parts

    def _check_elements(self, sources: Any) -> None:
        """Each read finds the element that the expression names, and accumulators are those of the same element."""
        own = self._own(sources)
        elements = self.elements_of(self.instances)
        actual = sources.subtract(own).apply_range(elements)
        required = self.required()
        if not actual.is_subset(required):
            raise self.wrong("another element is read than the expression names", actual.subtract(required))
        strict = self.required(strict=True)
        if not strict.is_subset(actual):
            raise self.wrong("an element that the expression reads is not read", strict.subtract(actual))
        if not own.apply_range(elements).is_subset(elements):
            raise self.wrong(
                "an accumulator holds another element", own.apply_range(elements).subtract(elements)
            )

    def _own(self, sources: Any) -> Any:
        """Reads of a statement from statements of its own stage: accumulators."""
        parts = [
            m
            for m in self.maps(sources)
            if self._stage_of(m.get_tuple_name(self.isl.dim_type.in_))
            == self._stage_of(m.get_tuple_name(self.isl.dim_type.out))
        ]
        union = self.relation([])
        for part in parts:
            union = union.union(self.isl.UnionMap.from_map(part))
        return union

    def _stage_of(self, name: str) -> str:
        found = self.by_name.get(name)
        return name if found is None else found.origin.stage

    def _check_carried(self, sources: Any) -> None:
        """Iterations of a parallel or vectorized loop do not read what others of them wrote."""
        for m in self.maps(sources):
            sink = self.by_name.get(m.get_tuple_name(self.isl.dim_type.in_))
            source = self.by_name.get(m.get_tuple_name(self.isl.dim_type.out))
            if sink is None or source is None or sink.time[0] != source.time[0]:
                continue
            folded = (
                sink.origin.part == source.origin.part == "update"
                and sink.origin.stage == source.origin.stage
            )
            for depth, ((_, kind), (_, other)) in enumerate(zip(sink.loops, source.loops, strict=False)):
                place = 1 + 2 * depth
                if sink.time[place] != source.time[place]:
                    break  # from here on in different loops
                if kind == other == "parallel" or (kind == other == "vectorized" and not folded):
                    carried = self._different(m, depth)
                    if not carried.is_empty():
                        raise self.wrong(f"a {kind} loop carries a dependence", carried)

    def _check_overwriting(self, output: Buffer, source: Buffer) -> None:
        """No element of the source is read once the output is stored there, or by who may run at the same time."""
        places = {
            buffer: [
                self.piece(i, f"A[{_address(access)}]", access.condition)
                for i in self.instances
                for access in (i.write, *i.reads)
                if access.buffer is buffer
            ]
            for buffer in (output, source)
        }
        both = self.relation(places[source]).apply_range(self.relation(places[output]).reverse())
        late = both.lex_gt_at_multi_union_pw_aff(self.moments)
        if not late.is_empty():
            raise self.wrong(f"{source.name} is read where {output.name} has overwritten it", late)
        for m in self.maps(both):
            reader, writer = (
                self.by_name[m.get_tuple_name(side)]
                for side in (self.isl.dim_type.in_, self.isl.dim_type.out)
            )
            for depth, ((_, kind), (_, other)) in enumerate(zip(reader.loops, writer.loops, strict=False)):
                if reader.time[: 2 + 2 * depth] != writer.time[: 2 + 2 * depth]:
                    break  # from here on in different loops
                if kind == other and kind in ("parallel", "vectorized"):
                    carried = self._different(m, depth)
                    if not carried.is_empty():
                        raise self.wrong(f"{source.name} is read beside who overwrites it", carried)

    def _different(self, m: Any, depth: int) -> Any:
        """Pairs that agree in all loops outside of ``depth`` and differ there."""
        kinds = self.isl.dim_type
        equal = m
        for d in range(depth):
            equal = equal.equate(kinds.in_, d, kinds.out, d)
        return equal.subtract(equal.equate(kinds.in_, depth, kinds.out, depth))

    def _check_reductions(self, sources: Any) -> None:
        """Every finished reduction was updated once for each point of its domain since its start value."""
        for stage in dict.fromkeys(self.schedule.stage_named(i.origin.stage) for i in self.instances):
            op = stage.op
            assert isinstance(op, ComputeOp)
            if op.reduction is None or any(axis.extent == 0 for axis in op.reduce_axis):
                continue
            mine = [i for i in self.instances if i.origin.stage == op.name]
            inits = [i for i in mine if i.origin.part == "init"]
            updates = [i for i in mine if i.origin.part == "update"]
            element = self.elements_of(mine)
            readers = self.required().intersect_range(element.range())
            self._check_updates(stage, readers, inits, updates)
            copies = [i for i in mine if i.origin.part == "store"]
            if copies:
                written = self.elements_of(copies).domain()
                self._check_copies(sources.intersect_range(written), readers, updates)

    def _check_updates(
        self, stage: Stage, readers: Any, inits: list[Instance], updates: list[Instance]
    ) -> None:
        start = self.flow(readers, self.elements_of(inits))
        if not start.get_must_no_source().is_empty():
            raise self.wrong("a reduction is read that was never started", start.get_must_no_source())
        started = start.get_must_dependence().reverse()  # reader -> its start
        update_elements = self.elements_of(updates)
        same = readers.apply_range(update_elements.reverse())  # reader -> updates of what it reads
        begun = self.elements_of(inits).apply_range(update_elements.reverse())
        later = begun.lex_lt_at_multi_union_pw_aff(self.moments)  # start -> updates of its element after it
        between = same.lex_gt_at_multi_union_pw_aff(self.moments).intersect(started.apply_range(later))
        points = self.elements_of(updates, whole=True)
        done = between.apply_range(points)
        wanted = self.all_points(stage, readers)
        if not wanted.is_subset(done):
            raise self.wrong("a reduction is read before it is finished", wanted.subtract(done))
        # The update of a point is unique for a reader: no two updates agree in reader and point.
        pairs = between.reverse().range_product(points)
        if not pairs.is_injective():
            raise LoweringError(
                f"verify: a point of the reduction {stage.op.name} is added twice before it is read"
            )

    def _check_copies(self, sources: Any, readers: Any, updates: list[Instance]) -> None:
        """The copy of an accumulator that is read was made after its last update."""
        update_of = self.elements_of(updates).reverse()
        copied = self.elements_of([i for i in self.instances if i.origin.part == "store"])
        later = copied.apply_range(update_of).lex_lt_at_multi_union_pw_aff(self.moments)
        earlier = readers.apply_range(update_of).lex_gt_at_multi_union_pw_aff(self.moments)
        late = earlier.intersect(sources.apply_range(later))
        if not late.is_empty():
            raise self.wrong("a reduction is read from a copy made before it was finished", late)


def _address(access: Access) -> str:
    """Where an element lies, counted in elements."""
    terms = zip(access.buffer.strides, access.index, strict=True)
    return " + ".join(f"{stride} * ({index})" for stride, index in terms) or "0"


__all__ = ["MAX_OPERATIONS", "Verified", "load_isl", "prove", "verify"]
