"""The loop of a job on a fleet: as many actions concurrently as keep the seats busy."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import ParamSpec

from autotune.tuning.fleet.fleet import Fleet
from autotune.tuning.jobs.actions import BUILDING, Action, ActionKind
from autotune.tuning.jobs.loop import TuningLoop, Turn
from autotune.tuning.jobs.worth import BATCH
from autotune.tuning.measure.interface import Built

P = ParamSpec("P")

_MOST = 256
"""Actions under way: each is a thread."""
_SHARED = 4
"""Batches of candidates that are measured in the model together, while others are."""
_LOW = 0.75
"""With less than this part of what seats want under way, actions are begun until all of it is: a ranking is as much
work as a few of them."""


@dataclass(eq=False)
class _UnderWay:
    """An action with its candidates: those that are to be measured alone, and in the model."""

    action: Action
    turns: Sequence[Turn] = ()
    claimed: Sequence[tuple[Turn, Built]] = ()
    coming: int = 0
    """Messages that will be made of the former."""


@dataclass(kw_only=True)
class FleetLoop(TuningLoop):
    """A tuning loop whose actions are lanes: while one waits for seats, the next is chosen and begun.

    What an action does and how the next one is chosen is that of any job. Nothing is compared or proposed twice at the
    same time.
    """

    fleet: Fleet
    _under_way: list[_UnderWay] = field(default_factory=list)
    _told: deque[Callable[[], None]] = field(default_factory=deque)
    """Calls that the thread of the job is to make."""
    _lanes_ended: bool = False

    def _turns(self, builder: Executor) -> None:
        lanes = self.fleet.lanes
        self.measured, self.left_out = self._afterwards(self.measured), self._afterwards(self.left_out)
        self.say = self._afterwards(self.say)
        for seat in self.seats.values():
            seat.comparing.say = self._afterwards(seat.comparing.say)
        try:
            while True:
                self._tell_all()
                self.before_turn()
                running, begun = lanes.running, self._begin_several()
                if begun:
                    self._until(partial(self._hungry, _LOW))
                elif running:
                    self._until(partial(self._fewer_than, running))
                elif begun is None:
                    return
        finally:
            lanes.close()
            self._lanes_ended = True
            self._tell_all()

    def _afterwards(self, call: Callable[P, None]) -> Callable[P, None]:
        """Have the thread of the job make a call, as users' callbacks expect: as soon as it waits for nothing else."""

        def later(*args: P.args, **kwargs: P.kwargs) -> None:
            self._told.append(partial(call, *args, **kwargs))
            if self._lanes_ended:
                self._tell_all()

        return later

    def _tell_all(self) -> None:
        while self._told:
            self._told.popleft()()

    def _until(self, ready: Callable[[], bool]) -> None:
        while True:
            self.fleet.lanes.until(lambda: bool(self._told) or ready())
            if not self._told:
                return
            self._tell_all()

    def _hungry(self, part: float = 1.0) -> bool:
        """Return whether less than this part of what seats want is under way, and of the actions that may be."""
        coming = sum(each.coming for each in self._under_way)
        return self.fleet.lanes.running < part * self._most_lanes and self.fleet.hungry(coming, part)

    def _fewer_than(self, running: int) -> bool:
        return self.fleet.lanes.running < running

    @property
    def _most_lanes(self) -> int:
        return min(_MOST, 2 + len(self.fleet.ready))

    @property
    def _building(self) -> list[Turn]:
        """Return the candidates that are under way."""
        return [turn for each in self._under_way for turn in each.turns]

    def _ranked(self) -> Iterator[Action]:
        """Yield what comes next: what is under way counts for a search, and cannot be measured in the model yet."""
        building = self._building
        limits = self._limits(building)
        if limits is None:
            return
        claimed = [turn for each in self._under_way for turn, _ in each.claimed]
        self.policy.building = Counter(turn.task.workload.key for turn in (*building, *claimed))
        waiting = Counter(turn.task.workload.key for turn, _ in self.waiting)
        if claimed and waiting.total() < _SHARED * BATCH:
            waiting.clear()  # a version has a candidate of each workload: with more of them a process measures more
        yield from self.policy.ranked(waiting, *limits[1:])

    def _begin_several(self) -> bool | None:
        """Begin what comes next, as long as seats want more; return if anything was begun, None if nothing is left."""
        begun = None
        for action in self._ranked():
            begun = self._begin(action) or bool(begun)
            if not self._hungry():
                break
        return begun

    def _begin(self, action: Action) -> bool:
        """Begin an action in a lane of its own; False where it has nothing to do."""
        mine = _UnderWay(action)
        if action.work in BUILDING:
            mine.turns = self.ask(action, self._building)
            mine.coming = len(mine.turns)
            if not mine.turns:
                self._dry |= {task.workload.key for task in action.tasks if not task.untried}
                return False
        elif action.work is ActionKind.MEASURE:
            mine.claimed = self.claim(action.model)
        self.chosen(action)
        self._under_way.append(mine)
        self.policy.begin(action)
        self.fleet.lanes.start(partial(self._lane, mine))
        return True

    def _lane(self, mine: _UnderWay) -> None:
        begin = self.meter.session_s
        try:
            if mine.turns:
                built = self.measurer.build([turn.task.candidate(turn.config) for turn in mine.turns])
                mine.coming = 0
                self._take_all(mine.turns, built)
            elif mine.claimed:
                self.read(mine.action.model, mine.claimed)
            else:
                self._do(mine.action, None)
        finally:
            self._under_way.remove(mine)
            self.policy.end(mine.action)
        self.policy.took(mine.action, self.meter.session_s - begin)


__all__ = ["FleetLoop"]
