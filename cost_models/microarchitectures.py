"""A table of processors, which the cost model uses where nothing is measured.

Widths are bytes a cycle, so that they hold for vectors of any size. Ports, latencies and widths: the optimisation
manuals of Intel (248966) and AMD (56305, 56665, 57647, 58455), of Arm for Neoverse N1 (PJDOC-466751330-9707), and
uops.info (Abel and Reineke, ASPLOS 2019). Rates of caches and memory are what loops reach, not what links could.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Core:
    """``arithmetic``, ``pairs`` (products of pairs of bfloat16 numbers: vdpbf16ps), ``loads`` and ``stores`` are bytes
    a cycle of vectors, at most two (stores one) of them.

    Clock under multiply-adds in hertz, latency of one in cycles, cache rates in bytes a cycle of one core; ``window``
    are entries of the reorder buffer; ``l3_kept`` is the share of the last cache in which the data of the run before is
    found again, ``memory`` bytes a cycle of all cores together. What has the name of a field of Machine is that.
    """

    hertz: float = 2.6e9
    arithmetic: int = 128
    pairs: int = 32
    loads: int = 128
    stores: int = 64
    issue_width: float = 4.0
    latency: float = 4.0
    window: float = 224.0
    l2: float = 32.0
    l3: float = 12.0
    write_cost: float = 2.0
    l3_lost: float = 1.0
    short_run: float = 256.0
    scattered: float = 0.65
    line_split_cycles: float = 1.1
    page_cycles: float = 2.5
    conflict_cycles: float = 4.0
    fold_cycles: float = 6.0
    l3_kept: float = 1.0
    core_stream: float = 4.0
    all_streams: float = 6.2
    memory: float = 4.5
    fetched_cost: float = 0.88


_SKYLAKE_SERVER = Core()
CORES: Mapping[str, Core] = MappingProxyType(
    {
        "skylake-avx512": _SKYLAKE_SERVER,
        "cascadelake": _SKYLAKE_SERVER,
        "cooperlake": _SKYLAKE_SERVER,
        "icelake-client": Core(hertz=2.9e9, issue_width=5.0, window=352.0, l2=40.0, l3=12.0),
        "icelake-server": Core(hertz=2.9e9, issue_width=5.0, window=352.0, l2=40.0, l3=10.0),
        "sapphirerapids": Core(hertz=2.9e9, issue_width=6.0, window=512.0, l2=40.0, l3=10.0),
        "haswell": Core(hertz=2.8e9, arithmetic=64, loads=64, stores=32, latency=5.0, window=192.0, l2=28.0),
        "broadwell": Core(
            hertz=2.8e9, arithmetic=64, loads=64, stores=32, latency=5.0, window=192.0, l2=28.0
        ),
        "skylake": Core(hertz=3.2e9, arithmetic=64, loads=64, stores=32, l2=32.0, l3=16.0),
        "znver2": Core(
            hertz=3.2e9,
            arithmetic=64,
            loads=64,
            stores=32,
            issue_width=6.0,
            latency=5.0,
            l3=18.0,
            write_cost=1.0,
            l3_lost=0.3,
        ),
        "znver3": Core(
            hertz=3.4e9,
            arithmetic=64,
            loads=64,
            stores=32,
            issue_width=6.0,
            window=256.0,
            l3=22.0,
            write_cost=1.0,
            l3_lost=0.3,
        ),
        "znver4": Core(
            hertz=3.6e9,
            arithmetic=64,
            pairs=64,
            loads=64,
            stores=32,
            issue_width=6.0,
            window=320.0,
            l2=31.0,
            l3=26.0,
            write_cost=1.0,
            l3_lost=0.12,
            short_run=480.0,
            scattered=1.25,
            line_split_cycles=0.05,
            page_cycles=1.5,
            conflict_cycles=4.8,
            fold_cycles=5.0,
            l3_kept=0.5,
            core_stream=9.8,
            all_streams=9.8,
            memory=9.8,
            fetched_cost=1.15,
        ),
        "znver5": Core(
            hertz=4.2e9,
            arithmetic=128,
            pairs=128,
            loads=128,
            stores=64,
            issue_width=7.5,
            window=448.0,
            l2=63.0,
            l3=27.0,
            write_cost=1.0,
            l3_lost=0.12,
            short_run=20.0,
            scattered=0.05,
            line_split_cycles=0.5,
            page_cycles=0.4,
            conflict_cycles=5.5,
            fold_cycles=3.1,
            l3_kept=0.5,
            core_stream=13.0,
            all_streams=16.0,
            memory=16.0,
            fetched_cost=1.15,
        ),
    }
)
"""By the name that LLVM has for the processor."""
_GENERIC: Mapping[str, Core] = MappingProxyType(
    {"aarch64": Core(hertz=2.5e9, arithmetic=32, loads=32, stores=32)}
)
"""By architecture, where the processor is none of those above or a mere level."""


def core_of(cpu: str, arch: str) -> Core:
    """Return the table's entry of a processor, else of its architecture."""
    return CORES.get(cpu) or _GENERIC.get(arch, _SKYLAKE_SERVER)


__all__ = ["CORES", "Core", "core_of"]
