"""Assumptions of the cost model's terms about a machine: numbers that were measured or fitted, and nothing else.

Terms (:mod:`cost_models.terms`) multiply what a loop nest counts by what a machine takes for it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cost_models import calibrated
from cost_models.microarchitectures import core_of

if TYPE_CHECKING:
    from autotune.target import Target


@dataclass(frozen=True)
class Machine:
    """Rates per core and cycle, latencies in cycles, capacities in bytes. Only ratios matter for ranking.

    The defaults are those of Cascade Lake with AVX-512, on which they were fitted. Where a page has the measurements of
    one, its text names the page; results/predictions.md shows how well all of them rank the candidates of each family.
    """

    # The core
    hertz: float = 2.6e9
    """Cycles a second while vector multiply-adds run."""
    arithmetic_ports: float = 2.0
    """Vector multiply-adds a cycle."""
    pair_ports: float = 0.5
    """Products of vectors of pairs of bfloat16 numbers (vdpbf16ps) a cycle: a Xeon with AMX takes 0.54 ns for one, and
    0.13 for a multiply-add."""
    load_ports: float = 2.0
    """Vector loads a cycle from the first-level cache."""
    scalar_load_ports: float = 2.0
    """Loads of single elements a cycle, which may be repeated in all lanes."""
    store_ports: float = 1.0
    """Vector stores a cycle to it."""
    issue_width: float = 4.0
    """Instructions a cycle."""
    port_conflict: float = 0.6
    """Cycles lost for each that arithmetic and loads are both busy."""
    latency: float = 4.0
    """Cycles from a multiply-add to one that needs its result."""
    window: float = 224.0
    """Instructions that a core works on at a time (its reorder buffer)."""
    fold_cycles: float = 6.0
    """Cycles of adding up the lanes of a vector."""
    tile_cycles: float = 16.0
    """Cycles from a product of tiles to the next, where all cores use their matrix units: 16 by Intel's optimization
    manual, chapter on AMX."""
    step_overhead: float = 1.5
    """Cycles of a loop beside its body, a step."""
    registers: int = 16
    """Vector registers by name."""
    register_share: float = 15 / 16
    """Share of them that a body uses before it takes longer: tiles that need all keep them, yet take up to a tenth
    longer (9 x 3 at products of size 300, 14 x 2 at 1000: docs/kernels/matmul.md)."""
    tight_share: float = 0.1
    """Share of its time in the ports that it then takes longer. On a Zen 3 with AVX2 tiles of 4 x 3 and 5 x 2, which
    need all 16, take 0.74 to 0.92 of what smaller ones take in grouped products (docs/convolutions.md)."""
    spill_cycles: float = 4.0
    """Cycles of a step for each register that there is not."""
    kept_share: float = 0.5
    """Share of the loads that serve several iterations of a body which stay in a register in between."""
    kept_registers: float = 6.0
    """Registers that hold such loads, at most."""
    instruction_cache: float = 1500.0
    """Instructions of a body that are fetched as fast as they run."""
    fetch_share: float = 0.5
    """Share of the time in the ports that fetching a body of twice that adds."""

    # The caches and memory
    l1: float = 32 << 10
    """Bytes of the first-level data cache."""
    l1_ways: float = 8.0
    """Lines of it that start at the same place of a page."""
    conflict_cycles: float = 4.0
    """Cycles more of a line that is evicted from it before it was used, as of four times as many as it has ways."""
    l2: float = 1 << 20
    """Bytes of the second-level cache that keep what they are given."""
    l2_of_tiles: float = 1.5 * (1 << 20)
    """The same of factors of tiles: packed ones lie in huge pages, and a block of rows is in one piece. On a Xeon with
    2 MiB, 1024 x 1024 bytes of weights stay with the rows of all blocks (docs/kernels/matmul.md)."""
    l2_whole: float = 1 << 20
    """Its size: data of the run before that is no larger is found again."""
    l3: float = 8 << 20
    """Bytes of the last cache, shared by all cores."""
    l3_whole: float = 8 << 20
    """Bytes of it in which the data of the run before is found again: others use it too. On a Zen 4 with 32 MiB, relu
    finds 16 MiB again and loses most of 32 MiB."""
    l2_bytes_per_cycle: float = 32.0
    """From the second-level cache, of one core."""
    l3_bytes_per_cycle: float = 12.0
    """From the last cache, of one core."""
    memory_bytes_per_cycle: float = 4.5
    """From memory, of all cores together."""
    write_cost: float = 2.0
    """Bytes read from a cache or memory that take as long as one written: it is owned first and written back later."""
    memory_write_cost: float = 2.0
    """The same of memory, where both ways share the links."""
    core_stream: float = 4.0
    """Bytes a cycle of operands that are only read and in no cache, of one core."""
    all_streams: float = 6.2
    """The same of all cores together."""
    l2_latency: float = 14.0
    """Cycles from an address to its value in the second-level cache."""
    l3_latency: float = 70.0
    """The same in the last cache."""
    memory_latency: float = 250.0
    """The same in memory."""
    exposed: float = 0.25
    """Share of the shorter of arithmetic and transfers that the longer does not hide."""
    l3_exposed: float = 0.5
    """Share of the time on the way from the last cache that shows."""
    tiles_exposed: float = 1.0
    """The same share beside products of tiles, of which a core looks few ahead: by hand they take the sum of what both
    take alone (docs/kernels/matmul.md)."""
    vector_ports: float = 2.0
    """Vector instructions of all kinds a cycle."""
    scratch_share: float = 0.7
    """Share of a cache that scratch memory may take before it is evicted."""

    # Lines and pages
    line_split_cycles: float = 1.1
    """Cycles lost by a vector load that crosses a cache line: products of sizes 128 to 320, the operand at multiples
    of a line against 16 bytes beside (docs/kernels/matmul.md)."""
    near_pages: float = 64.0
    """Pages whose addresses the first level of address translation knows."""
    page_cycles: float = 2.5
    """Cycles lost by a load whose page it has forgotten: products of sizes 197 to 1024, packed against not packed
    (docs/kernels/matmul.md)."""

    # Prefetching
    short_run: float = 256.0
    """Bytes of a long run that take as long as finding the beginning of a piece of a row, in addition to its bytes."""
    lost_run: float = 1300.0
    """Bytes of a long run that take as long as the way to a row which no prefetcher knows of."""
    scattered: float = 0.65
    """Share that bytes cost more whose neighbours are visited a page or more later: pools larger than the caches
    (results/memory.md)."""
    streams: float = 16.0
    """Lines that prefetchers follow at a time, each in a page of its own: 32 side by side take longer (transposes of
    results/memory.md)."""
    fetched_cost: float = 0.88
    """The cost of bytes that instructions fetch, across pages too. On a Zen 4 relu and a scaled sum take 1.1 to 1.6
    times as long with it, x * sigmoid(x) as long as without."""
    fetch_reach: float = 2048.0
    """Bytes that a core reads while the first of them are on their way: relu and x * sigmoid(x)."""
    least_reach: float = 256.0
    """Bytes of each of many lines, side by side, that have to be on their way at least: transposes."""
    line_buffers: float = 10.0
    """Lines that a core waits for at a time. An average pool of 3x3 on 143 MiB: tiles of two pixels of four lines take
    0.85 of the latency without fetching ahead, tiles of three 0.91, of five 0.92."""
    restart_cycles: float = 20.0
    """Cycles of a body where runs of channels begin, of which nothing has been prefetched: 3x3x3 convolutions of 14²
    outputs with 256 channels, in blocks of 16, 32 and 64 channels with tiles of 7 and 14 pixels
    (docs/kernels/convolution.md)."""
    run_cycles: float = 2.0
    """Cycles of each of them in addition."""
    resume_cycles: float = 500.0
    """Cycles of a tile that is taken up again for another block of its reduction: operands come from further away, and
    prefetchers start anew. Products of size 1536 and 2048 in blocks of 512 steps: 300 to 600
    (docs/kernels/matmul.md)."""
    l3_lost: float = 1.0
    """Share of what bytes from memory cost beyond a long run's that those from the last cache do."""

    # Libraries
    foreign_cycles: float = 0.15
    """Cycles of a multiply-add of a library's kernel beyond those of our own: of two equals, the one that needs no
    library is the default."""
    pack_cycles: float = 3.0
    """Cycles of an element that a library packs anew in each call: OpenBLAS at products of size 1024, in blocks of
    18 x 128 and 6 x 256 (docs/library-kernels.md)."""

    # Kernels and workers
    threads: int = 1
    """Workers that share a kernel."""
    kernel_seconds: float = 1.0e-6
    """Of a kernel that does nothing."""
    barrier_seconds: float = 0.0
    """Of the wait at its end for all workers, in addition, where several share it."""
    tile_seconds: float = 60e-9
    """Of handing one of several workers its next tile; one alone takes all of them."""
    fork_seconds: float = 1.5e-6
    """Of waking the other workers and waiting for them."""
    jitter: float = 0.1
    """Share of a tile that the slowest worker is behind."""

    @staticmethod
    def of(target: Target) -> Machine:
        """Return the measurements of ``target``, else the table's numbers; its caches, threads and registers."""
        kept = calibrated.find(target)
        return _machine(target, frozenset() if kept is None else frozenset(kept.trusted.items()))


@lru_cache(maxsize=256)
def _machine(target: Target, measured: frozenset[tuple[str, float]]) -> Machine:
    values: dict[str, Any] = dict(measured)
    if "core_stream" in values or "all_streams" in values:
        # One core may not use all that memory gives; what was not steady is the table's.
        core = core_of(target.cpu, target.arch)
        one = values.get("core_stream", core.core_stream)
        every = values.get("all_streams", core.all_streams)
        rate = min(target.threads * one, max(one, every))
        values |= {"all_streams": rate, "memory_bytes_per_cycle": rate}
    known = {field.name for field in fields(Machine)}
    return replace(_from_table(target), **{name: v for name, v in values.items() if name in known})


def _from_table(target: Target) -> Machine:
    core, vector = core_of(target.cpu, target.arch), target.vector_bits // 8
    return Machine(
        hertz=core.hertz,
        arithmetic_ports=min(2.0, core.arithmetic / vector),
        pair_ports=min(2.0, core.pairs / vector),
        load_ports=min(2.0, core.loads / vector),
        store_ports=min(1.0, core.stores / vector),
        issue_width=core.issue_width,
        latency=core.latency,
        window=core.window,
        l2_bytes_per_cycle=core.l2,
        l3_bytes_per_cycle=core.l3,
        write_cost=core.write_cost,
        short_run=core.short_run,
        scattered=core.scattered,
        l1=float(target.l1_bytes),
        # Pages lie in it where they happen to, and streams pass through: half of it keeps what it is given.
        l2=0.5 * target.l2_bytes,
        l3_lost=core.l3_lost,
        line_split_cycles=core.line_split_cycles,
        page_cycles=core.page_cycles,
        conflict_cycles=core.conflict_cycles,
        fold_cycles=core.fold_cycles,
        l2_of_tiles=0.75 * target.l2_bytes,
        l2_whole=float(target.l2_bytes),
        l3=float(target.l3_bytes),
        l3_whole=core.l3_kept * target.l3_bytes,
        core_stream=core.core_stream,
        all_streams=core.all_streams,
        memory_bytes_per_cycle=core.memory,
        fetched_cost=core.fetched_cost,
        threads=target.threads,
        registers=target.registers,
        step_overhead=1.5 if target.vector_bits >= 512 else 1.0,
    )


__all__ = ["Machine"]
