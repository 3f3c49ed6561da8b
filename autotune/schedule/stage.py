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
        """As TVM 0.18 spells it: ``schedule.transform_layout`` on this stage's tensor."""
        return self.schedule.transform_layout(self.tensor, mapping_function)

    def set_store_predicate(self, *_: Any) -> NoReturn:
        """Raises ScheduleError: TVM's way to let one thread store."""
        raise ScheduleError(
            "set_store_predicate: predicates are derived here (tail='guard', and threads beyond a narrower loop); "
            "remove the call"
        )

    def env_threads(self, *_: Any) -> NoReturn:
        """Raises ScheduleError: TVM's way to open threads around a scan."""
        raise ScheduleError("env_threads: scans are not supported; bind loops of each stage instead")

    def rolling_buffer(self) -> NoReturn:
        """Raises ScheduleError: a buffer that keeps rows of earlier iterations."""
        raise ScheduleError(
            "rolling_buffer: not supported; compute_at an outer loop, so that rows are computed once a block"
        )


__all__ = ["SCOPES", "Stage"]
