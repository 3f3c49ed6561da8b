"""Cells that a store leaves behind and a read must find: elements of stages, and the accumulators on the
way to them."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.errors import LoweringError
from autotune.lower.inlining import inlined_bodies
from autotune.lower.ir import Buffer, LoopProgram
from autotune.lower.polyhedra import StoreInstances
from autotune.lower.program import as_checked
from autotune.schedule.schedule import Schedule
from autotune.schedule.stage import Stage
from autotune.te.expr import Reduce
from autotune.te.tensor import ComputeOp, PlaceholderOp, Tensor


class Cells:
    """Names of cells, as isl text, and what the schedule says of stages and arguments."""

    def __init__(self, schedule: Schedule, program: LoopProgram) -> None:
        self.schedule = schedule
        self.bodies, self.epilogues = inlined_bodies(schedule.order(), source=as_checked)
        self.arguments = {buffer.name: buffer for buffer in program.arguments}
        if len(self.arguments) != len(program.arguments):
            raise LoweringError("verify: two arguments have one name")
        self.inputs = frozenset(program.arguments) - frozenset(program.outputs)
        self.outputs = self._outputs(program)

    def _outputs(self, program: LoopProgram) -> list[tuple[Buffer, Stage, int]]:
        live = [stage for stage in self.schedule.order() if stage.attach_type != "inline" and stage.is_output]
        pairs = [(stage, number) for stage in live for number in range(len(stage.op.dtypes))]
        return [(buffer, *pair) for buffer, pair in zip(program.outputs, pairs, strict=True)]

    def is_input(self, tensor: Tensor) -> bool:
        """Return whether a tensor is computed by nobody."""
        return isinstance(self.schedule[tensor].op, PlaceholderOp)

    def input_of(self, tensor: Tensor) -> Buffer:
        """Return the argument that an input is passed as."""
        return self.arguments[self.schedule.name_of(tensor)]

    def tag(self, stage: Stage, component: int, level: int | None) -> str:
        """Return the name of the cells of one output of a stage: its accumulators of a level, or with None
        finished elements."""
        kind = "v" if level is None else f"a{level}"
        return f"E{self.schedule.stages.index(stage)}c{component}{kind}"

    def reduces(self, stage: Stage) -> bool:
        """Return whether the elements of a stage are accumulators when they are read."""
        assert isinstance(stage.op, ComputeOp)
        return isinstance(self.bodies[stage][0], Reduce) and stage not in self.epilogues

    def finished_tag(self, stage: Stage, component: int) -> str:
        """Return the name of the cells that readers of a stage need."""
        return self.tag(stage, component, 0 if self.reduces(stage) else None)

    def finished(self, tensor: Tensor, index: Sequence[str]) -> str:
        """Return the cell of an element that is read."""
        return f"{self.finished_tag(self.schedule[tensor], tensor.value_index)}[{', '.join(index)}]"

    def accumulator(self, instance: StoreInstances, component: int, level: int) -> str:
        """Return the accumulator of the element that a store belongs to."""
        stage = self.schedule.stage_named(instance.origin.stage)
        index = instance.instance[: len(stage.op.axis)]
        return f"{self.tag(stage, component, level)}[{', '.join(index)}]"

    def stored(self, instance: StoreInstances) -> str:
        """Return the cell that a store leaves behind."""
        origin = instance.origin
        stage = self.schedule.stage_named(origin.stage)
        last = origin.part == "all" or (origin.part == "store" and stage in self.epilogues)
        index = instance.instance[: len(stage.op.axis)]
        return f"{self.tag(stage, origin.component, None if last else origin.level)}[{', '.join(index)}]"

    def point(self, instance: StoreInstances) -> str:
        """Return the point of its reduction that an update adds."""
        stage = self.schedule.stage_named(instance.origin.stage)
        return f"{self.tag(stage, instance.origin.component, 0)}p[{', '.join(instance.instance)}]"

    def points(self, stage: Stage) -> list[str]:
        """Return pieces of ``cell -> point``: all points of the domain of each element."""
        axes = [f"i{d}" for d in range(len(stage.op.axis))]
        reduce = [f"r{d}" for d in range(len(stage.op.reduce_axis))]
        bounds = [
            f"{a.start} <= {r} < {a.start + a.extent}"
            for a, r in zip(stage.op.reduce_axis, reduce, strict=True)
        ]
        tags = [self.tag(stage, component, 0) for component in range(len(stage.op.dtypes))]
        where = " and ".join(bounds) or "true"
        return [f"{tag}[{', '.join(axes)}] -> {tag}p[{', '.join(axes + reduce)}] : {where}" for tag in tags]


__all__ = ["Cells"]
