"""Functions of programs with sizes that a call brings: compiled for each combination, the latest are kept."""

from __future__ import annotations

import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.errors import InputError, LoweringError, ScheduleError
from autotune.te.sizes import SizeVar, closed, open_sizes, solved, variables

if TYPE_CHECKING:
    from autotune.functions.function import Function
    from autotune.schedule.schedule import Schedule
    from autotune.te.tensor import Tensor

Build = Callable[["Schedule", "Sequence[Tensor]"], "Function"]

KEPT = 32
"""Combinations of sizes whose code is kept."""


class SizedFunction:
    """A schedule for sizes that are not known: call it with NumPy arrays, and integers for sizes among the arguments.

    The first call with a combination of sizes replays the schedule on the program of these sizes and compiles it; the
    ``KEPT`` latest combinations are kept. Outputs are written in place. Raises InputError for arrays whose shapes do
    not go together, ScheduleError where a step does not apply to the sizes.
    """

    def __init__(self, schedule: Schedule, args: Sequence[Any], build: Build) -> None:
        self._outputs = schedule.open_outputs
        self._trace = schedule.trace
        self._arguments = tuple(args)
        self._build = build
        self._lock = threading.Lock()
        self._made: OrderedDict[tuple[int, ...], Function] = OrderedDict()
        self.sizes = tuple(open_sizes([op.output(0) for op in self._outputs]))
        """The sizes that a call brings."""
        self._check_arguments()

    def _check_arguments(self) -> None:
        given = set(variables(a for a in self._arguments if isinstance(a, SizeVar)))
        given |= set(variables(d for a in self._tensors for d in a.shape))
        missing = [v.name for v in self.sizes if v not in given]
        if missing:
            raise LoweringError(
                f"no argument says what {', '.join(missing)} is; add it to the arguments, "
                f"which are {', '.join(a.name for a in self._arguments)}"
            )

    @property
    def _tensors(self) -> list[Tensor]:
        return [a for a in self._arguments if not isinstance(a, SizeVar)]

    def __repr__(self) -> str:
        sizes = ", ".join(v.name for v in self.sizes)
        return f"<SizedFunction ({', '.join(a.name for a in self._arguments)}) for any {sizes}>"

    def __call__(self, *values: Any) -> None:
        """Run once, after compiling where these sizes are new."""
        self.specialized(*values)(*self._arrays(values))

    def time(self, *values: Any, repeat: int = 10) -> Any:
        """Return nanoseconds of each of ``repeat`` runs with these sizes, int64 [repeat]."""
        return self.specialized(*values).time(*self._arrays(values), repeat=repeat)

    def specialized(self, *values: Any) -> Function:
        """Return the function for the sizes of these arguments."""
        sizes = self._sizes_of(values)
        key = tuple(sizes[v] for v in self.sizes)
        with self._lock:
            if key not in self._made:
                self._made[key] = self._compiled(sizes)
                while len(self._made) > KEPT:
                    self._made.popitem(last=False)
            self._made.move_to_end(key)
            return self._made[key]

    def _arrays(self, values: Sequence[Any]) -> list[Any]:
        pairs = zip(self._arguments, values, strict=True)
        return [value for argument, value in pairs if not isinstance(argument, SizeVar)]

    def _sizes_of(self, values: Sequence[Any]) -> dict[SizeVar, int]:
        if len(values) != len(self._arguments):
            names = ", ".join(a.name for a in self._arguments)
            raise InputError(f"got {len(values)} values for the {len(self._arguments)} arguments {names}")
        shapes = [(t, np.shape(a)) for t, a in zip(self._tensors, self._arrays(values), strict=True)]
        named = {a: v for a, v in zip(self._arguments, values, strict=True) if isinstance(a, SizeVar)}
        return solved(shapes, {variable: _integer(variable, value) for variable, value in named.items()})

    def _compiled(self, sizes: dict[SizeVar, int]) -> Function:
        from autotune.schedule.schedule import create_schedule

        try:
            made = closed([*self._outputs, *(t.op for t in self._tensors)], sizes)
            schedule = self._trace.apply(create_schedule([made[op] for op in self._outputs]))
            return self._build(schedule, [made[t.op].output(t.value_index) for t in self._tensors])
        except (ScheduleError, LoweringError, TypeError) as error:
            known = ", ".join(f"{v.name}={sizes[v]}" for v in self.sizes)
            kind = LoweringError if isinstance(error, LoweringError) else ScheduleError
            raise kind(f"for {known}: {error}") from error


def _integer(variable: SizeVar, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(f"{variable.name} must be an integer, got {value!r}") from None
    if number < 0:
        raise InputError(f"{variable.name} must not be negative, got {number}")
    return number


__all__ = ["KEPT", "SizedFunction"]
