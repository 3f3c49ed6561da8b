"""The schedule of a program: its stages, and the primitives that change the dataflow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.errors import ScheduleError
from autotune.foreign import preformatted
from autotune.schedule import rewrite
from autotune.schedule.declare import KnobDeclarations
from autotune.schedule.group import Group, group_between
from autotune.schedule.knob_value import KnobRecord
from autotune.schedule.primitives.layout import LayoutPrimitives
from autotune.schedule.relations import Relation
from autotune.schedule.sequential import AbsorbedStage
from autotune.schedule.stage import Stage
from autotune.schedule.trace import Step, Trace
from autotune.suggest import listing
from autotune.te.expr import IterVar
from autotune.te.sequential import SequentialOp
from autotune.te.sizes import closed, open_sizes
from autotune.te.tensor import ComputeOp, Operation, Tensor, post_order
from autotune.te.traversal import ordered


class Schedule(LayoutPrimitives, KnobDeclarations):
    """Stages of a program in post-order; ``s[T]`` is the stage of a tensor, an operation or a name."""

    def __init__(self, outputs: Sequence[Operation]) -> None:
        self.outputs = list(outputs)
        self.steps: list[Step] = []
        self.step = ""  # the primitive that runs now; it may call others
        self.replaying = False
        self.record = KnobRecord()
        self.made: list[tuple[str, Relation]] = []
        """The loops that the step in progress has made of others, by stage."""
        self._stages: dict[Operation, Stage] = {}
        self._by_name: dict[str, Stage] = {}
        self._renamed: dict[Operation, Operation] = {}
        """Operations whose name another one had already, as they are called here."""
        self._absorbed: dict[Operation, AbsorbedStage] = {}
        self.stages: list[Stage] = []
        self._order: list[Stage] | None = None
        """The result of :meth:`order`, until a stage computes something else."""
        self.open_outputs: tuple[Operation, ...] = ()
        """The scheduled program, where a call brings some of its sizes."""
        for op in post_order([op.output(0) for op in outputs]):
            self.add(op)
        for op in outputs:
            self._stages[op].is_output = True

    # -- looking up ------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Stage:
        if isinstance(key, Stage):
            return key
        if isinstance(key, str):
            return self.stage_named(key)
        op = key.op if isinstance(key, Tensor) else key
        if not isinstance(op, Operation):
            raise ScheduleError(f"expected a stage, a tensor, an operation or a name, got {key!r}")
        stage = self._stages.get(op)
        if stage is None and op in self._absorbed:
            return self._absorbed[op]  # type: ignore[return-value]  # it answers to little more than its name
        if stage is None:
            raise ScheduleError(
                f"{op.name!r} is not part of this schedule; its stages: {', '.join(self._by_name)}"
            )
        return stage

    def __contains__(self, op: object) -> bool:
        return op in self._stages

    def stage_named(self, name: str) -> Stage:
        """Return the stage of an operation name; raises ScheduleError listing the names."""
        if name not in self._by_name:
            raise ScheduleError(f"no stage {name!r} in this schedule; stages: {listing(name, self._by_name)}")
        return self._by_name[name]

    def name_of(self, tensor: Tensor) -> str:
        """Return the name of a tensor here: its own, with a number behind it where another one has that name."""
        return self._renamed.get(tensor.op, tensor.op).output(tensor.value_index).name

    def owner_of(self, iv: IterVar) -> Stage:
        """Return the stage that a loop variable belongs to; raises ScheduleError."""
        for stage in self.stages:
            for other in stage.all_iter_vars:
                if iv is other:
                    return stage
        raise ScheduleError(f"loop {iv.name} belongs to no stage of this schedule")

    @property
    def trace(self) -> Trace:
        """The steps so far, as a value."""
        return Trace(tuple(self.steps))

    def order(self) -> list[Stage]:
        """Return stages that the outputs need now, producers before consumers."""
        if self._order is None:
            self._order = ordered([self[op] for op in self.outputs], self._producers)
        return list(self._order)

    def _producers(self, stage: Stage) -> list[Stage]:
        return [self._stages[tensor.op] for tensor in stage.op.input_tensors]

    def reads_from(self, consumer: Stage, producer: Stage) -> bool:
        """Return whether ``consumer`` needs ``producer``, directly or through other stages."""
        return consumer is not producer and producer in ordered([consumer], self._producers)

    def readers_of(self, producer: Stage) -> list[Stage]:
        """Return stages that read ``producer`` directly."""
        return [s for s in self.order() if any(self[t] is producer for t in s.op.input_tensors)]

    # -- bookkeeping -----------------------------------------------------------------------------------------

    def snapshot(self, stages: Sequence[Stage]) -> tuple[Any, ...]:
        """Return the state that :meth:`restore` needs to undo a primitive that fails half-way and changes
        ``stages`` alone."""
        maps = (dict(self._stages), dict(self._by_name), list(self.stages))
        return (*maps, [(stage, stage.snapshot()) for stage in stages])

    def restore(self, state: tuple[Any, ...]) -> None:
        """Go back to a snapshot."""
        self._stages, self._by_name, self.stages, stages = state
        self._order = None
        for stage, attributes in stages:
            stage.__dict__.update(attributes)

    def merge(self, kept: Stage, gone: Stage, op: ComputeOp) -> None:
        """Let ``kept`` compute ``op``, which is what both stages computed; both names mean ``kept`` from now on."""
        for known, stage in list(self._stages.items()):
            if stage is gone:
                self._stages[known] = kept
        self._by_name[gone.op.name] = kept
        self._order = None
        self.stages.remove(gone)
        kept.is_output, kept.scope, kept.alignments = gone.is_output, gone.scope, gone.alignments
        kept.attach_type, kept.attach_stage, kept.attach_ivar = (
            gone.attach_type,
            gone.attach_stage,
            gone.attach_ivar,
        )
        self.replace_op(kept, op)

    def normalize(self) -> Schedule:
        """Return the schedule itself, for programs of TVM; loops here always start at 0."""
        return self

    def create_group(self, outputs: Any, inputs: Any, include_inputs: bool = False) -> Group:
        """Return stages from ``inputs`` to ``outputs``, to be placed together; raises ScheduleError
        where there are none."""
        return group_between(self, outputs, inputs, include_inputs)

    def add(self, op: Operation, before: Stage | None = None, after: Stage | None = None) -> Stage:
        """Add a stage for an operation; where another one has its name, a number behind tells them apart."""
        stage = Stage(self, op)
        self._stages[op] = stage
        self._order = None
        self._absorbed |= {inner: AbsorbedStage(inner.name, op.name) for inner in op.absorbed}
        if op.name in self._by_name:
            self._renamed[op] = rewrite.renamed(op, self.unique_name(op.name))
            self.replace_op(stage, self._renamed[op])
        self._by_name[stage.op.name] = stage
        if before is not None:
            self.stages.insert(self.stages.index(before), stage)
        elif after is not None:
            self.stages.insert(self.stages.index(after) + 1, stage)
        else:
            self.stages.append(stage)
        return stage

    def replace_op(self, stage: Stage, op: Operation) -> None:
        """Let a stage compute another operation; the old one still names the stage."""
        stage.op = op
        self._stages[op] = stage
        self._order = None

    def also(self, op: Operation, known: Operation) -> None:
        """Let ``op`` name the stage of an operation that is known."""
        if known in self._stages:
            self._stages[op] = self._stages[known]
        elif known in self._absorbed:
            self._absorbed[op] = AbsorbedStage(op.name, self._absorbed[known].owner)

    def redirect(self, reader: Stage, source: Stage, index: int, replacement: Any) -> None:
        """Let ``reader`` read ``replacement(indices)`` where it reads output ``index`` of ``source``."""
        assert isinstance(reader.op, ComputeOp)
        if isinstance(reader.op, SequentialOp):
            raise ScheduleError(
                f"{self.step}: {reader.op.name} is a sequential kernel, whose statements are fixed"
            )
        new = rewrite.with_reads(
            reader.op, lambda t: self[t] is source and t.value_index == index, replacement
        )
        self.replace_op(reader, new)

    def unique_name(self, name: str) -> str:
        """Return a name that no stage has yet."""
        unique, number = name, 1
        while unique in self._by_name:
            unique, number = f"{name}{number}", number + 1
        return unique

    def to_numba(self, args: Sequence[Tensor] | None = None, name: str = "main") -> str:
        """Return the scheduled loops as a module of Python that numba compiles, to read, change and paste.

        Its function ``name`` takes NumPy arrays for ``args``, by default the inputs and then the outputs, which it
        stores in place. Raises LoweringError, and BuildError for what numba has no code for.
        """
        from autotune.codegen.numba.printed import printed  # a look ahead, made when it is called

        return printed(self, args, name)

    def _repr_html_(self) -> str:
        return preformatted(f"{self!r}\n{self.trace}")

    def __repr__(self) -> str:
        return f"Schedule({', '.join(s.op.name for s in self.stages)})"


def create_schedule(ops: Any) -> Schedule:
    """Return a schedule with every stage at the root, loops in the order of the axes.

    ``ops`` is an operation, a tensor, or a list of them: the outputs of the program.
    """
    items = ops if isinstance(ops, list | tuple) else [ops]
    outputs: list[Operation] = []
    for item in items:
        op = item.op if isinstance(item, Tensor) else item
        if not isinstance(op, Operation):
            raise ScheduleError(f"create_schedule takes operations or tensors, got {item!r}")
        if op not in outputs:
            outputs.append(op)
    if not outputs:
        raise ScheduleError("create_schedule needs at least one output")
    if not open_sizes([op.output(0) for op in outputs]):
        return Schedule(outputs)
    return _at_examples(outputs)


def _at_examples(outputs: list[Operation]) -> Schedule:
    """Return the schedule of a program with sizes that a call brings, at an example of each."""
    made = closed(outputs)
    schedule = Schedule([made[op] for op in outputs])
    schedule.open_outputs = tuple(outputs)
    for op, example in made.items():
        schedule.also(op, example)
    return schedule
