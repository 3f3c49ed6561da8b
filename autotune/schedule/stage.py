"""A stage of a schedule: its state, and all primitives that are called on it."""

from __future__ import annotations

from typing import Any, NoReturn

from autotune.errors import ScheduleError
from autotune.schedule.primitives.hardware import HardwarePrimitives
from autotune.schedule.primitives.loops import LoopPrimitives
from autotune.schedule.primitives.place import PlacePrimitives
from autotune.schedule.primitives.reductions import ReductionPrimitives
from autotune.schedule.primitives.reverse import ReversePrimitives
from autotune.schedule.primitives.storage import StoragePrimitives
from autotune.schedule.state import SCOPES
from autotune.te.expr import Expr, IterVar, Var
from autotune.te.traversal import nodes


class Stage(
    LoopPrimitives,
    HardwarePrimitives,
    PlacePrimitives,
    ReversePrimitives,
    StoragePrimitives,
    ReductionPrimitives,
):
    """The schedule of one operation; see :class:`autotune.schedule.state.StageState` for its attributes."""

    def transform_layout(self, mapping_function: Any) -> Any:
        """Apply ``schedule.transform_layout`` to this stage's tensor, as TVM 0.18 spells it."""
        return self.schedule.transform_layout(self.tensor, mapping_function)

    def set_store_predicate(self, predicate: Expr) -> None:
        """Accept TVM's choice of the thread that stores the result of a bound reduction; it has no effect.

        Here the result is stored once. Raises ScheduleError for a condition on anything else than thread axes that
        reduction loops of this stage are bound to.
        """
        bound = {kind for iv, kind in self.kinds.items() if iv.kind == "reduce"}
        for var in (node for node in nodes(predicate) if isinstance(node, Var)):
            if not isinstance(var, IterVar) or var.tag not in bound:
                raise self.refuse(
                    "set_store_predicate",
                    f"{var.name} is no thread axis that a reduction loop of {self.op.name} is bound to; for values "
                    f"that depend on a condition, write te.if_then_else",
                )

    def env_threads(self, *_: Any) -> NoReturn:
        """Raise ScheduleError: TVM's way to open threads around a scan."""
        raise ScheduleError(
            "env_threads: the steps of a scan run in one thread; bind loops of the scan's own stage instead"
        )

    def rolling_buffer(self) -> NoReturn:
        """Raise ScheduleError: a buffer that keeps rows of earlier iterations."""
        raise ScheduleError(
            "rolling_buffer: not supported; compute_at an outer loop, so that rows are computed once a block"
        )


__all__ = ["SCOPES", "Stage"]
