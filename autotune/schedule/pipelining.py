"""Stages that run ahead of their readers: their distance, and the conditions on the loop around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.te.expr import IterVar
from autotune.te.tensor import ComputeOp

if TYPE_CHECKING:
    from autotune.schedule.schedule import Schedule
    from autotune.schedule.stage import Stage

_REPEATED = ("serial", "unrolled")
"""Kinds of loops whose iterations follow one another."""


def computed_ahead(parent: Stage, iv: IterVar) -> list[Stage]:
    """Return the stages at a loop that are computed in earlier iterations than they are read, in the
    order of computation.

    These are all that are computed there when the loop is pipelined, else those that are double-buffered.
    """
    return [s for s in _computed_at(parent, iv) if iv in parent.pipelines or s.double_buffered]


def reductions_ahead(schedule: Schedule) -> list[Stage]:
    """Return the reductions that run ahead, themselves or inside of stages that do."""
    reductions = [s for s in schedule.order() if isinstance(s.op, ComputeOp) and s.op.reduction is not None]
    return [s for s in reductions if _runs_ahead(s)]


def _runs_ahead(stage: Stage) -> bool:
    parent, iv = stage.attach_stage, stage.attach_ivar
    if stage.attach_type != "scope" or parent is None or iv is None:
        return False
    return stage in computed_ahead(parent, iv) or _runs_ahead(parent)


def iterations_ahead(parent: Stage, iv: IterVar) -> int:
    """Return the number of iterations that these run ahead."""
    return parent.pipelines.get(iv, 2) - 1


def check_ahead(step: str, stage: Stage) -> None:
    """Raise ScheduleError where ``step`` takes from a stage, or from its loops, what running ahead needs."""
    if stage.double_buffered and stage.attach_type != "scope":
        raise stage.refuse(
            step,
            f"{stage.op.name} is double-buffered, but would no longer be computed inside a loop of another stage",
        )
    for iv in stage.pipelines:
        if not _computed_at(stage, iv):
            raise stage.refuse(
                step, f"{iv.name} is pipelined, but no stage would be computed at it any more", iv
            )
    for iv in stage.leaf_iter_vars:
        _check_loop(step, stage, iv)


def _check_loop(step: str, parent: Stage, iv: IterVar) -> None:
    ahead = computed_ahead(parent, iv)
    if not ahead:
        return
    kind, names = parent.kind_of(iv), ", ".join(s.op.name for s in ahead)
    if kind not in _REPEATED:
        raise parent.refuse(
            step,
            f"{names} cannot be computed ahead: {iv.name} is {kind}, and only the iterations of a serial or "
            f"unrolled loop follow one another",
            iv,
        )
    others = [s for s in _computed_at(parent, iv) if s not in ahead]
    for stage in ahead:
        late = [s.op.name for s in others if parent.schedule.reads_from(stage, s)]
        if late:
            raise parent.refuse(
                step,
                f"{stage.op.name} cannot be computed ahead: it reads {', '.join(late)}, computed in the same "
                f"iteration; make that run ahead too",
                iv,
            )


def _computed_at(parent: Stage, iv: IterVar) -> list[Stage]:
    """Return the stages that are computed at a loop."""
    return [
        s
        for s in parent.schedule.order()
        if s.attach_type == "scope" and s.attach_stage is parent and s.attach_ivar is iv
    ]


__all__ = ["check_ahead", "computed_ahead", "iterations_ahead", "reductions_ahead"]
