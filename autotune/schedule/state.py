"""The state of a stage: one operation, its loops, the place where it is computed. Primitives are in ``primitives/``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.errors import ScheduleError
from autotune.schedule.knob_value import KnobLoop, KnobValue
from autotune.schedule.relations import Relation
from autotune.suggest import listing
from autotune.te.expr import IterVar
from autotune.te.intrinsic import TensorIntrin
from autotune.te.sequential import SequentialOp
from autotune.te.tensor import ComputeOp, Operation, Tensor

if TYPE_CHECKING:
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage

SCOPES = ("global", "local", "shared", "warp")
"""The memory of a stage's values: global memory, registers or stack, and on GPUs the block's or warp's memory."""

_CONTAINERS = (
    "relations",
    "kinds",
    "leaf_iter_vars",
    "all_iter_vars",
    "peeled",
    "prefetches",
    "alignments",
    "pipelines",
    "tensorized",
)


class StageState:
    """The state of a stage and how to look it up.

    ``leaf_iter_vars`` are the loops from outermost to innermost; ``relations`` say how they derive from the
    axes; ``attach_type`` is "root", "inline" or "scope" (computed inside a loop of another stage).
    """

    def __init__(self, schedule: Schedule, op: Operation) -> None:
        self.schedule = schedule
        self.origin_op = op
        self.op = op
        self.scope = "global"
        self.relations: list[Relation] = []
        self.attach_type = "root"
        self.attach_stage: Stage | None = None
        self.attach_ivar: IterVar | None = None
        self.awaits_readers = False
        """True if readers that are still at the root may follow to where this stage is computed."""
        self.kinds: dict[IterVar, str] = {}
        """The kinds of loops that are not serial; a bound loop has the tag of its thread axis."""
        self.pragmas: dict[IterVar, dict[str, Any]] = {}
        self.peeled: dict[IterVar, tuple[int, int]] = {}
        """Iterations at the start and at the end of a loop with code of their own."""
        self.prefetches: list[tuple[Tensor, IterVar, int, int]] = []
        self.alignments: dict[int, tuple[int, int]] = {}
        """``(factor, offset)`` that the stride of a dimension must satisfy."""
        self.pipelines: dict[IterVar, int] = {}
        self.tensorized: dict[IterVar, TensorIntrin] = {}
        self.init_at: IterVar | None = None
        """The loop before which a decomposed reduction stores its start values."""
        self.double_buffered = False
        self.is_output = False
        axes = list(op.axis + op.reduce_axis) if isinstance(op, ComputeOp) else []
        self.leaf_iter_vars: list[IterVar] = list(axes)
        self.all_iter_vars: list[IterVar] = list(axes)

    # -- looking up ------------------------------------------------------------------------------------------

    @property
    def tensor(self) -> Tensor:
        """The first output of the stage's operation."""
        return self.op.output(0)

    def computes(self, tensor: Tensor) -> bool:
        """Return whether a tensor is one of this stage's; it may be part of no schedule."""
        return tensor.op in self.schedule and self.schedule[tensor] is self

    def loop_named(self, name: str) -> IterVar:
        """Return the loop variable of that name; raises ScheduleError listing the names."""
        for iv in self.all_iter_vars:
            if iv.name == name:
                return iv
        names = [iv.name for iv in self.leaf_iter_vars]
        raise ScheduleError(
            f"stage {self.op.name} has no loop {name!r}; its loops are: {listing(name, names)}"
        )

    def kind_of(self, iv: IterVar) -> str:
        """Return the kind of a leaf loop: serial, parallel, vectorized, unrolled, or the thread axis it is bound to."""
        return self.kinds.get(iv, "serial")

    def first_reduction(self) -> int:
        """Return the number of the outermost reduction loop; the number of loops when there is none."""
        for number, iv in enumerate(self.leaf_iter_vars):
            if iv.kind == "reduce":
                return number
        return len(self.leaf_iter_vars)

    def reduced_together(self) -> list[IterVar]:
        """Return the reduction loops whose iterations are the threads of a block."""
        leaves = self.leaf_iter_vars
        return [iv for iv in leaves if iv.kind == "reduce" and self.kind_of(iv).startswith("threadIdx")]

    def nest_text(self, mark: IterVar | None = None) -> str:
        """Return the loops as text, one a line, with an arrow at ``mark``."""
        lines = []
        for depth, iv in enumerate(self.leaf_iter_vars):
            role = " (reduce)" if iv.kind == "reduce" else ""
            arrow = "    <---" if iv is mark else ""
            lines.append(f"{'  ' * depth}{self.kind_of(iv)} {iv.name} in 0..{iv.extent}{role}{arrow}")
        return f"stage {self.op.name}:\n  " + "\n  ".join(lines)

    def refuse(self, step: str, reason: str, mark: IterVar | None = None) -> ScheduleError:
        """Return the error of an illegal step: the reason first, then the loops with a mark.

        A primitive that is called by another one is refused under the name of that, which the user wrote.
        """
        return ScheduleError(f"{self.schedule.step or step}: {reason}\n{self.nest_text(mark)}")

    def snapshot(self) -> dict[str, Any]:
        """Return a copy of the attributes, containers copied one level deep."""
        state = dict(self.__dict__)
        for name in _CONTAINERS:
            state[name] = state[name].copy()
        state["pragmas"] = {iv: dict(hints) for iv, hints in self.pragmas.items()}
        return state

    # -- for the primitives ----------------------------------------------------------------------------------

    def computed(self, step: str) -> ComputeOp:
        """Return the operation, which must not be an input of the program."""
        if not isinstance(self.op, ComputeOp):
            raise ScheduleError(
                f"{step}: {self.op.name} is an input of the program; use cache_read to copy it"
            )
        if isinstance(self.op, SequentialOp):
            raise ScheduleError(f"{step}: {self.op.name} is a sequential kernel, whose statements are fixed")
        return self.op

    def leaf(self, step: str, iv: IterVar) -> int:
        """Return the number of a loop; raises ScheduleError for what is not a loop of this stage now."""
        for number, leaf in enumerate(self.leaf_iter_vars):
            if leaf is iv:
                return number
        known = iv in self.all_iter_vars
        why = "is no longer a loop (it was split or fused)" if known else "is not a loop of this stage"
        raise self.refuse(step, f"{iv.name} {why}")

    def fresh(self, name: str, extent: int | KnobValue, kind: str) -> IterVar:
        """Return a new loop variable under a name that the stage does not use yet."""
        taken = {iv.name for iv in self.all_iter_vars}
        unique, number = name, 1
        while unique in taken:
            unique, number = f"{name}{number}", number + 1
        if isinstance(extent, KnobValue):
            return KnobLoop(unique, extent, kind, self.schedule)
        return IterVar(unique, extent, kind)

    def relate(self, relation: Relation) -> None:
        """Note the loops that a step makes of others."""
        self.relations.append(relation)
        self.schedule.made.append((self.op.name, relation))

    def forget(self, iv: IterVar) -> None:
        """Raise ScheduleError when something depends on a loop that a step takes away."""
        step = self.schedule.step
        for stage in self.schedule.stages:
            if stage.attach_stage is self and stage.attach_ivar is iv:
                raise self.refuse(
                    step, f"{stage.op.name} is computed at {iv.name}; do that after this step", iv
                )
        if iv in self.kinds:
            raise self.refuse(step, f"{iv.name} is annotated already; annotate the result instead", iv)
        hints = (*self.peeled, *self.pipelines, *self.tensorized, *(p[1] for p in self.prefetches))
        if iv in hints or iv is self.init_at:
            raise self.refuse(step, f"another step refers to {iv.name} already; do that after this step", iv)

    def take_loops(self, op: ComputeOp) -> None:
        """Start again with the axes of a rewritten operation."""
        self.relations = []
        self.kinds, self.pragmas, self.peeled, self.pipelines, self.tensorized = {}, {}, {}, {}, {}
        self.prefetches, self.init_at = [], None
        self.leaf_iter_vars = list(op.axis + op.reduce_axis)
        self.all_iter_vars = list(op.axis + op.reduce_axis)

    def __repr__(self) -> str:
        return f"Stage({self.op.name}, {self.attach_type}, loops={[iv.name for iv in self.leaf_iter_vars]})"


__all__ = ["SCOPES", "StageState"]
