"""Facts of this machine by the operating system: cores that may be used, caches, the processor's name."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from autotune.errors import UsageError
from autotune.quota import cpu_quota, memory_limit
from autotune.suggest import counted


def usable_cores() -> int:
    """Return cores that this process may use: affinity mask and cgroup quotas respected.

    A quota of 1.5 counts as one core: two workers would both be halted for a quarter of the time.
    """
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        cores = os.cpu_count() or 1
    quota = cpu_quota()
    return cores if quota is None else min(cores, max(1, int(quota)))


def busy_s() -> float:
    """Return seconds that the processors that this process may use were busy so far, whoever took them: stolen time,
    which a hypervisor gave to others, is busy too. 0 where the system does not tell."""
    # user nice system idle iowait irq softirq steal (proc_stat(5)); what guests take is user's
    return _processor_s((1, 2, 3, 6, 7, 8))


def stolen_s() -> float:
    """Return the seconds of these that a hypervisor gave to others."""
    return _processor_s((8,))


def _processor_s(fields: tuple[int, ...]) -> float:
    """Return the sum of some fields of the processors that this process may use."""
    try:
        mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        lines = [
            line.split() for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu")
        ]
        ticks = sum(int(line[n]) for line in lines if line[0] in mine for n in fields)
        return ticks / os.sysconf("SC_CLK_TCK")
    except (AttributeError, OSError):  # not Linux
        return 0.0


def check_threads(threads: int, *, allow_oversubscription: bool) -> None:
    """Refuse more threads than cores that this process may use, unless that is allowed. Raises UsageError."""
    cores = usable_cores()
    if threads > cores and not allow_oversubscription:
        raise UsageError(
            f"{threads} threads were requested, but this process may use {counted(cores, 'core')}\n"
            f"  threads that share a core wait for each other: use at most {cores}, or allow it by "
            "--allow-oversubscription (in Python allow_oversubscription=True)"
        )


def usable_memory() -> int:
    """Return bytes of memory that this process may use at most: the machine's, or what its cgroups leave it."""
    limit = memory_limit()
    return _memory() if limit is None else min(_memory(), limit)


@cache
def _memory() -> int:
    """Return bytes of memory of this machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not Linux
        import psutil

        return int(psutil.virtual_memory().total)


@cache
def cache_sizes() -> Mapping[int, int]:
    """Return data and unified cache sizes by level, from sysfs; empty where the kernel does not tell."""
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
def architecture() -> str:
    """Return the architecture of this process's machine code, by LLVM's name."""
    machine = os.uname().machine if hasattr(os, "uname") else os.environ.get("PROCESSOR_ARCHITECTURE", "")
    return {"AMD64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


@cache
def device_name() -> str:
    """Return the processor's own name, for provenance and the key."""
    name = _first_processor().get("model name")
    if name:
        return " ".join(name.split())
    import platform

    return platform.processor() or platform.machine()


_FLAGS = {
    "x86_64": {
        "sse4_2": "sse4.2",
        "avx512_vnni": "avx512vnni",
        "avx512_bf16": "avx512bf16",
        "avx_vnni": "avxvnni",
        "amx_bf16": "amx-bf16",
        "amx_fp16": "amx-fp16",
        "amx_int8": "amx-int8",
        "amx_tile": "amx-tile",
    },
    "aarch64": {"asimd": "neon", "asimddp": "dotprod"},
}
"""LLVM's names of instruction sets that Linux calls something else."""


@cache
def instruction_sets() -> frozenset[str]:
    """Return the instruction sets that this processor has and the system lets processes use, by LLVM's names.

    Empty where the system does not tell: what /proc/cpuinfo says is read, as Linux has it.
    """
    processor = _first_processor()
    names = _FLAGS.get(architecture(), {})
    flags = processor.get("flags") or processor.get("Features") or ""
    return frozenset(permitted(names.get(flag, flag) for flag in flags.split()))


_TILES = "amx-"
"""Start of the names of instruction sets that need the state of tile registers."""

_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA = 158, 0x1023, 18
"""System call, ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA of Linux (Documentation/arch/x86/xstate.rst)."""


def permitted(features: Iterable[str]) -> list[str]:
    """Return those instruction sets of a processor that this process may use: tiles need the system's consent."""
    known = list(features)
    refused = any(name.startswith(_TILES) for name in known) and not tiles_permitted()
    return [name for name in known if not (refused and name.startswith(_TILES))]


@cache
def tiles_permitted() -> bool:
    """Return whether the system lets this process use tile registers, which it is asked for; once a process.

    All threads share the answer, later ones and forked processes too. A processor without tiles is refused.
    """
    if not hasattr(os, "uname") or os.uname().sysname != "Linux" or architecture() != "x86_64":
        return False
    return not ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA)


@cache
def _first_processor() -> Mapping[str, str]:
    """Return the fields of /proc/cpuinfo of the first processor; empty where there is no such file."""
    found: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, colon, value = line.partition(":")
                if not colon and found:
                    break
                found[name.strip()] = value.strip()
    except OSError:
        pass
    return MappingProxyType(found)


__all__ = [
    "architecture",
    "busy_s",
    "cache_sizes",
    "check_threads",
    "device_name",
    "instruction_sets",
    "permitted",
    "tiles_permitted",
    "usable_cores",
    "usable_memory",
]
