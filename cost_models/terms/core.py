"""Time in a core's execution units, waiting for results, and moving registers to memory and back.

What the ports need bounds a step from below (the in-core part of the ECM model: Stengel et al., ICS 2015); a chain of
results that need each other may take longer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cost_models.machine import Machine
from search_spaces.nest import Body, LoopNest, Numbers


class Core(NamedTuple):
    """Seconds [n] on one core: in the ports, beyond them waiting for results, and spilling registers."""

    ports: Numbers
    latency: Numbers
    spills: Numbers


def core(nest: LoopNest, machine: Machine) -> Core:
    """The time of all steps of the body, and of the bodies of smaller tiles."""
    parts = [_body(body, machine) for body in (nest.body, *nest.rests)]
    return Core(*(sum(times[1:], times[0]) for times in zip(*parts, strict=True)))


def _body(body: Body, machine: Machine) -> Core:
    arithmetic, loads = body.arithmetic / machine.arithmetic_ports, body.loads / machine.load_ports
    slots = (body.arithmetic + body.loads + body.stores) / machine.issue_width
    issue = np.maximum.reduce([arithmetic, loads, body.stores / machine.store_ports, slots])
    # Ports are not kept equally busy: the more loads among the arithmetic, the more of both is lost.
    issue = issue + machine.port_conflict * np.minimum(arithmetic, loads)
    chain = machine.latency * body.arithmetic / np.maximum(body.chains, 1.0)
    spilled = np.maximum(body.registers - machine.registers * machine.register_share, 0.0)
    seconds = body.steps / machine.hertz
    return Core(
        ports=seconds * (issue + body.stalls + machine.step_overhead),
        latency=seconds * np.maximum(chain - issue, 0.0),
        spills=seconds * machine.spill_cycles * spilled,
    )


__all__ = ["Core", "core"]
