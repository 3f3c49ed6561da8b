"""Primitives for sequential kernels: sharing their points, and no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from autotune.errors import ScheduleError
from autotune.te.sequential import SequentialOp

if TYPE_CHECKING:
    from autotune.schedule.stage import Stage

_LANES = ("vectorized", "unrolled")


@dataclass(frozen=True)
class AbsorbedStage:
    """A stage that is computed within the steps of a scan: there it is inlined, and that is all."""

    name: str
    owner: str

    def compute_inline(self) -> None:
        """Accept the primitive, whose effect a sequential kernel has anyway."""

    def __getattr__(self, step: str) -> NoReturn:
        if step.startswith("__"):
            raise AttributeError(step)
        raise ScheduleError(
            f"{step}: {self.name} is computed within the steps of {self.owner}, a sequential kernel whose statements "
            f"are fixed; schedule {self.owner}, whose points can run in parallel"
        )


def check_sequential(step: str, stage: Stage) -> None:
    """Raise ScheduleError unless a sequential kernel is computed whole, at the root, from tensors in memory."""
    if not isinstance(stage.op, SequentialOp):
        return
    if stage.attach_type != "root":
        raise ScheduleError(f"{step}: {stage.op.name} is a sequential kernel, which is computed at the root")
    for iv, kind in stage.kinds.items():
        if kind in _LANES:
            raise stage.refuse(step, f"points of a sequential kernel cannot be {kind}: parallel, or bind", iv)
    for tensor in stage.op.input_tensors:
        if stage.schedule[tensor].attach_type != "root":
            raise ScheduleError(
                f"{step}: {stage.op.name} is a sequential kernel, which reads {tensor.name} from memory: leave "
                f"that stage at the root"
            )


__all__ = ["check_sequential"]
