"""The evidence for a schedule: confirmed or measured inside a model, or not searched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from autotune.database.goal import Saving
from autotune.database.records import Ratio
from autotune.suggest import counted


class State(StrEnum):
    """Why a schedule is used."""

    GIVEN = "given"
    """By the caller."""
    LOCKED = "locked"
    """By a lock file."""
    TUNED = "tuned"
    """Confirmed faster than the default, inside a model, interleaved with it."""
    UNCONFIRMED = "unconfirmed"
    """Clearly faster than the default where a search read it inside a model; not compared with it yet."""
    SMALLER = "smaller"
    """Asked for memory or size: takes less than the fastest, and a comparison showed it within the allowed slowdown."""
    SMALLER_UNCONFIRMED = "smaller, unconfirmed"
    """The same by readings of a search inside a model, or by a comparison whose interval is not all within it."""
    CONFIRMED = "default confirmed"
    """The default; candidates were compared with it inside a model, and none was faster."""
    TRIED = "default after trials"
    """The default; candidates were read, and none of them was compared with it inside a model."""
    ONLY = "default, the only one"
    """There is nothing to choose."""
    TRANSFERRED = "transferred"
    """Found for another target, for other sizes or with other code, and expected to be faster here; nothing was
    measured of it here."""
    FAILED = "default, all failed"
    """The default; what was measured, itself included, failed."""
    DEFAULT = "default"
    """The default; no candidate was measured beside it."""

    @property
    def tuned(self) -> bool:
        """Return whether the schedule was confirmed faster than the default."""
        return self is State.TUNED

    @property
    def counted(self) -> str:
        """For lists of how many there are of each."""
        return "default not searched" if self is State.DEFAULT else str(self)


@dataclass(frozen=True)
class Evidence:
    """The evidence for the schedule of a workload.

    ``trials`` counts the candidates measured beside the default, ``ratio`` is the latency inside a model over the
    default's, where the schedule won against it; ``crashed`` of the candidates worked alone but not inside a model.
    ``saving`` says what is saved by it, where it is used for that.
    """

    state: State
    trials: int = 0
    ratio: Ratio | None = None
    crashed: int = 0
    saving: Saving | None = None

    @staticmethod
    def of_saving(saving: Saving, trials: int = 0, crashed: int = 0) -> Evidence:
        """Return the evidence of a schedule that is used for its saving."""
        state = State.SMALLER if saving.confirmed else State.SMALLER_UNCONFIRMED
        return Evidence(state, trials, crashed=crashed, saving=saving)

    def __str__(self) -> str:
        """Return the evidence in words.

        >>> print(Evidence(State.TUNED, 40, Ratio(0.8, (0.78, 0.82))))
        tuned, 1.25× (1.22× to 1.28×)
        >>> print(Evidence(State.TRIED, 1), Evidence(State.DEFAULT), sep="; ")
        default, 1 trial; default, not searched
        >>> print(Evidence(State.TRIED, 9, crashed=1))
        default, 9 trials; 1 crashed inside a model
        """
        return self._found + (f"; {self.crashed} crashed inside a model" if self.crashed else "")

    @property
    def _found(self) -> str:
        trials = counted(self.trials, "trial")
        match self.state:
            case State.TUNED:
                return f"tuned, {self.ratio}"
            case State.SMALLER | State.SMALLER_UNCONFIRMED:
                return f"smaller: {self.saving}"
            case State.UNCONFIRMED:
                return f"unconfirmed, {trials}"
            case State.CONFIRMED:
                return "default, confirmed"
            case State.TRIED:
                return f"default, {trials}"
            case State.DEFAULT:
                return "default, not searched"
            case other:
                return str(other)

    @property
    def gain(self) -> str:
        """The confirmed gain, or in words why there is none."""
        return str(self.ratio) if self.state is State.TUNED else str(self)

    def to_json(self) -> dict[str, Any]:
        """Return the state, the trials, and the confirmed gain and the saving, None without one."""
        gain = self.ratio.to_json() if self.ratio is not None and self.ratio.changed else None
        saving = None if self.saving is None else self.saving.to_json()
        return {
            "state": self.state.value,
            "trials": self.trials,
            "crashed": self.crashed,
            "gain": gain,
            "saving": saving,
        }

    @property
    def searched(self) -> bool:
        """Return whether there was a choice to make and candidates were measured for it here, or none to make."""
        return self.state not in (State.FAILED, State.DEFAULT, State.TRANSFERRED)


def tally(states: Iterable[State], share: str = "") -> str:
    """Return how many dispatches are tuned, and how many there are in each other state.

    The only count of what is tuned: of a job, a compilation, a query and an artifact. ``share`` stands behind it.

    >>> tally([State.TUNED, State.DEFAULT, State.TUNED, State.UNCONFIRMED])
    '2 of 4 dispatches tuned; 1 unconfirmed, 1 default not searched'
    """
    count = Counter(states)
    rest = [f"{count[each]} {each.counted}" for each in State if count[each] and not each.tuned]
    tuned = sum(number for each, number in count.items() if each.tuned)
    line = f"{tuned} of {counted(count.total(), 'dispatch')} tuned{share}"
    return "; ".join([line, ", ".join(rest)] if rest else [line])


__all__ = ["Evidence", "State", "tally"]
