"""Cores that a name of a CPU device means: all, a part of them, a NUMA node, or those that it lists."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from functools import cache
from pathlib import Path

from autotune.errors import UsageError
from autotune.hardware import usable_cores
from autotune.suggest import counted

_SYSTEM = Path("/sys/devices/system")
_NAME = re.compile(r"cpu(?::(?P<part>\d+)|\[(?:node(?P<node>\d+)|(?P<list>[\d,-]+))\])?")


def core_ids() -> tuple[int, ...]:
    """Return cores that this process may use, such that those that share a core's units or a socket are neighbours."""
    try:
        ids = os.sched_getaffinity(0)
    except AttributeError:  # not Linux
        ids = set(range(os.cpu_count() or 1))
    return tuple(sorted(ids, key=lambda core: (*_place(core), core)))


def parts() -> tuple[tuple[int, ...], ...]:
    """Return the cores of ``cpu:0``, ``cpu:1``, ...: one part a NUMA node, or the halves of the only node.

    A single core has no halves.
    """
    ids = core_ids()
    nodes = {node: tuple(core for core in ids if core in cores) for node, cores in numa_nodes().items()}
    used = tuple(cores for cores in nodes.values() if cores)
    if len(used) > 1:
        return used
    half = (len(ids) + 1) // 2
    return tuple(part for part in (ids[:half], ids[half:]) if part)


def cores_of(name: str) -> tuple[int, ...] | None:
    """Return the cores that a name means; None where it names none. Raises UsageError for cores that cannot be used.

    ``cpu``, ``cpu:1``, ``cpu[0-3,8]``, ``cpu[node1]``.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    if found["part"] is not None:
        number, known = int(found["part"]), parts()
        return known[number] if number < len(known) else None
    if found["node"] is not None:
        asked = set(numa_nodes().get(int(found["node"]), ()))
    elif found["list"] is not None:
        asked = parse_list(found["list"])
    else:
        return core_ids()
    cores = tuple(core for core in core_ids() if core in asked)
    if not asked or len(cores) < len(asked):
        usable = ", ".join(map(str, sorted(core_ids())))
        raise UsageError(f"{name} is not among the cores of this process: it may use {usable}")
    return cores


def workers_of(cores: tuple[int, ...]) -> int:
    """Return workers for some cores: one each, unless the time that this process may use does for fewer."""
    return max(1, min(len(cores), usable_cores() * len(cores) // len(core_ids())))


def described(cores: tuple[int, ...]) -> str:
    """Return their number and list.

    >>> described((0, 1, 2, 5))
    '4 cores: 0-2, 5'
    """
    return f"{counted(len(cores), 'core')}: {ranges(cores)}"


def ranges(cores: Collection[int]) -> str:
    """Return the list in a few words.

    >>> ranges((5, 0, 1, 2))
    '0-2, 5'
    """
    found: list[list[int]] = []
    for core in sorted(cores):
        if found and found[-1][-1] == core - 1:
            found[-1][1:] = [core]
        else:
            found.append([core])
    return ", ".join("-".join(map(str, each)) for each in found)


def parse_list(text: str) -> set[int]:
    """Return cores of a list as Linux writes it; empty for what is none.

    >>> sorted(parse_list("0-2,5"))
    [0, 1, 2, 5]
    """
    cores: set[int] = set()
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not first.isdigit() or not last.isdigit() or int(last) - int(first) > 1 << 16:
            return set()
        cores.update(range(int(first), int(last) + 1))
    return cores


@cache
def numa_nodes() -> dict[int, frozenset[int]]:
    """Return the cores of each NUMA node, as Linux tells; empty where it does not."""
    found = {}
    for folder in sorted((_SYSTEM / "node").glob("node[0-9]*")):
        try:
            found[int(folder.name[4:])] = frozenset(parse_list((folder / "cpulist").read_text()))
        except (OSError, ValueError):
            continue
    return found


@cache
def _place(core: int) -> tuple[int, int]:
    """Return the socket and physical core, where the system tells."""
    folder = _SYSTEM / f"cpu/cpu{core}/topology"
    try:
        return int((folder / "physical_package_id").read_text()), int((folder / "core_id").read_text())
    except (OSError, ValueError):
        return 0, core


__all__ = ["core_ids", "cores_of", "described", "numa_nodes", "parse_list", "parts", "ranges", "workers_of"]
