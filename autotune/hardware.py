"""What the operating system says of this machine: cores that may be used, caches, the processor's name."""

from __future__ import annotations

import os
from pathlib import Path


def usable_cores() -> int:
    """Cores that this process may use: affinity mask and cgroup quota respected."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        cores = os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            cores = min(cores, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass  # no cgroup v2 here: the affinity mask is all there is to know
    return cores


def cache_sizes() -> dict[int, int]:
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
    return sizes


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


__all__ = ["cache_sizes", "device_name", "usable_cores"]
