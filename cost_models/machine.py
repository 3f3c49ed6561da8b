"""What the analytic model assumes of a core, derived from the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.target import Target


@dataclass(frozen=True)
class Machine:
    """Rates per core and cycle, latencies in cycles, capacities and bandwidths in bytes.

    The rates are those that out-of-order x86 cores with two vector ports share (Skylake and Zen 2 on); only
    ratios matter for ranking. ``l3`` and ``memory`` bandwidths are for the whole machine. ``core_stream`` and
    ``all_streams`` are bytes a cycle of operands that are only read and in no cache: of one core, and of all together.
    """

    hertz: float = 2.6e9
    arithmetic_ports: float = 2.0
    load_ports: float = 2.0
    store_ports: float = 1.0
    issue_width: float = 4.0
    port_conflict: float = 0.6
    latency: float = 4.0
    step_overhead: float = 1.5
    l2_bytes_per_cycle: float = 32.0
    l3_bytes_per_cycle: float = 12.0
    memory_bytes_per_cycle: float = 4.5
    core_stream: float = 4.0
    all_streams: float = 6.2
    l1: float = 32 << 10
    l2: float = 1 << 20
    l3: float = 8 << 20
    threads: int = 1
    registers: int = 16
    spill_cycles: float = 4.0
    exposed: float = 0.25
    l3_exposed: float = 0.5
    kernel_seconds: float = 1.0e-6
    tile_seconds: float = 60e-9
    jitter: float = 0.1
    fork_seconds: float = 1.5e-6
    instruction_cache: float = 1500.0

    @staticmethod
    def of(target: Target) -> Machine:
        """The assumptions for ``target``: its caches, threads and registers."""
        return Machine(
            l1=float(target.l1_bytes),
            # Pages lie in it where they happen to, and streams pass through: half of it keeps what it is given.
            l2=0.5 * target.l2_bytes,
            l3=float(target.l3_bytes),
            threads=target.threads,
            registers=target.registers,
            step_overhead=1.5 if target.vector_bits >= 512 else 1.0,
        )


__all__ = ["Machine"]
