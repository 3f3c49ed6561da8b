"""What the operating system says of this machine: cores that may be used, caches, the processor's name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from autotune.errors import UsageError
from autotune.quota import cpu_quota
from autotune.suggest import counted


def usable_cores() -> int:
    """Cores that this process may use: affinity mask and cgroup quotas respected.

    A quota of 1.5 counts as one core: two workers would both be halted for a quarter of the time.
    """
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        cores = os.cpu_count() or 1
    quota = cpu_quota()
    return cores if quota is None else min(cores, max(1, int(quota)))


def check_threads(threads: int, *, allow_oversubscription: bool) -> None:
    """Refuse more threads than cores that this process may use, unless that is allowed. Raises UsageError."""
    cores = usable_cores()
    if threads > cores and not allow_oversubscription:
        raise UsageError(
            f"{threads} threads were asked for, but this process may use {counted(cores, 'core')}\n"
            f"  threads that take turns on a core wait for each other: use at most {cores}, or allow it by "
            "--allow-oversubscription (in Python allow_oversubscription=True)"
        )


@cache
def cache_sizes() -> Mapping[int, int]:
    """Data and unified cache sizes by level, from sysfs; empty where the kernel does not tell."""
    sizes: dict[int, int] = {}
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            if (index / "type").read_text().strip() == "Instruction":
                continue
            text = (index / "size").read_text().strip()
            unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1], 1)
            sizes[int((index / "level").read_text())] = int(text.rstrip("KM")) * unit
        except (OSError, ValueError):
            continue
    return MappingProxyType(sizes)


@cache
def device_name() -> str:
    """The processor's own name, for provenance and the key."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return " ".join(line.split(":", 1)[1].split())
    except OSError:
        pass
    import platform

    return platform.processor() or platform.machine()


__all__ = ["cache_sizes", "check_threads", "device_name", "usable_cores"]
