"""A constraint: a named rule over knobs, evaluated on whole populations before a candidate is proposed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InternalError, KnobError
from autotune.schedule.knob import Columns, Config

Rule = Callable[[Columns], object]


@dataclass(frozen=True)
class Constraint:
    """A named rule over the knobs that it lists.

    ``holds`` gets one array a listed knob, all of shape [n], and returns a bool array of shape [n] (or
    one bool for all). It sees nothing but the listed knobs, so that the space may count and sample each
    group of connected knobs on its own. ``help`` says why a candidate that breaks it is not wanted.
    """

    name: str
    knobs: tuple[str, ...]
    holds: Rule
    help: str = ""

    def mask(self, columns: Columns) -> NDArray[np.bool_]:
        """Return which of the n candidates keep the rule, bool [n]."""
        mine = {name: columns[name] for name in self.knobs}
        n = len(next(iter(mine.values())))
        result = np.asarray(self.holds(mine))
        if result.dtype != np.bool_ or result.shape not in ((), (n,)):
            raise InternalError(
                f"constraint {self.name!r} returned {result.dtype} of shape {result.shape} "
                f"for {n} candidates; expected bool [{n}]"
            )
        return np.broadcast_to(result, (n,))

    def check(self, config: Config) -> None:
        """Raise KnobError unless one configuration keeps the rule."""
        if not self.mask({name: np.asarray([config[name]]) for name in self.knobs})[0]:
            read = ", ".join(f"{name}={config[name]!r}" for name in self.knobs)
            why = f": {self.help}" if self.help else ""
            raise KnobError(f"constraint {self.name!r} does not hold for {read}{why}")


__all__ = ["Constraint", "Rule"]
