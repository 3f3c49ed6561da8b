"""The processor time that control groups (cgroups) leave to this process, in both versions of the interface.

A group can use no more than its own quota, and all groups that hold it can use no more than theirs: the least counts.
In a container the files that are seen are those of the container's group and below; quotas above it are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple


class _Hierarchy(NamedTuple):
    """A tree of groups with the cpu controller, as it is mounted here."""

    version: int
    mounted: Path
    root: PurePosixPath
    """The group that is seen at ``mounted``: in a container perhaps not the root of the tree."""


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Cores' worth of time that this process may use, such as 1.5; None without a limit.

    ``root`` is where the files of the system are.
    """
    try:
        memberships = (root / "proc/self/cgroup").read_text()
        limited = _limited(root, memberships)
    except OSError:
        return None  # no Linux: nothing is known of a limit
    quotas = (_quota(folder, version) for folder, version in limited)
    return min((quota for quota in quotas if quota is not None), default=None)


@lru_cache(maxsize=16)
def _limited(root: Path, memberships: str) -> tuple[tuple[Path, int], ...]:
    """The folders of the groups that limit a process of such memberships, with the version of their interface.

    They are looked for once: quotas change while a process runs, where groups are mounted does not.
    """
    groups = dict(filter(None, map(_membership, memberships.splitlines())))
    mounts = (root / "proc/self/mountinfo").read_text().splitlines()
    return tuple(
        (folder, hierarchy.version)
        for hierarchy in filter(None, (_hierarchy(line, root) for line in mounts))
        for folder in _folders(hierarchy, groups.get(hierarchy.version))
    )


def _membership(line: str) -> tuple[int, PurePosixPath] | None:
    """Version and group of a line ``number:controllers:group``; None for a tree without the cpu controller."""
    _, controllers, group = line.split(":", 2)
    if controllers and "cpu" not in controllers.split(","):
        return None
    return (1 if controllers else 2), PurePosixPath(group)


def _hierarchy(line: str, root: Path) -> _Hierarchy | None:
    """What a line of ``mountinfo`` mounts, if it is a tree of groups that may have quotas."""
    place, _, kind = line.partition(" - ")
    system, *_, options = kind.split()
    seen, mounted = place.split()[3:5]
    if system == "cgroup2":
        version = 2
    elif system == "cgroup" and "cpu" in options.split(","):
        version = 1
    else:
        return None
    return _Hierarchy(version, root / mounted.lstrip("/"), PurePosixPath(seen))


def _folders(hierarchy: _Hierarchy, group: PurePosixPath | None) -> Iterator[Path]:
    """The folder of the process's group and those of the groups that hold it, as far as they are mounted."""
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


__all__ = ["cpu_quota"]
