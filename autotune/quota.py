"""The processor time and memory that control groups (cgroups) leave to this process, in both versions of the interface.

A group can use no more than its own limit, and all groups that hold it can use no more than theirs: the least counts.
In a container the files that are seen are those of the container's group and below; limits above it are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeVar

_Limit = TypeVar("_Limit", int, float)

_UNLIMITED = 1 << 60
"""Bytes: version 1 writes a number near 2^63 for no limit."""


class _Hierarchy(NamedTuple):
    """A tree of groups with some controller, as it is mounted here."""

    version: int
    mounted: Path
    root: PurePosixPath
    """The group that is seen at ``mounted``: in a container perhaps not the root of the tree."""


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return cores' worth of time that this process may use, such as 1.5; None without a limit.

    ``root`` is where the files of the system are.
    """
    return _least(root, "cpu", _quota)


def memory_limit(root: Path = Path("/")) -> int | None:
    """Return bytes that this process and those of its groups may use together; None without a limit.

    ``root`` is where the files of the system are.
    """
    return _least(root, "memory", _memory)


def _least(root: Path, controller: str, read: Callable[[Path, int], _Limit | None]) -> _Limit | None:
    """Return the least limit of the groups that this process is in."""
    try:
        memberships = (root / "proc/self/cgroup").read_text()
        limited = _limited(root, memberships, controller)
    except OSError:
        return None  # no Linux: nothing is known of a limit
    limits = (read(folder, version) for folder, version in limited)
    return min((limit for limit in limits if limit is not None), default=None)


@lru_cache(maxsize=16)
def _limited(root: Path, memberships: str, controller: str) -> tuple[tuple[Path, int], ...]:
    """Return the folders of the groups that limit a process of such memberships, with the version of their interface.

    They are looked for once: limits change while a process runs, where groups are mounted does not.
    """
    groups = dict(filter(None, (_membership(line, controller) for line in memberships.splitlines())))
    mounts = (root / "proc/self/mountinfo").read_text().splitlines()
    return tuple(
        (folder, hierarchy.version)
        for hierarchy in filter(None, (_hierarchy(line, root, controller) for line in mounts))
        for folder in _folders(hierarchy, groups.get(hierarchy.version))
    )


def _membership(line: str, controller: str) -> tuple[int, PurePosixPath] | None:
    """Return the version and group of a line ``number:controllers:group``; None for a tree without that controller."""
    _, controllers, group = line.split(":", 2)
    if controllers and controller not in controllers.split(","):
        return None
    return (1 if controllers else 2), PurePosixPath(group)


def _hierarchy(line: str, root: Path, controller: str) -> _Hierarchy | None:
    """Return the hierarchy that a line of ``mountinfo`` mounts, if it is a tree of groups that may have such limits."""
    place, _, kind = line.partition(" - ")
    system, *_, options = kind.split()
    seen, mounted = place.split()[3:5]
    if system == "cgroup2":
        version = 2
    elif system == "cgroup" and controller in options.split(","):
        version = 1
    else:
        return None
    return _Hierarchy(version, root / mounted.lstrip("/"), PurePosixPath(seen))


def _folders(hierarchy: _Hierarchy, group: PurePosixPath | None) -> Iterator[Path]:
    """Yield the folder of the process's group and those of the groups that hold it, as far as they are mounted."""
    inside = PurePosixPath()
    if group and group.is_relative_to(hierarchy.root) and ".." not in group.parts:
        inside = group.relative_to(hierarchy.root)
    for part in (inside, *inside.parents):
        yield hierarchy.mounted / part


def _quota(folder: Path, version: int) -> float | None:
    try:
        if version == 2:
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        limit = int(quota) / int(period)
    except (OSError, ValueError):  # the root has no such file, and "max" is no number
        return None
    return limit if limit > 0 else None  # version 1 writes -1 for no limit


def _memory(folder: Path, version: int) -> int | None:
    try:
        limit = int((folder / ("memory.max" if version == 2 else "memory.limit_in_bytes")).read_text())
    except (OSError, ValueError):  # the root has no such file, and "max" is no number
        return None
    return limit if limit < _UNLIMITED else None


__all__ = ["cpu_quota", "memory_limit"]
