"""The model in which candidates are used: versions of it, and what they take."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from autotune.passes.options import Option
from autotune.tuning.compare.paired import Readings, Series
from autotune.tuning.measure.interface import Built

if TYPE_CHECKING:
    from autotune.compiler.plan import Ranking
    from autotune.tuning.measure.gain import Gain
    from autotune.tuning.measure.turns import Rounds

Code = Mapping[str, Built]
"""Built code by workload key; what is not in it gets its default schedule."""
Options = Mapping[str, Option]
"""Options by workload key; what is not in it is computed directly."""


@dataclass(frozen=True)
class Version:
    """One version of the model: its options, its code, and by their kinds the options of sites of the whole model."""

    options: Options
    code: Code
    whole: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Profile:
    """The times of a version: ``ns`` [rounds, dispatches], and the name and workload key of each dispatch.

    ``load``: the processors that other processes took meanwhile, in the mean. ``runs``: how many times a run of the
    model runs each dispatch; none where that is once. ``host`` is the node of a fleet that alone has measured it.
    """

    dispatches: Sequence[tuple[str, str]]
    ns: Readings
    load: float = 0.0
    runs: Sequence[int] = ()
    host: str = ""

    def series(self, workload: str, names: Sequence[str] = ()) -> Series:
        """Return nanoseconds a round of a dispatch: the mean over those called ``names``, each with all of its
        steps, or over those that have the workload."""
        mine = [
            number
            for number, (name, key) in enumerate(self.dispatches)
            if (name.partition("/")[0] in names if names else key == workload)
        ]
        runs = len(names) or (sum(self.runs[number] for number in mine) if self.runs else len(mine))
        return np.asarray(self.ns[:, mine].sum(axis=1) / runs)

    @classmethod
    def of_whole(cls, ns: Series, load: float = 0.0, host: str = "") -> Profile:
        """Return the times of a version that was measured as a whole."""
        return cls((("", ""),), ns[:, None], load, host=host)

    @property
    def whole(self) -> Series:
        """Nanoseconds a round of all dispatches together."""
        return np.asarray(self.ns.sum(axis=1))


def _none_settled(profiles: Sequence[Profile | None]) -> Collection[int]:
    return ()


def _not_told(version: int, reason: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Watch:
    """An observer of interleaved versions; versions are told by their numbers.

    ``settled`` is asked after each process which versions need no more turns, given what was read so far. ``failed``
    is told why a version ended its process.
    """

    settled: Callable[[Sequence[Profile | None]], Collection[int]] = _none_settled
    failed: Callable[[int, str], None] = _not_told


UNWATCHED = Watch()


class Versions(Protocol):
    """A model of which versions are measured."""

    name: str
    most: int
    """The number of versions of it for which there is memory at once."""

    def read(
        self,
        versions: Sequence[Version],
        rounds: Rounds,
        out_of_time: Callable[[], bool],
        watch: Watch = UNWATCHED,
    ) -> list[Profile | None]:
        """Measure versions interleaved; return the times of each, None for one that failed."""


class WholeModel(Versions, Protocol):
    """The model in which options and schedules are used."""

    nbytes: int
    """Of its constants."""

    def rankings(self) -> Mapping[str, Ranking]:
        """Return the options of workloads with several, by workload key: the first of each is what a
        compilation uses now."""

    def gain(self, untuned: Code, tuned: Code, out_of_time: Callable[[], bool]) -> Gain | None:
        """Return the time the whole model untuned, and with the options and schedules used now, in
        several fresh processes.

        None without time for it. ``untuned`` and ``tuned`` are code of defaults and of what is used, as far as built.
        """


__all__ = ["UNWATCHED", "Code", "Options", "Profile", "Version", "Versions", "Watch", "WholeModel"]
