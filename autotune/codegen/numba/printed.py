"""Schedules as Python for people."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.codegen.numba.module import module_text
from autotune.errors import LoweringError
from autotune.lower.examples import arguments
from autotune.lower.program import lower_schedule
from autotune.schedule.schedule import Schedule
from autotune.te.tensor import Tensor


def printed(schedule: Schedule, args: Sequence[Tensor] | None, name: str) -> str:
    """Return the module of :meth:`autotune.schedule.schedule.Schedule.to_numba`."""
    if schedule.open_outputs:
        raise LoweringError(
            "the program has sizes that a call brings (te.var), and printed loops have numbers\n  use numbers instead, "
            "or autotune.build(s, args, target='numba'), which compiles for the sizes of each call"
        )
    return module_text(lower_schedule(schedule, arguments(schedule) if args is None else args), name)[0]


__all__ = ["printed"]
