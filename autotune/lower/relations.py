"""The relations that the proof of ``verify_isl`` compares: statements, times, elements, as isl unions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.errors import LoweringError
from autotune.lower.inlining import inlined_bodies
from autotune.lower.ir import Buffer, LoopProgram
from autotune.lower.polyhedra import Access, Extraction, Instance, NotAffine, affine, guarded
from autotune.schedule.schedule import Schedule
from autotune.schedule.stage import Stage
from autotune.te.dtypes import is_float
from autotune.te.expr import Expr, Read
from autotune.te.tensor import ComputeOp, PlaceholderOp


class Relations:
    """Statements, times and accesses of one program as isl unions."""

    def __init__(
        self, isl: Any, context: Any, schedule: Schedule, program: LoopProgram, extraction: Extraction
    ) -> None:
        self.isl = isl
        self.context = context
        self.schedule = schedule
        self.instances = extraction.instances
        self.skipped = list(extraction.skipped)
        self.by_name = {i.name: i for i in self.instances}
        self.components = self.component_numbers()
        self.buffers: dict[Buffer, str] = {}
        self.outputs = outputs(schedule, program)
        self.written = {i.write.buffer for i in self.instances}
        self.bodies, self.epilogues = inlined_bodies(schedule.order())
        depth = max([len(i.time) for i in self.instances], default=1)
        self.depth = depth
        self.kernels = len(program.kernels)
        self.times = self._times()
        self.moments = isl.MultiUnionPwAff.from_union_map(self.times)

    def component_numbers(self) -> dict[str, int]:
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
        return self.isl.UnionMap("{ " + "; ".join(parts) + " }", context=self.context)

    def piece(self, instance: Instance, target: str, condition: str = "true") -> str:
        """Text of ``S[loops] -> target`` over the domain of a statement."""
        loops = ", ".join(name for name, _ in instance.loops)
        return f"{instance.name}[{loops}] -> {target} : {instance.domain} and {condition}"

    def element(self, access: Access) -> str:
        """Text of an element of a buffer."""
        name = self.buffers.setdefault(access.buffer, f"B{len(self.buffers)}")
        return f"{name}[{', '.join(access.index)}]"

    def _times(self) -> Any:
        """When each statement instance runs; reading the outputs comes last."""
        parts = []
        for i in self.instances:
            padded = [*i.time, *["0"] * (self.depth - len(i.time))]
            parts.append(self.piece(i, f"T[{', '.join(padded)}]"))
        for number, (_, stage, _) in enumerate(self.outputs):
            axes = [f"i{d}" for d in range(len(stage.op.shape))]
            zeros = [str(self.kernels), *["0"] * (self.depth - 1)]
            parts.append(f"END{number}[{', '.join(axes)}] -> T[{', '.join(zeros)}] : {box(axes, stage)}")
        return self.relation(parts)

    def flow(self, reads: Any, writes: Any) -> Any:
        """The last write before each read.

        isl misses sources whose index divides a quotient again (a fused loop, fused again) unless the equalities
        behind the quotients are explicit.
        """
        info = self.isl.UnionAccessInfo.from_sink(reads.detect_equalities())
        info = info.set_must_source(writes.detect_equalities())
        return info.set_schedule_map(self.times).compute_flow()

    def elements_of(self, instances: Sequence[Instance], *, whole: bool = False) -> Any:
        """Statement -> element of its stage; with ``whole`` the point of the reduction domain too."""
        parts = []
        for i in instances:
            stage = self.schedule.stage_named(i.origin.stage)
            rank = len(i.instance) if whole else len(stage.op.shape)
            tag = f"{self.tag(stage)}r{self.components[i.name]}" if whole else self.tag(stage)
            parts.append(self.piece(i, f"{tag}[{', '.join(i.instance[:rank])}]"))
        return self.relation(parts)

    def tag(self, stage: Stage) -> str:
        return f"E{self.schedule.stages.index(stage)}"

    def required(self, *, strict: bool = False) -> Any:
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
                    parts.append(self.piece(i, f"{self.tag(source)}[{', '.join(index)}]", condition))
        for number, (_, stage, _) in enumerate(self.outputs):
            axes_text = [f"i{d}" for d in range(len(stage.op.shape))]
            element = f"{self.tag(stage)}[{', '.join(axes_text)}]"
            parts.append(f"END{number}[{', '.join(axes_text)}] -> {element} : {box(axes_text, stage)}")
        return self.relation(parts)

    def all_points(self, stage: Stage, readers: Any) -> Any:
        """Reader -> every point of the reduction whose result it reads."""
        op = stage.op
        assert isinstance(op, ComputeOp)
        tag = self.tag(stage)
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

    def maps(self, union: Any) -> list[Any]:
        maps: list[Any] = []
        union.foreach_map(maps.append)
        return maps

    def wrong(self, what: str, witness: Any) -> LoweringError:
        """The error, with one counterexample and the statements by their stages."""
        text = str(witness.sample() if hasattr(witness, "sample") else witness)
        for name, instance in sorted(self.by_name.items(), key=lambda item: -len(item[0])):
            text = text.replace(f"{name}[", f"{instance.origin.stage}.{instance.origin.part}[")
        for number, stage in reversed(list(enumerate(self.schedule.stages))):
            text = re.sub(rf"\bE{number}(r\d+)?\[", f"{stage.op.name}[", text)
        return LoweringError(f"verify: {what}: {text}")


def box(axes: Sequence[str], stage: Stage) -> str:
    bounds = [f"0 <= {axis} < {extent}" for axis, extent in zip(axes, stage.op.shape, strict=True)]
    return " and ".join(bounds) or "true"


def outputs(schedule: Schedule, program: LoopProgram) -> list[tuple[Buffer, Stage, int]]:
    names: Mapping[str, Buffer] = {b.name: b for b in program.arguments}
    found = []
    for op in schedule.outputs:
        stage = schedule[op]
        for index in range(len(op.dtypes)):
            buffer = names.get(op.output(index).name)
            if buffer is not None:
                found.append((buffer, stage, index))
    return found


__all__ = ["Relations", "box", "outputs"]
