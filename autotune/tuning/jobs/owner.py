"""Owners of jobs: the process that works on one, and whether it still does."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from autotune.database.records import JobRow
from autotune.foreign import parse_json

if TYPE_CHECKING:
    import psutil

HEARTBEAT_S = 2.0
"""A running job says so at most this often."""
SILENT_S = 300.0
"""Longer than any measurement of a model takes between two heartbeats."""


class Life(StrEnum):
    """The state of a job as it is now, whatever its row was left at."""

    DONE = "done"
    STOPPED = "stopped"
    """Ended before its budget, by a signal, a callback or an error."""
    RUNNING = "running"
    WAITING = "waiting"
    """It lives, and waits for another job of the machine to stop measuring."""
    SUSPENDED = "suspended"
    """Its process is stopped by the system (SIGSTOP, Ctrl-Z) and can go on."""
    HUNG = "hung"
    """Its process lives, but was not heard of for minutes."""
    KILLED = "killed"
    """Its process is gone and did not say that it ended."""
    LOST = "lost"
    """It is another host's, where nobody can look for its process, and was not heard of for minutes."""

    @property
    def over(self) -> bool:
        """Return whether nothing works on the job any more, as far as is known."""
        return self in (Life.DONE, Life.STOPPED, Life.KILLED, Life.LOST)


@dataclass(frozen=True)
class Owner:
    """A process that works on a job: ``started`` tells it from a later one, as the system uses process ids again."""

    host: str
    pid: str
    started: str = ""

    @staticmethod
    def here() -> Owner:
        """Return this process."""
        import psutil

        return Owner(platform.node(), str(os.getpid()), f"{psutil.Process().create_time():.2f}")

    @staticmethod
    def parse(text: str) -> Owner:
        """Return the owner in a row of a job; what another version wrote may lack parts.

        >>> Owner.parse("a:b:12:3.50"), Owner.parse("host")
        (Owner(host='a:b', pid='12', started='3.50'), Owner(host='host', pid='', started=''))
        """
        host, *rest = text.rsplit(":", 2)
        return Owner(host, *rest) if len(rest) == 2 else Owner(text, "")

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}:{self.started}"

    @property
    def is_foreign(self) -> bool:
        """Return whether it belongs to another host."""
        return self.host != platform.node()

    @property
    def process(self) -> psutil.Process | None:
        """Return the process on this host; None if it is gone, or another one has its id."""
        import psutil

        with contextlib.suppress(psutil.Error, ValueError):
            found = psutil.Process(int(self.pid))
            if f"{found.create_time():.2f}" == self.started and found.status() != psutil.STATUS_ZOMBIE:
                return found
        return None

    @property
    def is_suspended(self) -> bool:
        """Return whether the system has stopped the process."""
        import psutil

        with contextlib.suppress(psutil.Error):
            return (process := self.process) is not None and process.status() == psutil.STATUS_STOPPED
        return False


def owner() -> str:
    """Return a name for this process: host, process id and start time."""
    return str(Owner.here())


def alive(name: str) -> bool:
    """Return whether the process that :func:`owner` named still runs; one on another host counts as running."""
    found = Owner.parse(name)
    return found.is_foreign or found.process is not None


@dataclass(frozen=True)
class JobState:
    """A job with its state at the time ``now``; ``heard`` is when its process was last heard of."""

    job: JobRow
    life: Life
    heard: float
    now: float

    @property
    def silent_s(self) -> float:
        """Return seconds since it was heard of; 0 where another host's clock is ahead."""
        return max(0.0, self.now - self.heard)

    @property
    def ended(self) -> bool:
        """Return whether it ended by itself, and so has a final report."""
        return self.life in (Life.DONE, Life.STOPPED)

    @property
    def said(self) -> Mapping[str, Any]:
        """Return what the job last said of itself; empty of versions that said nothing, and of a damaged row."""
        return said(self.job)

    @property
    def explained(self) -> str:
        """Return what is unusual about the state and what to do; empty for a job that is done or works."""
        who, since = Owner.parse(self.job.owner), ago(self.silent_s)
        match self.life:
            case Life.STOPPED:
                return f"ended {self.said.get('ended') or 'before its budget'}; its command continues it"
            case Life.KILLED:
                return f"process {who.pid} is gone, heard of {since}; its command continues it"
            case Life.LOST:
                return (
                    f"not heard of for {since.removesuffix(' ago')}; look for process {who.pid} on {who.host}"
                )
            case Life.HUNG:
                return f"process {who.pid} lives, but was not heard of for {since.removesuffix(' ago')}"
            case Life.SUSPENDED:
                return f"process {who.pid} is suspended; `kill -CONT {who.pid}` has it go on"
            case Life.WAITING | Life.RUNNING if who.is_foreign:
                return f"on {who.host}, process {who.pid}, heard of {since}"
            case _:
                return ""


def said(job: JobRow) -> Mapping[str, Any]:
    """Return what a job last said of itself."""
    with contextlib.suppress(ValueError):
        found = parse_json(job.status or "{}")
        return found if isinstance(found, dict) else {}
    return {}


def states_of(
    jobs: Iterable[JobRow], now: float | None = None, heard: Mapping[str, float] = MappingProxyType({})
) -> list[JobState]:
    """Return the state of each of some jobs of a database; ``heard``: when the owners of others were heard of last.

    A process may own several, of which the one that it works on is heard of.
    """
    rows, now, last = list(jobs), time.time() if now is None else now, dict(heard)
    for job in rows:
        last[job.owner] = max(last.get(job.owner, 0.0), job.updated)
    return [_state(job, last[job.owner], now) for job in rows]


def _state(job: JobRow, heard: float, now: float) -> JobState:
    if job.state != JobRow.RUNNING:
        return JobState(job, Life.DONE if job.state == JobRow.DONE else Life.STOPPED, job.updated, now)
    return JobState(job, _life(Owner.parse(job.owner), now - heard > SILENT_S, said(job)), heard, now)


def _life(who: Owner, silent: bool, said: Mapping[str, Any]) -> Life:
    """Return the state of a job whose row says that it runs."""
    working = Life.WAITING if said.get("waiting") else Life.RUNNING
    if who.is_foreign:
        return Life.LOST if silent else working
    if who.process is None:
        return Life.KILLED
    if who.is_suspended:
        return Life.SUSPENDED
    return Life.HUNG if silent and working is Life.RUNNING else working


def ago(seconds: float) -> str:
    """Return how long ago something was.

    >>> ago(3), ago(75), ago(4000), ago(2e5)
    ('3 s ago', '1 min ago', '1 h 06 min ago', '2 d 7 h ago')
    """
    if seconds < 60:
        return f"{seconds:.0f} s ago"
    hours, minutes = divmod(int(seconds) // 60, 60)
    days, rest = divmod(hours, 24)
    if days:
        return f"{days} d {rest} h ago"
    return f"{hours} h {minutes:02} min ago" if hours else f"{minutes} min ago"


__all__ = [
    "HEARTBEAT_S",
    "SILENT_S",
    "JobState",
    "Life",
    "Owner",
    "ago",
    "alive",
    "owner",
    "said",
    "states_of",
]
