"""The schedule of a program: its stages, and the primitives that change the dataflow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.errors import ScheduleError
from autotune.schedule import rewrite
from autotune.schedule.index_map import IndexMap
from autotune.schedule.stage import SCOPES, Stage
from autotune.schedule.trace import Step, Trace, primitive
from autotune.te.expr import IterVar
from autotune.te.tensor import ComputeOp, Operation, PlaceholderOp, Tensor, post_order


class Schedule:
    """Stages of a program in post-order; ``s[T]`` is the stage of a tensor, an operation or a name."""

    def __init__(self, outputs: Sequence[Operation]) -> None:
        self.outputs = list(outputs)
        self.steps: list[Step] = []
        self.recording_depth = 0
        self._stages: dict[Operation, Stage] = {}
        self._by_name: dict[str, Stage] = {}
        self.stages: list[Stage] = []
        for op in post_order([op.output(0) for op in outputs]):
            self._add(op)
        for op in outputs:
            self._stages[op].is_output = True

    # -- looking up ------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Stage:
        if isinstance(key, Stage):
            return key
        if isinstance(key, str):
            return self.stage_named(key)
        op = key.op if isinstance(key, Tensor) else key
        stage = self._stages.get(op)
        if stage is None:
            raise ScheduleError(f"{getattr(op, 'name', op)!r} is not part of this schedule")
        return stage

    def stage_named(self, name: str) -> Stage:
        """The stage of an operation name; raises ScheduleError listing the names."""
        if name not in self._by_name:
            raise ScheduleError(f"no stage {name!r} in this schedule; stages: {', '.join(self._by_name)}")
        return self._by_name[name]

    def owner_of(self, iv: IterVar) -> Stage:
        """The stage that a loop variable belongs to; raises ScheduleError."""
        for stage in self.stages:
            if any(iv is other for other in stage.all_iter_vars):
                return stage
        raise ScheduleError(f"loop {iv.name} belongs to no stage of this schedule")

    @property
    def trace(self) -> Trace:
        """The steps so far, as a value."""
        return Trace(tuple(self.steps))

    def order(self) -> list[Stage]:
        """Stages that the outputs need now, producers before consumers."""
        result: list[Stage] = []
        seen: set[Stage] = set()

        def go(stage: Stage) -> None:
            if stage in seen:
                return
            seen.add(stage)
            for tensor in stage.op.input_tensors:
                go(self[tensor])
            result.append(stage)

        for op in self.outputs:
            go(self[op])
        return result

    def reads_from(self, consumer: Stage, producer: Stage) -> bool:
        """Whether ``consumer`` needs ``producer``, directly or through other stages."""
        if consumer is producer:
            return False
        return any(
            self[t] is producer or self.reads_from(self[t], producer) for t in consumer.op.input_tensors
        )

    def readers_of(self, producer: Stage) -> list[Stage]:
        """Stages that read ``producer`` directly."""
        return [s for s in self.order() if any(self[t] is producer for t in s.op.input_tensors)]

    # -- dataflow primitives ---------------------------------------------------------------------------------

    @primitive
    def cache_write(self, tensor: Tensor, scope: str) -> Tensor:
        """Compute ``tensor`` into a new stage in ``scope``; the tensor's stage becomes the copy out of it.

        Call it before other steps on the stage. Returns the new stage's tensor (named ``<tensor>.<scope>``).
        """
        stage = self._untouched("cache_write", tensor)
        self._check_scope("cache_write", scope)
        assert isinstance(stage.op, ComputeOp)
        cache, copy = rewrite.cache_write(stage.op, self._name(f"{stage.op.name}.{scope}"))
        new = self._add(cache, before=stage)
        new.scope = scope
        self._replace_op(stage, copy)
        stage.leaf_iter_vars = list(copy.axis)
        stage.all_iter_vars = list(copy.axis)
        return cache.output(tensor.value_index)

    @primitive
    def cache_read(self, tensor: Tensor, scope: str, readers: Sequence[Any]) -> Tensor:
        """Copy ``tensor`` into ``scope`` for the given readers; returns the copy, named ``<tensor>.<scope>``."""
        self._check_scope("cache_read", scope)
        source = self[tensor]
        stages = [self[r] for r in (readers if isinstance(readers, list | tuple) else [readers])]
        op = source.op
        current = Tensor(op, tensor.value_index)
        copy = rewrite.copy_of(current, self._name(f"{current.name}.{scope}"))
        for stage in stages:
            if not any(self[t] is source for t in stage.op.input_tensors):
                raise ScheduleError(f"cache_read: stage {stage.op.name} does not read {current.name}")
        new = self._add(copy, after=source)
        new.scope = scope
        for stage in stages:
            self._redirect(stage, source, tensor.value_index, lambda i: copy.output(0)(*i))
        return copy.output(0)

    @primitive
    def rfactor(self, tensor: Tensor, axis: IterVar, factor_axis: int = 0) -> Tensor:
        """Make a reduction loop a data axis of a new stage that holds partial results (TVM's rfactor).

        ``axis`` is a reduction loop of the stage, usually the inner part of a split; the new stage reduces over
        the other reduction loops, and the old one over ``axis``. Returns the new stage's tensor (``<tensor>.rf``).
        """
        stage = self[tensor]
        if axis not in stage.leaf_iter_vars or axis.kind != "reduce":
            raise stage.refuse("rfactor", f"{axis.name} is not a reduction loop of {stage.op.name}")
        assert isinstance(stage.op, ComputeOp)
        if any(iv.kind == "data" and iv not in stage.op.axis for iv in stage.all_iter_vars):
            raise stage.refuse("rfactor", "data loops were changed already; call rfactor first")
        if not 0 <= factor_axis <= len(stage.op.axis):
            raise stage.refuse(
                "rfactor", f"factor_axis must be in 0..{len(stage.op.axis)}, got {factor_axis}"
            )
        partial, final = rewrite.rfactor(
            stage.op,
            stage.relations,
            stage.leaf_iter_vars,
            axis,
            factor_axis,
            self._name(f"{stage.op.name}.rf"),
        )
        self._add(partial, before=stage)
        self._replace_op(stage, final)
        stage.relations = []
        stage.leaf_iter_vars = list(final.axis + final.reduce_axis)
        stage.all_iter_vars = list(final.axis + final.reduce_axis)
        stage.kinds = {}
        return partial.output(0)

    @primitive
    def transform_layout(self, tensor: Tensor, index_map: Any) -> Tensor:
        """Store an intermediate stage in another layout: element ``i`` goes to ``index_map(i)``.

        Dimensions that the map does not divide are padded with zeros. Readers are rewritten. On a copy of a
        constant input (made by cache_read) the copy runs at compile time. Returns the tensor in its new shape.
        """
        stage = self._untouched("transform_layout", tensor)
        if stage.is_output:
            raise stage.refuse("transform_layout", f"{stage.op.name} is an output of the program")
        assert isinstance(stage.op, ComputeOp)
        mapping = index_map if isinstance(index_map, IndexMap) else IndexMap.from_callable(index_map)
        if stage.op.reduction is not None:
            raise stage.refuse("transform_layout", f"{stage.op.name} is a reduction; cache_read it first")
        new = rewrite.transformed(stage.op, mapping)
        readers = self.readers_of(stage)
        self._replace_op(stage, new)
        stage.leaf_iter_vars = list(new.axis)
        stage.all_iter_vars = list(new.axis)
        for reader in readers:
            self._redirect(reader, stage, 0, lambda i: new.output(0)(*mapping.apply(i)))
        return new.output(0)

    # -- bookkeeping -----------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[Any, ...]:
        """What :meth:`restore` needs to undo a primitive that fails half-way."""
        maps = (dict(self._stages), dict(self._by_name), list(self.stages))
        return (*maps, [(stage, stage.snapshot()) for stage in self.stages])

    def restore(self, state: tuple[Any, ...]) -> None:
        """Go back to a snapshot."""
        self._stages, self._by_name, self.stages, stages = state
        for stage, attributes in stages:
            stage.__dict__.update(attributes)

    def _add(self, op: Operation, before: Stage | None = None, after: Stage | None = None) -> Stage:
        if op.name in self._by_name:
            raise ScheduleError(f"two operations are named {op.name!r}; a schedule needs unique names")
        stage = Stage(self, op)
        self._stages[op] = stage
        self._by_name[op.name] = stage
        if before is not None:
            self.stages.insert(self.stages.index(before), stage)
        elif after is not None:
            self.stages.insert(self.stages.index(after) + 1, stage)
        else:
            self.stages.append(stage)
        return stage

    def _replace_op(self, stage: Stage, op: Operation) -> None:
        stage.op = op
        self._stages[op] = stage

    def _redirect(self, reader: Stage, source: Stage, index: int, replacement: Any) -> None:
        """Let ``reader`` read ``replacement(indices)`` where it reads output ``index`` of ``source``."""
        assert isinstance(reader.op, ComputeOp)
        new = rewrite.with_reads(
            reader.op, lambda t: self[t] is source and t.value_index == index, replacement
        )
        self._replace_op(reader, new)

    def _name(self, name: str) -> str:
        unique, number = name, 1
        while unique in self._by_name:
            unique, number = f"{name}{number}", number + 1
        return unique

    def _untouched(self, step: str, tensor: Tensor) -> Stage:
        stage = self[tensor]
        if isinstance(stage.op, PlaceholderOp):
            raise ScheduleError(f"{step}: {stage.op.name} is an input; use cache_read to copy it")
        if stage.relations or stage.kinds:
            raise stage.refuse(step, f"{stage.op.name} has loop steps already; call {step} first")
        return stage

    def _check_scope(self, step: str, scope: str) -> None:
        if scope not in SCOPES:
            raise ScheduleError(f"{step}: scope must be one of {', '.join(SCOPES)}, got {scope!r}")

    def __repr__(self) -> str:
        return f"Schedule({', '.join(s.op.name for s in self.stages)})"


def create_schedule(ops: Any) -> Schedule:
    """A schedule with every stage at the root, loops in the order of the axes.

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
    return Schedule(outputs)
