"""An independent proof, by integer sets, that a lowered program respects every flow dependence of its schedule.

Nothing of bound inference, simplification or remainders is trusted: the loops are taken as they will run, the last
write before each read is computed exactly (Feautrier, 1991; isl's implementation by Verdoolaege, 2010), and compared
with what the tensor expressions say must be read. For affine programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.errors import LoweringError, MissingExtraError
from autotune.lower.ir import Buffer, LoopProgram
from autotune.lower.polyhedra import Access, Instance, NotAffine, affine, extract, guarded
from autotune.lower.program import inlined_bodies, lower_schedule
from autotune.schedule.schedule import Schedule
from autotune.schedule.stage import Stage
from autotune.te.expr import Expr, Read, is_float
from autotune.te.tensor import ComputeOp, PlaceholderOp, Tensor

MAX_STATEMENTS = 80
"""Programs with more stores take isl too long."""


@dataclass(frozen=True)
class Verified:
    """What was proved: how many statements and flow dependences, and which reads are not affine and were left out."""

    statements: int
    dependences: int
    skipped: tuple[str, ...]


def verify(schedule: Schedule, args: Sequence[Tensor]) -> Verified:
    """Prove that the loops of a schedule compute what its stages say, in an order that respects every dependence.

    For each read of a stage: the value read is the last one stored there before, it is that of the element which the
    tensor expression names, and it is finished: a reduction has been updated once for each point of its domain since
    its start value. Every output element is stored. A parallel or vectorized loop carries no dependence (other than a
    reduction folded across lanes). Raises LoweringError with a counterexample, MissingExtraError without islpy, and
    LoweringError for programs that it cannot judge (more than 80 stores; threads with barriers).
    """
    try:
        import islpy as isl
    except ImportError as error:
        raise MissingExtraError("verifying schedules needs islpy: pip install 'autotune[test]'") from error
    program = lower_schedule(schedule, args, with_origins=True)
    return prove(isl, schedule, program)


def prove(isl: Any, schedule: Schedule, program: LoopProgram) -> Verified:
    """The proof for a program that was lowered with origins; see :func:`verify`."""
    return _Proof(isl, schedule, program).run()


class _Proof:
    def __init__(self, isl: Any, schedule: Schedule, program: LoopProgram) -> None:
        self.isl = isl
        self.schedule = schedule
        extraction = extract(program)
        if extraction.barriers:
            raise LoweringError(
                "verify: threads that wait at barriers are run by the interpreter, not judged here"
            )
        if len(extraction.instances) > MAX_STATEMENTS:
            raise LoweringError(
                f"verify: {len(extraction.instances)} stores, at most {MAX_STATEMENTS} can be judged; "
                f"cut loops in fewer pieces"
            )
        self.instances = extraction.instances
        self.skipped = list(extraction.skipped)
        self.by_name = {i.name: i for i in self.instances}
        self.components = self._components()
        self.buffers: dict[Buffer, str] = {}
        self.outputs = _outputs(schedule, program)
        self.written = {i.write.buffer for i in self.instances}
        self.bodies, self.epilogues = inlined_bodies(schedule.order())
        depth = max([len(i.time) for i in self.instances], default=1)
        self.depth = depth
        self.kernels = len(program.kernels)

    def _components(self) -> dict[str, int]:
        """Which output of its stage each statement stores: the stores of a tuple follow one another."""
        seen: dict[tuple[str, str], int] = {}
        result = {}
        for i in self.instances:
            key = (i.origin.stage, i.origin.part)
            count = len(self.schedule.stage_named(i.origin.stage).op.dtypes)
            result[i.name] = seen.get(key, 0) % count
            seen[key] = seen.get(key, 0) + 1
        return result

    # -- isl texts -------------------------------------------------------------------------------------------

    def relation(self, parts: Sequence[str]) -> Any:
        """The union of the given pieces."""
        return self.isl.UnionMap("{ " + "; ".join(parts) + " }")

    def piece(self, instance: Instance, target: str, condition: str = "true") -> str:
        """Text of ``S[loops] -> target`` over the domain of a statement."""
        loops = ", ".join(name for name, _ in instance.loops)
        return f"{instance.name}[{loops}] -> {target} : {instance.domain} and {condition}"

    def element(self, access: Access) -> str:
        """Text of an element of a buffer."""
        name = self.buffers.setdefault(access.buffer, f"B{len(self.buffers)}")
        return f"{name}[{', '.join(access.index)}]"

    def times(self) -> Any:
        """When each statement instance runs; reading the outputs comes last."""
        parts = []
        for i in self.instances:
            padded = [*i.time, *["0"] * (self.depth - len(i.time))]
            parts.append(self.piece(i, f"T[{', '.join(padded)}]"))
        for number, (_, stage, _) in enumerate(self.outputs):
            axes = [f"i{d}" for d in range(len(stage.op.shape))]
            zeros = [str(self.kernels), *["0"] * (self.depth - 1)]
            parts.append(f"END{number}[{', '.join(axes)}] -> T[{', '.join(zeros)}] : {_box(axes, stage)}")
        return self.relation(parts)

    # -- the proof -------------------------------------------------------------------------------------------

    def run(self) -> Verified:
        """All checks; raises LoweringError at the first that fails."""
        times = self.times()
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
        flow = self._flow(reads, writes, times)
        missing = flow.get_must_no_source()
        if not missing.is_empty():
            raise self._wrong("a value is read that nothing stored before", missing)
        sources = flow.get_must_dependence().reverse()  # reader -> the statement that wrote what it reads
        self._check_elements(sources)
        self._check_carried(sources)
        self._check_reductions(sources, times)
        count = len(self._maps(sources))
        return Verified(len(self.instances), count, tuple(dict.fromkeys(self.skipped)))

    def _end_reads(self) -> list[str]:
        parts = []
        for number, (buffer, stage, _) in enumerate(self.outputs):
            axes = tuple(f"i{d}" for d in range(len(stage.op.shape)))
            target = self.element(Access(buffer, axes, "true"))
            parts.append(f"END{number}[{', '.join(axes)}] -> {target} : {_box(axes, stage)}")
        return parts

    def _flow(self, reads: Any, writes: Any, times: Any) -> Any:
        info = self.isl.UnionAccessInfo.from_sink(reads)
        return info.set_must_source(writes).set_schedule_map(times).compute_flow()

    def _elements_of(self, instances: Sequence[Instance], *, whole: bool = False) -> Any:
        """Statement -> element of its stage; with ``whole`` the point of the reduction domain too."""
        parts = []
        for i in instances:
            stage = self.schedule.stage_named(i.origin.stage)
            rank = len(i.instance) if whole else len(stage.op.shape)
            tag = f"{self._tag(stage)}r{self.components[i.name]}" if whole else self._tag(stage)
            parts.append(self.piece(i, f"{tag}[{', '.join(i.instance[:rank])}]"))
        return self.relation(parts)

    def _tag(self, stage: Stage) -> str:
        return f"E{self.schedule.stages.index(stage)}"

    def _required(self, *, strict: bool = False) -> Any:
        """Statement -> elements of computed stages that the tensor expressions read there.

        With ``strict`` only where none may be left out: an integer product with zero is folded.
        """
        parts = []
        for i in self.instances:
            stage = self.schedule.stage_named(i.origin.stage)
            op = stage.op
            assert isinstance(op, ComputeOp)
            exprs: tuple[Expr, ...] = ()
            if i.origin.part in ("all", "update"):
                exprs = self.bodies[stage]
            elif i.origin.part == "store" and stage in self.epilogues:
                exprs = (self.epilogues[stage],)
            axes: dict[Expr, str | None] = dict(zip(op.axis + op.reduce_axis, i.instance, strict=False))
            for expr in exprs:
                for read, condition in guarded(expr, axes, lambda n: isinstance(n, Read)):
                    assert isinstance(read, Read)
                    source = self.schedule[read.tensor]
                    if isinstance(source.op, PlaceholderOp) or (strict and not is_float(expr.dtype)):
                        continue
                    try:
                        index = [affine(e, axes) for e in read.indices]
                    except NotAffine:
                        continue
                    parts.append(self.piece(i, f"{self._tag(source)}[{', '.join(index)}]", condition))
        for number, (_, stage, _) in enumerate(self.outputs):
            axes_text = [f"i{d}" for d in range(len(stage.op.shape))]
            element = f"{self._tag(stage)}[{', '.join(axes_text)}]"
            parts.append(f"END{number}[{', '.join(axes_text)}] -> {element} : {_box(axes_text, stage)}")
        return self.relation(parts)

    def _check_elements(self, sources: Any) -> None:
        """Each read finds the element that the expression names, and accumulators are those of the same element."""
        own = self._own(sources)
        elements = self._elements_of(self.instances)
        actual = sources.subtract(own).apply_range(elements)
        required = self._required()
        if not actual.is_subset(required):
            raise self._wrong("another element is read than the expression names", actual.subtract(required))
        strict = self._required(strict=True)
        if not strict.is_subset(actual):
            raise self._wrong("an element that the expression reads is not read", strict.subtract(actual))
        if not own.apply_range(elements).is_subset(elements):
            raise self._wrong(
                "an accumulator holds another element", own.apply_range(elements).subtract(elements)
            )

    def _own(self, sources: Any) -> Any:
        """Reads of a statement from statements of its own stage: accumulators."""
        parts = [
            m
            for m in self._maps(sources)
            if self._stage_of(m.get_tuple_name(self.isl.dim_type.in_))
            == self._stage_of(m.get_tuple_name(self.isl.dim_type.out))
        ]
        union = self.isl.UnionMap("{}")
        for part in parts:
            union = union.union(self.isl.UnionMap.from_map(part))
        return union

    def _stage_of(self, name: str) -> str:
        found = self.by_name.get(name)
        return name if found is None else found.origin.stage

    def _check_carried(self, sources: Any) -> None:
        """Iterations of a parallel or vectorized loop do not read what others of them wrote."""
        for m in self._maps(sources):
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
                        raise self._wrong(f"a {kind} loop carries a dependence", carried)

    def _different(self, m: Any, depth: int) -> Any:
        """Pairs that agree in all loops outside of ``depth`` and differ there."""
        kinds = self.isl.dim_type
        equal = m
        for d in range(depth):
            equal = equal.equate(kinds.in_, d, kinds.out, d)
        return equal.subtract(equal.equate(kinds.in_, depth, kinds.out, depth))

    def _check_reductions(self, sources: Any, times: Any) -> None:
        """Every finished reduction was updated once for each point of its domain since its start value."""
        for stage in dict.fromkeys(self.schedule.stage_named(i.origin.stage) for i in self.instances):
            op = stage.op
            assert isinstance(op, ComputeOp)
            if op.reduction is None or any(axis.extent == 0 for axis in op.reduce_axis):
                continue
            mine = [i for i in self.instances if i.origin.stage == op.name]
            inits = [i for i in mine if i.origin.part == "init"]
            updates = [i for i in mine if i.origin.part == "update"]
            element = self._elements_of(mine)
            readers = self._required().intersect_range(element.range())
            self._check_updates(stage, readers, inits, updates, times)

    def _check_updates(
        self, stage: Stage, readers: Any, inits: list[Instance], updates: list[Instance], times: Any
    ) -> None:
        start = self._flow(readers, self._elements_of(inits), times)
        if not start.get_must_no_source().is_empty():
            raise self._wrong("a reduction is read that was never started", start.get_must_no_source())
        started = start.get_must_dependence().reverse()  # reader -> its start
        before = times.lex_lt_union_map(times)  # earlier -> later
        update_elements = self._elements_of(updates)
        same = readers.apply_range(update_elements.reverse())  # reader -> updates of what it reads
        between = same.intersect(before.reverse()).intersect(started.apply_range(before))
        points = self._elements_of(updates, whole=True)
        done = between.apply_range(points)
        wanted = self._all_points(stage, readers)
        if not wanted.is_subset(done):
            raise self._wrong("a reduction is read before it is finished", wanted.subtract(done))
        # The update of a point is unique for a reader: no two updates agree in reader and point.
        pairs = between.reverse().range_product(points)
        if not pairs.is_injective():
            raise LoweringError(
                f"verify: a point of the reduction {stage.op.name} is added twice before it is read"
            )

    def _all_points(self, stage: Stage, readers: Any) -> Any:
        """Reader -> every point of the reduction whose result it reads."""
        op = stage.op
        assert isinstance(op, ComputeOp)
        tag = self._tag(stage)
        axes = [f"i{d}" for d in range(len(op.axis))]
        reduce = [f"r{d}" for d in range(len(op.reduce_axis))]
        bounds = [
            f"{a.start} <= {name} < {a.start + a.extent}"
            for a, name in zip(op.reduce_axis, reduce, strict=True)
        ]
        points = [
            f"{tag}[{', '.join(axes)}] -> {tag}r{n}[{', '.join(axes + reduce)}] : {' and '.join(bounds)}"
            for n in range(len(op.dtypes))
        ]
        return readers.apply_range(self.relation(points))

    # -- messages --------------------------------------------------------------------------------------------

    def _maps(self, union: Any) -> list[Any]:
        maps: list[Any] = []
        union.foreach_map(maps.append)
        return maps

    def _wrong(self, what: str, witness: Any) -> LoweringError:
        """The error, with one counterexample and the statements by their stages."""
        text = str(witness.sample() if hasattr(witness, "sample") else witness)
        for name, instance in sorted(self.by_name.items(), key=lambda item: -len(item[0])):
            text = text.replace(f"{name}[", f"{instance.origin.stage}.{instance.origin.part}[")
        for number, stage in reversed(list(enumerate(self.schedule.stages))):
            text = text.replace(f"E{number}[", f"{stage.op.name}[").replace(
                f"E{number}r[", f"{stage.op.name}["
            )
        return LoweringError(f"verify: {what}: {text}")


def _box(axes: Sequence[str], stage: Stage) -> str:
    bounds = [f"0 <= {axis} < {extent}" for axis, extent in zip(axes, stage.op.shape, strict=True)]
    return " and ".join(bounds) or "true"


def _outputs(schedule: Schedule, program: LoopProgram) -> list[tuple[Buffer, Stage, int]]:
    names: Mapping[str, Buffer] = {b.name: b for b in program.arguments}
    found = []
    for op in schedule.outputs:
        stage = schedule[op]
        for index in range(len(op.dtypes)):
            buffer = names.get(op.output(index).name)
            if buffer is not None:
                found.append((buffer, stage, index))
    return found


__all__ = ["Verified", "prove", "verify"]
