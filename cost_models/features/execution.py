"""Occupation of a core: its ports, its registers, waiting, code, and work that is thrown away."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cost_models.features.numbers import arithmetic_floor, log
from cost_models.machine import Machine
from cost_models.terms import Terms
from cost_models.terms.core import accumulations, registers
from search_spaces.nest import LoopNest, Numbers

TAGS = ("rows", "vectors", "unroll", "inline", "waste")

NAMES = (
    "ports_share",
    "latency_share",
    "spill_share",
    "fetch_share",
    "tail_share",
    "conflicts_share",
    "log_core_floor",
    "log_useful",
    "log_work_floor",
    "fma_utilisation",
    "load_pressure",
    "store_pressure",
    "issue_pressure",
    "narrow_loads",
    "split_loads",
    "folds",
    "restarts",
    "simple",
    "log_chains",
    "chain_cover",
    "register_share",
    "log_instructions",
    "log_code",
    "rest_share",
    "log_steps",
    "log_repeats",
    "arithmetic",
    "loads_per_arithmetic",
    "stores_per_arithmetic",
    "log_resumed",
    *(f"tag_{tag}" for tag in TAGS),
)


def execution(nest: LoopNest, machine: Machine, t: Terms) -> Mapping[str, Numbers | float]:
    """Return the features :data:`NAMES` [n]; shares are of the time in a core, pressures of the busiest
    port's cycles."""
    body, n = nest.body, len(nest)
    core = np.maximum(t.ports + t.latency + t.spills + t.fetch + t.tail + t.conflicts, 1e-12)
    floor = arithmetic_floor(nest, machine)
    work = np.maximum(body.arithmetic, 1.0)
    executed = [one.steps * one.arithmetic for one in (body, *nest.rests)]
    everything = np.maximum(sum(executed), 1.0)
    pressures = {
        "fma_utilisation": (body.arithmetic - body.simple) / machine.arithmetic_ports
        + body.simple / machine.vector_ports,
        "load_pressure": (body.loads - body.narrow) / machine.load_ports
        + body.narrow / machine.scalar_load_ports,
        "store_pressure": body.stores / machine.store_ports,
        "issue_pressure": (body.arithmetic + body.loads + body.stores) / machine.issue_width,
    }
    busiest = np.maximum(np.maximum.reduce(list(pressures.values())), 1e-3)
    code = body.instructions + sum(np.where(rest.steps > 0, rest.instructions, 0.0) for rest in nest.rests)
    zero = np.zeros(n)
    return {
        "ports_share": t.ports / core,
        "latency_share": t.latency / core,
        "spill_share": t.spills / core,
        "fetch_share": t.fetch / core,
        "tail_share": t.tail / core,
        "conflicts_share": t.conflicts / core,
        "log_core_floor": log(core / floor),
        "log_useful": log(everything * 2 * nest.lanes / max(nest.flops, 1.0)),
        "log_work_floor": log(t.ports / floor),
        **{name: pressure / busiest for name, pressure in pressures.items()},
        "narrow_loads": body.narrow / np.maximum(body.loads, 1.0),
        "split_loads": body.split / np.maximum(body.loads, 1.0),
        "folds": body.folds / work,
        "restarts": (body.restarts + body.runs) / work,
        "simple": body.simple / work,
        "log_chains": log(body.chains),
        "chain_cover": log(body.chains / (machine.latency * machine.arithmetic_ports)),
        "register_share": registers(body, machine) / machine.registers,
        "log_instructions": log(body.instructions),
        "log_code": log(code),
        "rest_share": (everything - executed[0]) / everything,
        "log_steps": log(body.steps),
        "log_repeats": log(accumulations(nest)),
        "arithmetic": body.arithmetic,
        "loads_per_arithmetic": body.loads / work,
        "stores_per_arithmetic": body.stores / work,
        "log_resumed": np.log2(1.0 + nest.resumed),
        **{f"tag_{tag}": nest.tags.get(tag, zero) for tag in TAGS},
    }


__all__ = ["NAMES", "TAGS", "execution"]
