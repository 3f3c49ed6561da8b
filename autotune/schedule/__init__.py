"""Schedules: how a tensor expression is computed, as a sequence of checked steps."""

from autotune.schedule.index_map import IndexMap
from autotune.schedule.knob_value import ceil_div, maximum, minimum
from autotune.schedule.schedule import Schedule, create_schedule
from autotune.schedule.stage import Stage
from autotune.schedule.trace import PRIMITIVES, Step, Trace

__all__ = [
    "PRIMITIVES",
    "IndexMap",
    "Schedule",
    "Stage",
    "Step",
    "Trace",
    "ceil_div",
    "create_schedule",
    "maximum",
    "minimum",
]
