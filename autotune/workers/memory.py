"""Memory that a worker holds, seen from inside and from outside."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_ENOUGH = 0.6
"""Who has taken this part of what it may take, and ends, ended for want of memory: between two looks a process
takes gigabytes."""
_GREEDY, _LOOKS = 256 << 20, 10
"""Who has taken so many bytes, and took more within the last looks, would have gone on."""


def address_space() -> int:
    """Return bytes of this process's address space; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def taken_memory(pid: int) -> int:
    """Return bytes of memory that a process has of its own; 0 where the system does not tell.

    Of its address space most may be reserved only: stacks and heaps of threads take gigabytes of that on many cores.
    """
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def killed_for_memory() -> int:
    """Return the number of processes that the system has killed because memory ran out; 0 where it does not tell."""
    try:
        rows = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    except (OSError, ValueError):
        return 0
    return int(rows.get("oom_kill", 0))


@contextlib.contextmanager
def allowance(nbytes: int | None) -> Iterator[None]:
    """Allow this process ``nbytes`` more than it has within the block: a greedy candidate gets MemoryError at once,
    and not the whole machine after a while."""
    now = address_space()
    if nbytes is None or not now:
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = now + nbytes
    if soft != resource.RLIM_INFINITY:
        limit = min(limit, soft)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class Appetite:
    """Memory that a process takes during one request; ``allowed`` is its limit, None for no limit. ``kills`` is what
    :func:`killed_for_memory` said before."""

    def __init__(self, pid: int, allowed: int | None, kills: int) -> None:
        self._pid = pid
        self._allowed = allowed
        self._kills = kills
        self._begin = taken_memory(pid)
        self._seen = [self._begin]

    def look(self) -> None:
        """Take note of what it holds now."""
        self._seen.append(taken_memory(self._pid))

    def of_death(self, *, killed: bool) -> str:
        """Return the reason why memory was what ended it, or nothing; ``killed`` if by a SIGKILL that was not ours."""
        if killed and killed_for_memory() > self._kills:
            return "the system killed it because its memory ran out"
        return self._had_taken(_ENOUGH * self._allowed) if self._allowed is not None else ""

    def of_hanging(self) -> str:
        """Return the reason why no time would have been enough: it took more and more memory."""
        growing = self._seen[-1] > self._seen[-_LOOKS:][0]
        return (self._had_taken(_GREEDY) if growing else "") or self.of_death(killed=False)

    def _had_taken(self, least: float) -> str:
        taken = max(self._seen) - self._begin
        limit = f" of the {self._allowed / 2**30:.1f} it may take" if self._allowed is not None else ""
        return f"it had taken {taken / 2**30:.1f} GiB{limit}" if taken >= least else ""


__all__ = ["Appetite", "address_space", "allowance", "killed_for_memory", "taken_memory"]
