"""Features of candidates for the learned models: arithmetic over loop nests, whole populations at once.

All features are dimensionless or logarithms, and mean the same for every family of spaces, so that a model
trained on some workloads ranks the candidates of others. A workload is described by what it computes, not by the
name of its family: a new family leaves the features, and the models that read them, as they are.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autotune.schedule.knob import Config
from autotune.te.tensor import ComputeOp, post_order
from cost_models.machine import Machine
from cost_models.terms import Terms, terms
from cost_models.terms.core import registers
from search_spaces.analysis import operations, read_forms
from search_spaces.nest import Here, LoopNest, Numbers
from search_spaces.population import Population

if TYPE_CHECKING:
    from autotune.graph.program import AnyWorkload
    from search_spaces.space import Space

Matrix = NDArray[np.float32]

TAGS = ("rows", "vectors", "unroll", "packed", "order", "inline", "fused", "split", "waste")
_LEVELS = 4
_ACCESSES = 3


def extract(space: Space, configs: Sequence[Config] | Population) -> Matrix:
    """Features float32 [n, len(names())] of candidates of one space; finite and deterministic."""
    population = configs if isinstance(configs, Population) else space.of(configs)
    machine = Machine.of(space.target)
    matrix = np.empty((len(population), len(names())), dtype=np.float32)
    matrix[:, : len(_WORKLOAD)] = _described(space.workload)
    for rows, nest in space.loop_nests(population):
        named = _named(nest, machine, terms(nest, machine))
        for position, values in enumerate(named.values(), start=len(_WORKLOAD)):
            matrix[rows, position] = values
    return matrix


def names() -> tuple[str, ...]:
    """The names of the features, in order."""
    return (*_WORKLOAD, *_CONTEXT, *_COMMON, *_by_level(), *_by_access(), *(f"tag_{tag}" for tag in TAGS))


def schema() -> str:
    """SHA-256 (hex) of the names: a stored model only reads features of its own schema."""
    return hashlib.sha256("\n".join(names()).encode()).hexdigest()


_WORKLOAD = (
    "stages",
    "reductions",
    "log_points",
    "log_reduced",
    "operations",
    "item_bytes",
    "reads",
    "reused_reads",
    "window_dims",
    "looked_up",
)
_CONTEXT = (
    "lanes",
    "threads",
    "log_flops",
    "log_bytes",
    "log_intensity",
)
_COMMON = (
    "log_total",
    "log_floor_share",
    "ports_share",
    "latency_share",
    "spill_share",
    "fetch_share",
    "tail_share",
    "passes_share",
    "overhead_share",
    "log_traffic_l1",
    "log_traffic_l2",
    "log_traffic_l3",
    "imbalance",
    "workers_share",
    "log_tiles",
    "log_steps",
    "arithmetic",
    "loads_per_arithmetic",
    "stores_per_arithmetic",
    "log_chains",
    "register_share",
    "log_instructions",
)


def _by_level() -> list[str]:
    return [f"{what}_{i}" for i in range(_LEVELS) for what in ("log_set_l1", "log_set_l2")]


def _by_access() -> list[str]:
    kinds = ("log_inner", "log_middle", "log_reuse", "panel")
    return [f"{what}_a{i}" for i in range(_ACCESSES) for what in kinds]


@lru_cache(maxsize=256)
def _described(workload: AnyWorkload) -> tuple[float, ...]:
    """The features :data:`_WORKLOAD`: numbers of stages and of reductions, then of the stage with most arithmetic.

    Of its reads, those are reused that do not move along one of its axes; in dimensions of a window they move along
    several at once, as those of convolutions and pools do.
    """
    stages = [op for op in post_order(list(workload.expressions.outputs)) if isinstance(op, ComputeOp)]
    main = max(stages, key=lambda op: _points(op) * (1 + operations(op)))
    forms = read_forms(main)
    moving = {axis.name for axis in main.axis if axis.extent > 1}
    return (
        len(stages),
        sum(bool(op.reduce_axis) for op in stages),
        math.log2(max(_points(main), 1)),
        math.log2(max(math.prod(axis.extent for axis in main.reduce_axis), 1)),
        operations(main),
        np.dtype(main.dtypes[0]).itemsize,
        len(forms),
        sum(not moving <= form.axes for form in forms),
        max((sum(len(terms) > 1 for terms in form.dims) for form in forms), default=0),
        any(form.looked_up for form in forms),
    )


def _points(op: ComputeOp) -> int:
    return math.prod(axis.extent for axis in (*op.axis, *op.reduce_axis))


def _named(nest: LoopNest, machine: Machine, t: Terms) -> dict[str, Numbers]:
    found = _context(nest, machine) | _common(nest, machine, t)
    found |= _levels(nest, machine) | _accesses(nest)
    zero = np.zeros(len(nest))
    return found | {f"tag_{tag}": nest.tags.get(tag, zero) for tag in TAGS}


def _context(nest: LoopNest, machine: Machine) -> dict[str, Numbers]:
    one = np.ones(len(nest))
    walks, which = nest.walks
    whole = walks.working_sets[0][which]
    return {
        "lanes": one * nest.lanes,
        "threads": one * machine.threads,
        "log_flops": one * np.log2(1.0 + nest.flops),
        "log_bytes": _log(whole),
        "log_intensity": _log(nest.flops / np.maximum(whole, 1.0)),
    }


def _common(nest: LoopNest, machine: Machine, t: Terms) -> dict[str, Numbers]:
    body = nest.body
    floor = max(nest.flops, 1.0) / (2 * nest.lanes * machine.arithmetic_ports * machine.hertz)
    core = np.maximum(t.ports + t.latency + t.spills + t.fetch + t.tail, 1e-12)
    total = np.maximum(t.total, 1e-12)
    work = np.maximum(body.arithmetic, 1.0)
    return {
        "log_total": np.log2(total),
        "log_floor_share": np.log2(floor / machine.threads / total),
        "ports_share": t.ports / core,
        "latency_share": t.latency / core,
        "spill_share": t.spills / core,
        "fetch_share": t.fetch / core,
        "tail_share": t.tail / core,
        "passes_share": t.passes / total,
        "overhead_share": t.overhead / total,
        "log_traffic_l1": _log(t.traffic.l1 / max(nest.flops, 1.0)),
        "log_traffic_l2": _log(t.traffic.l2 / max(nest.flops, 1.0)),
        "log_traffic_l3": _log(t.traffic.l3 / max(nest.flops, 1.0)),
        "imbalance": t.imbalance,
        "workers_share": t.workers / machine.threads,
        "log_tiles": _log(nest.tiles),
        "log_steps": _log(body.steps),
        "arithmetic": body.arithmetic,
        "loads_per_arithmetic": body.loads / work,
        "stores_per_arithmetic": body.stores / work,
        "log_chains": _log(body.chains),
        "register_share": registers(body, machine) / machine.registers,
        "log_instructions": _log(body.instructions),
    }


def _levels(nest: LoopNest, machine: Machine) -> dict[str, Numbers]:
    """Working sets against the caches at evenly spread levels of the nest, outermost first."""
    found = {}
    walks, which = nest.walks
    for i in range(_LEVELS):
        level = nest.level(np.rint(i * nest.depths / _LEVELS).astype(np.intp))
        at = walks.working_sets[level, which]
        found[f"log_set_l1_{i}"] = _log(at / machine.l1)
        found[f"log_set_l2_{i}"] = _log(at / machine.l2)
    return found


def _accesses(nest: LoopNest) -> dict[str, Numbers]:
    """The largest tensors: bytes touched inside and in the middle, and how often they are reread."""
    sizes = [math.prod(access.shape) * access.item_bytes for access in nest.accesses]
    order = np.argsort([-size for size in sizes], kind="stable")
    zero = np.zeros(len(nest))
    walks, which = nest.walks
    half = Here(walks, nest.level((nest.depths + 1) // 2), which)
    body, whole = (Here(walks, np.full(len(nest), level, np.intp), which) for level in (len(nest.loops), 0))
    found: dict[str, Numbers] = {}
    for i in range(_ACCESSES):
        inner, middle, reuse, panel = zero, zero, zero, zero
        if i < len(order):
            access, touched = nest.accesses[order[i]], walks.touched[order[i]]
            lines = touched.lines(half)
            inner, middle = _log(touched.lines(body)), _log(lines)
            reuse = _log(lines * touched.entries(half) / np.maximum(touched.lines(whole), 1.0))
            panel = zero if access.panel is None else access.panel.astype(np.float64)
        found |= {
            f"log_inner_a{i}": inner,
            f"log_middle_a{i}": middle,
            f"log_reuse_a{i}": reuse,
            f"panel_a{i}": panel,
        }
    return found


def _log(values: Numbers) -> Numbers:
    return np.log2(np.maximum(values, 1e-9))


__all__ = ["TAGS", "Matrix", "extract", "names", "schema"]
