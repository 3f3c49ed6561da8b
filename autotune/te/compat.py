"""Names of TVM 0.18's ``te`` that mean the same here under another name, or that are refused with the reason."""

from __future__ import annotations

from typing import Any, NoReturn

from autotune.errors import ScheduleError
from autotune.te.functions import pow as power
from autotune.te.functions import round as nearbyint


def hybrid(*_: Any, **__: Any) -> NoReturn:
    """Raise ScheduleError: there is no hybrid script."""
    raise ScheduleError("te.hybrid: hybrid script is not supported; write te.compute with te.if_then_else")


def gradient(*_: Any, **__: Any) -> NoReturn:
    """Raise ScheduleError: nothing is differentiated here."""
    raise ScheduleError(
        "te.gradient: not supported; export the training graph with its backward pass instead"
    )


__all__ = [
    "gradient",
    "hybrid",
    "nearbyint",
    "power",
]
