"""Lowering: schedules to loop programs with all extents known."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from autotune.lower.ir import LoopProgram
from autotune.lower.printer import program_text
from autotune.lower.program import lower_schedule
from autotune.schedule.schedule import Schedule
from autotune.te.tensor import Tensor

if TYPE_CHECKING:
    from autotune.lower.verify_isl import Verified


def lower(schedule: Schedule, args: Sequence[Tensor], simple_mode: bool = True) -> str | LoopProgram:
    """Return the loop program of a schedule: as text with ``simple_mode``, else as a LoopProgram."""
    program = lower_schedule(schedule, args)
    return program_text(program) if simple_mode else program


def verify(
    schedule: Schedule,
    args: Sequence[Tensor],
    *,
    constants: frozenset[str] = frozenset(),
    strides: Mapping[str, tuple[int, ...]] | None = None,
) -> Verified:
    """Prove with isl that the lowered loops respect every flow dependence; see ``lower.verify_isl``.

    The result says "proven", or what could not be judged and why. Raises LoweringError with a counterexample,
    MissingExtraError when islpy is not installed.
    """
    from autotune.lower import verify_isl

    return verify_isl.verify(schedule, args, constants=constants, strides=strides)


class _CallablePackage(ModuleType):
    """``autotune.lower(s, args)``, as users of TVM write it, although ``lower`` is a package here."""

    def __call__(self, *args: Any, **options: Any) -> str | LoopProgram:
        return lower(*args, **options)


sys.modules[__name__].__class__ = _CallablePackage

__all__ = ["LoopProgram", "lower", "lower_schedule", "program_text", "verify"]
