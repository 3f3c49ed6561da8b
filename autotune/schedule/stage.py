"""A stage: one operation of the schedule, its loops, and the primitives that transform them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.errors import ScheduleError
from autotune.schedule.relations import TAILS, Fuse, Relation, Split
from autotune.schedule.trace import primitive
from autotune.te.expr import IterVar
from autotune.te.tensor import ComputeOp, Operation, Tensor

if TYPE_CHECKING:
    from autotune.schedule.schedule import Schedule

SCOPES = ("global", "local", "shared", "warp")
"""Where a stage's values live: memory, registers or stack, and on GPUs the block's or warp's memory."""


class Stage:
    """The schedule of one operation.

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
        self.kinds: dict[IterVar, str] = {}
        self.pragmas: dict[IterVar, dict[str, Any]] = {}
        self.is_output = False
        axes = list(op.axis + op.reduce_axis) if isinstance(op, ComputeOp) else []
        self.leaf_iter_vars: list[IterVar] = list(axes)
        self.all_iter_vars: list[IterVar] = list(axes)

    # -- looking up ------------------------------------------------------------------------------------------

    @property
    def tensor(self) -> Tensor:
        """The first output of the stage's operation."""
        return self.op.output(0)

    def loop_named(self, name: str) -> IterVar:
        """The loop variable of that name; raises ScheduleError listing the names."""
        for iv in self.all_iter_vars:
            if iv.name == name:
                return iv
        names = ", ".join(iv.name for iv in self.leaf_iter_vars)
        raise ScheduleError(f"stage {self.op.name} has no loop {name!r}; its loops are: {names}")

    def kind_of(self, iv: IterVar) -> str:
        """How a leaf loop runs: serial, parallel, vectorized or unrolled."""
        return self.kinds.get(iv, "serial")

    def nest_text(self, mark: IterVar | None = None) -> str:
        """The loops as text, one a line, with an arrow at ``mark``."""
        lines = []
        for depth, iv in enumerate(self.leaf_iter_vars):
            role = " (reduce)" if iv.kind == "reduce" else ""
            arrow = "    <---" if iv is mark else ""
            lines.append(f"{'  ' * depth}{self.kind_of(iv)} {iv.name} in 0..{iv.extent}{role}{arrow}")
        return f"stage {self.op.name}:\n  " + "\n  ".join(lines)

    def refuse(self, step: str, reason: str, mark: IterVar | None = None) -> ScheduleError:
        """The error of an illegal step: the reason first, then the loops with a mark."""
        return ScheduleError(f"{step}: {reason}\n{self.nest_text(mark)}")

    def snapshot(self) -> dict[str, Any]:
        """A copy of the attributes, containers copied one level deep."""
        copies = {"relations", "kinds", "leaf_iter_vars", "all_iter_vars"}
        state = {k: v.copy() if k in copies else v for k, v in self.__dict__.items()}
        state["pragmas"] = {iv: dict(hints) for iv, hints in self.pragmas.items()}
        return state

    def _leaf(self, step: str, iv: IterVar) -> int:
        if not isinstance(iv, IterVar):
            raise ScheduleError(f"{step}: expected a loop variable of stage {self.op.name}, got {iv!r}")
        if iv not in self.leaf_iter_vars:
            known = iv in self.all_iter_vars
            why = "is no longer a loop (it was split or fused)" if known else "is not a loop of this stage"
            raise self.refuse(step, f"{iv.name} {why}")
        return self.leaf_iter_vars.index(iv)

    def _fresh(self, name: str, extent: int, kind: str) -> IterVar:
        taken = {iv.name for iv in self.all_iter_vars}
        unique, number = name, 1
        while unique in taken:
            unique, number = f"{name}{number}", number + 1
        return IterVar(unique, extent, kind)

    # -- loop primitives -------------------------------------------------------------------------------------

    @primitive
    def split(
        self, parent: IterVar, factor: int | None = None, nparts: int | None = None, tail: str = "peel"
    ) -> tuple[IterVar, IterVar]:
        """Split a loop in two: ``parent = outer * factor + inner``.

        Give ``factor`` (extent of the inner loop) or ``nparts`` (extent of the outer loop). ``tail`` says what
        happens when it does not divide: "peel", "overlap" (stages that are stored once: outputs and root
        stages without reduction loops outside) or "guard". Returns ``(outer, inner)``.
        """
        at = self._leaf("split", parent)
        if (factor is None) == (nparts is None):
            raise self.refuse("split", "give exactly one of factor and nparts", parent)
        number = factor if factor is not None else nparts
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise self.refuse("split", f"the factor must be a positive integer, got {number!r}", parent)
        if tail not in TAILS:
            raise self.refuse("split", f"tail must be one of {', '.join(TAILS)}, got {tail!r}", parent)
        if tail == "overlap" and parent.kind == "reduce":
            raise self.refuse(
                "split", "tail='overlap' would add some elements of a reduction twice; use 'peel'", parent
            )
        count = max(parent.extent, 1)
        if factor is not None:
            inner_extent = min(number, count)
            outer_extent = -(-count // inner_extent)
        else:
            outer_extent = min(number, count)
            inner_extent = -(-count // outer_extent)
        outer = self._fresh(parent.name + ".outer", outer_extent, parent.kind)
        inner = self._fresh(parent.name + ".inner", inner_extent, parent.kind)
        self.relations.append(Split(parent, outer, inner, factor or 0, nparts or 0, tail))
        self.leaf_iter_vars[at : at + 1] = [outer, inner]
        self.all_iter_vars += [outer, inner]
        self._forget(parent)
        return outer, inner

    @primitive
    def fuse(self, *order: IterVar) -> IterVar:
        """Fuse adjacent loops, outermost first, into one loop; returns it."""
        if not order:
            raise self.refuse("fuse", "name at least one loop")
        fused = order[0]
        self._leaf("fuse", fused)
        for inner in order[1:]:
            at = self._leaf("fuse", fused)
            if self._leaf("fuse", inner) != at + 1:
                raise self.refuse(
                    "fuse", f"{inner.name} is not directly inside {fused.name}; reorder them first", inner
                )
            if inner.kind != fused.kind:
                raise self.refuse("fuse", f"{fused.name} and {inner.name}: one is a reduction loop", inner)
            new = self._fresh(f"{fused.name}.{inner.name}.fused", fused.extent * inner.extent, fused.kind)
            self.relations.append(Fuse(fused, inner, new))
            self.leaf_iter_vars[at : at + 2] = [new]
            self.all_iter_vars.append(new)
            self._forget(fused)
            self._forget(inner)
            fused = new
        return fused

    @primitive
    def reorder(self, *order: IterVar) -> None:
        """Put the named loops in this order, in the places that they occupy now."""
        places = sorted(self._leaf("reorder", iv) for iv in order)
        if len(set(places)) != len(places):
            raise self.refuse("reorder", "a loop is named twice")
        for place, iv in zip(places, order, strict=True):
            self.leaf_iter_vars[place] = iv

    @primitive
    def tile(
        self,
        x_parent: IterVar,
        y_parent: IterVar,
        x_factor: int,
        y_factor: int,
        tail: str = "peel",
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split two loops and reorder to ``(x_outer, y_outer, x_inner, y_inner)``, which are returned."""
        x_outer, x_inner = self.split(x_parent, factor=x_factor, tail=tail)
        y_outer, y_inner = self.split(y_parent, factor=y_factor, tail=tail)
        self.reorder(x_outer, y_outer, x_inner, y_inner)
        return x_outer, y_outer, x_inner, y_inner

    def _annotate(self, step: str, iv: IterVar, kind: str) -> None:
        self._leaf(step, iv)
        old = self.kind_of(iv)
        if old not in ("serial", kind):
            raise self.refuse(step, f"{iv.name} is {old} already", iv)
        self.kinds[iv] = kind

    @primitive
    def vectorize(self, var: IterVar) -> None:
        """Run a loop in vector lanes. A reduction loop is folded across lanes (sum, prod, max and min)."""
        if var.kind == "reduce":
            reduction = self.op.reduction if isinstance(self.op, ComputeOp) else None
            if reduction is None or reduction.reducer.name not in ("sum", "prod", "max", "min"):
                raise self.refuse("vectorize", f"{var.name} reduces by a custom reducer; use rfactor", var)
        self._annotate("vectorize", var, "vectorized")

    @primitive
    def unroll(self, var: IterVar) -> None:
        """Repeat the body of a loop instead of looping."""
        self._annotate("unroll", var, "unrolled")

    @primitive
    def parallel(self, var: IterVar) -> None:
        """Share the iterations of a loop among the workers; it must be the outermost loop when lowered."""
        if var.kind == "reduce":
            raise self.refuse(
                "parallel",
                f"{var.name} is a reduction loop: its iterations write one element; use rfactor",
                var,
            )
        self._annotate("parallel", var, "parallel")

    @primitive
    def pragma(self, var: IterVar, pragma_type: str, pragma_value: Any = None) -> None:
        """Attach a hint to a loop; unknown hints are kept and ignored."""
        self._leaf("pragma", var)
        self.pragmas.setdefault(var, {})[pragma_type] = pragma_value

    # -- where the stage is computed -------------------------------------------------------------------------

    @primitive
    def compute_at(self, parent: Any, scope: IterVar) -> None:
        """Compute this stage inside loop ``scope`` of stage ``parent``, just what an iteration needs."""
        stage = self.schedule[parent]
        if self.is_output:
            raise self.refuse(
                "compute_at", f"{self.op.name} is an output of the program and stays at the root"
            )
        if not isinstance(self.op, ComputeOp):
            raise ScheduleError(f"compute_at: {self.op.name} is an input of the program")
        if scope not in stage.leaf_iter_vars:
            name = getattr(scope, "name", scope)
            raise stage.refuse("compute_at", f"{name} is not a loop of stage {stage.op.name} now")
        if stage.kind_of(scope) == "vectorized":
            raise stage.refuse("compute_at", f"{scope.name} is vectorized; attach outside of it", scope)
        if not self.schedule.reads_from(stage, self):
            raise ScheduleError(f"compute_at: stage {stage.op.name} does not read {self.op.name}")
        self.attach_type, self.attach_stage, self.attach_ivar = "scope", stage, scope

    @primitive
    def compute_inline(self) -> None:
        """Substitute this stage into its readers; for stages without a reduction."""
        if self.is_output:
            raise self.refuse("compute_inline", f"{self.op.name} is an output of the program")
        if not isinstance(self.op, ComputeOp):
            raise ScheduleError(f"compute_inline: {self.op.name} is an input of the program")
        if self.op.reduction is not None:
            raise self.refuse("compute_inline", f"{self.op.name} is a reduction")
        self.attach_type, self.attach_stage, self.attach_ivar = "inline", None, None

    @primitive
    def compute_root(self) -> None:
        """Compute this stage on its own before its readers (the default)."""
        self.attach_type, self.attach_stage, self.attach_ivar = "root", None, None

    @primitive
    def set_scope(self, scope: str) -> None:
        """Where the values of the stage live: "global" memory or "local" registers."""
        if scope not in SCOPES:
            raise ScheduleError(f"set_scope: scope must be one of {', '.join(SCOPES)}, got {scope!r}")
        self.scope = scope

    def _forget(self, iv: IterVar) -> None:
        for stage in self.schedule.stages:
            if stage.attach_stage is self and stage.attach_ivar is iv:
                raise self.refuse(
                    "split or fuse", f"{stage.op.name} is computed at {iv.name}; do that after this step", iv
                )
        if self.kinds.pop(iv, None) is not None:
            raise self.refuse("split or fuse", f"{iv.name} is annotated already; annotate the result instead")

    def __repr__(self) -> str:
        return f"Stage({self.op.name}, {self.attach_type}, loops={[iv.name for iv in self.leaf_iter_vars]})"
