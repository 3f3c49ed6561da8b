"""The analytic model's terms for a population: time in each unit of the machine, and data traffic.

A roofline (Williams et al., CACM 2009) with one roof a cache level, after the ECM model's view of a core
(Stengel et al., ICS 2015): what the ports need and what each link between caches needs, the slowest winning.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cost_models.machine import Machine
from search_spaces.nest import Body, LoopNest, Numbers


@dataclass(frozen=True)
class Terms:
    """Arrays [n]: seconds on one core unless said otherwise; ``traffic_*`` are bytes."""

    ports: Numbers
    latency: Numbers
    spills: Numbers
    fetch: Numbers
    tail: Numbers
    traffic_l1: Numbers
    traffic_l2: Numbers
    traffic_l3: Numbers
    imbalance: Numbers
    workers: Numbers
    passes: Numbers
    overhead: Numbers
    total: Numbers


def terms(nest: LoopNest, machine: Machine) -> Terms:
    """All terms and the predicted total in seconds for each of the n candidates."""
    body, cycle = nest.body, 1.0 / machine.hertz
    ports, latency, spills = _core(body, machine)
    for rest in nest.rests:
        more = _core(rest, machine)
        ports, latency, spills = ports + more[0], latency + more[1], spills + more[2]
    pressure = np.clip(body.instructions / machine.instruction_cache - 1.0, 0.0, 2.0)
    fetch = ports * 0.5 * pressure
    tail = (
        np.zeros(len(nest))
        if nest.tail_operations is None
        else nest.tail_operations * cycle / machine.arithmetic_ports
    )
    capacities = (machine.l1, machine.l2, machine.l3)
    walks, which = nest.walks
    traffic = [
        _traffic(walks, size, near=size == machine.l1)[which] + _scratch_traffic(nest, size)
        for size in capacities
    ]
    workers = np.minimum(nest.tiles, machine.threads)
    imbalance = np.ceil(nest.tiles / machine.threads) * workers / nest.tiles
    # Workers do not run at one speed: the last tile of the slowest is waited for.
    imbalance = imbalance + machine.jitter * (workers - 1) / nest.tiles
    core = ports + latency + spills + fetch + tail
    l2_time = traffic[0] / machine.l2_bytes_per_cycle * cycle
    l3_time = traffic[1] / machine.l3_bytes_per_cycle * cycle
    memory_time = traffic[2] / machine.memory_bytes_per_cycle * cycle
    # Prefetching hides the nearer links behind arithmetic, most of the time and not for nothing.
    shown = machine.exposed
    private = np.maximum(core, l2_time) + shown * np.minimum(core, l2_time) + machine.l3_exposed * l3_time
    alone = private / workers * imbalance
    passes, kernels = _passes(nest, machine)
    overhead = machine.kernel_seconds * kernels + machine.tile_seconds * nest.tiles / workers
    overhead = overhead + np.where(workers > 1, machine.fork_seconds, 0.0)
    total = np.maximum(alone, memory_time) + shown * np.minimum(alone, memory_time)
    return Terms(
        ports=ports,
        latency=latency,
        spills=spills,
        fetch=fetch,
        tail=tail,
        traffic_l1=traffic[0],
        traffic_l2=traffic[1],
        traffic_l3=traffic[2],
        imbalance=imbalance,
        workers=workers,
        passes=passes,
        overhead=overhead,
        total=total + passes + overhead,
    )


def _core(body: Body, machine: Machine) -> tuple[Numbers, Numbers, Numbers]:
    """Seconds [n] in the ports, beyond them waiting for results, and moving registers to memory and back."""
    arithmetic, loads = body.arithmetic / machine.arithmetic_ports, body.loads / machine.load_ports
    slots = (body.arithmetic + body.loads + body.stores) / machine.issue_width
    issue = np.maximum.reduce([arithmetic, loads, body.stores / machine.store_ports, slots])
    # Ports are not kept equally busy: the more loads among the arithmetic, the more of both is lost.
    issue = issue + machine.port_conflict * np.minimum(arithmetic, loads)
    chain = machine.latency * body.arithmetic / np.maximum(body.chains, 1.0)
    # Tiles that need all registers keep them, by their assembly, yet take up to a tenth longer: 9 x 3 at products of
    # size 300, 14 x 2 at 1000.
    spilled = np.maximum(body.registers - machine.registers * 15 / 16, 0.0)
    cycle = 1.0 / machine.hertz
    ports = body.steps * (issue + body.stalls + machine.step_overhead) * cycle
    latency = body.steps * np.maximum(chain - issue, 0.0) * cycle
    spills = body.steps * machine.spill_cycles * spilled * cycle
    return ports, latency, spills


def _traffic(nest: LoopNest, capacity: float, near: bool) -> Numbers:
    """Bytes moved into a cache of ``capacity`` from the next one.

    The outermost level whose working set fits is loaded once an entry; an access that the next loop outside
    does not move stays, because its reuse distance is that same working set. ``near`` counts bytes; further
    out, what they cost.
    """
    levels = len(nest.loops)
    sets = nest.working_sets
    level = np.argmax(sets <= capacity, axis=0)
    level = np.where(sets[-1] > capacity, levels, level)
    here = (level, np.arange(len(nest)))
    total, streamed = np.zeros(len(nest)), np.zeros(len(nest))
    for access, found in zip(nest.accesses, nest.touched, strict=True):
        moved = (found.moved[here] if near else found.cost[here]) * found.entries[here]
        # A written tensor is read for ownership first, then written back.
        through = moved * (2.0 if access.write else 1.0)
        if access.streamed is not None:
            streamed = streamed + np.where(access.streamed, moved, 0.0)
            through = np.where(access.streamed, 0.0, through)
        total = total + through
    # What fits whole is there already: written by the dispatch before, or read by the last run.
    return np.where(sets[0] <= capacity, 0.0, total) + streamed


def _scratch_traffic(nest: LoopNest, capacity: float) -> Numbers:
    """Bytes moved because a block's stored producers do not stay in a cache of ``capacity``.

    The scratch buffer is written, read and overwritten by the next block.
    """
    if nest.scratch is None:
        return np.zeros(len(nest))
    size, fills = nest.scratch
    return np.where(size > 0.7 * capacity, 3.0 * size * fills, 0.0)


def _passes(nest: LoopNest, machine: Machine) -> tuple[Numbers, Numbers]:
    """Seconds of the kernels before the main one, and how many kernels there are with it."""
    seconds, kernels = np.zeros(len(nest)), np.ones(len(nest))
    for one in nest.passes:
        moved, touched = one.read + 2.0 * one.written, one.read + one.written
        # What another worker has written comes through the cache that they share.
        near = (touched <= machine.l2) & (machine.threads == 1 or not one.shared)
        rate = np.where(near, machine.l2_bytes_per_cycle, machine.l3_bytes_per_cycle)
        rate = np.where(touched > machine.l3, machine.memory_bytes_per_cycle, rate)
        seconds = seconds + moved / rate / machine.hertz / machine.threads
        kernels = kernels + (moved > 0)
    return seconds, kernels


__all__ = ["Terms", "terms"]
