"""Time in a core's execution units, waiting for results, and moving registers to memory and back.

What the ports need bounds a step from below (the in-core part of the ECM model: Stengel et al., ICS 2015); a chain of
results that need each other may take longer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cost_models.machine import Machine
from search_spaces.nest import WRITTEN_OUT, Body, LoopNest, Numbers


class CoreTimes(NamedTuple):
    """Seconds [n] on one core: in the ports, beyond them waiting for results, and spilling registers."""

    ports: Numbers
    latency: Numbers
    spills: Numbers


def core(nest: LoopNest, machine: Machine) -> CoreTimes:
    """Return the time of all steps of the body, and of the bodies of smaller tiles."""
    repeats = accumulations(nest)
    parts = [_body(body, repeats, machine) for body in (nest.body, *nest.rests)]
    return CoreTimes(*(sum(times[1:], times[0]) for times in zip(*parts, strict=True)))


def accumulations(nest: LoopNest) -> Numbers:
    """Return the runs of the body [n] until its results are complete, and the next ones need nothing of them."""
    written = {axis for access in nest.accesses if access.write for axis in access.axes}
    found, inside = np.ones(len(nest)), np.ones(len(nest), np.bool_)
    for loop in reversed(nest.loops):
        if loop.kind not in WRITTEN_OUT:
            inside = inside & (loop.extent == 1) if loop.axis in written else inside
            found = np.where(inside, found * loop.extent, found)
    return found


def registers(body: Body, machine: Machine) -> Numbers:
    """Return the vector registers [n] that a body needs, those for loads that several iterations use included."""
    return body.registers + np.minimum(machine.kept_share * body.shared, machine.kept_registers)


def _body(body: Body, repeats: Numbers, machine: Machine) -> CoreTimes:
    added = body.arithmetic - body.simple
    arithmetic = added / machine.arithmetic_ports + body.simple / machine.vector_ports
    loads = (body.loads - body.narrow) / machine.load_ports + body.narrow / machine.scalar_load_ports
    matrix = np.maximum(body.matrix, machine.tile_cycles * body.tiles)
    matrix = np.broadcast_to(np.maximum(matrix, body.pairs / machine.pair_ports), np.shape(arithmetic))
    slots = (body.arithmetic + body.loads + body.stores) / machine.issue_width
    issue = np.maximum.reduce([arithmetic, loads, body.stores / machine.store_ports, slots, matrix])
    # Ports are not kept equally busy: the more loads among the arithmetic, the more of both is lost.
    issue = issue + machine.port_conflict * np.minimum(arithmetic, body.loads / machine.load_ports)
    # A core works on the results after these before they are complete, as far as it looks ahead.
    ahead = np.maximum(machine.window / np.maximum(body.instructions * repeats, 1.0), 1.0)
    chain = machine.latency * body.arithmetic / np.maximum(body.chains * ahead, 1.0)
    needed = registers(body, machine)
    tight = np.clip(needed - machine.registers * machine.register_share, 0.0, 1.0)
    spilled = np.maximum(needed - machine.registers, 0.0) * body.arithmetic / np.maximum(body.chains, 1.0)
    forgotten = np.where(body.page_reach > machine.near_pages, body.pages, 0.0)
    stalls = machine.line_split_cycles * body.split + machine.page_cycles * forgotten
    stalls = stalls + machine.fold_cycles * body.folds
    stalls = stalls + machine.restart_cycles * body.restarts + machine.run_cycles * body.runs
    stalls = stalls + machine.foreign_cycles * body.foreign + machine.pack_cycles * body.packed
    seconds = body.steps / machine.hertz
    return CoreTimes(
        ports=seconds * (issue + stalls + machine.step_overhead),
        latency=seconds * np.maximum(chain - issue, 0.0),
        spills=seconds * (machine.tight_share * tight * issue + machine.spill_cycles * spilled),
    )


__all__ = ["CoreTimes", "accumulations", "core", "registers"]
