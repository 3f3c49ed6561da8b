"""The measuring worker: builds candidates, and checks and times built ones.

Run as ``python -m autotune.tuning.measure.worker``; JSON lines in and out, see :mod:`autotune.workers.serve`. Requests:
``build`` (config → code), ``prepare`` (inputs and reference outputs), ``measure`` and ``check`` (whole options).
What only the runner needs (the executor) is imported by its requests.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune import te
from autotune.codegen import wire
from autotune.database.records import Outcome
from autotune.errors import GraphError, MeasureError
from autotune.garbage import collector_paused
from autotune.graph.evaluate import run_node
from autotune.graph.ir import Array, Graph
from autotune.graph.program import AnyWorkload, ProgramWorkload, parse_workload
from autotune.graph.region import RegionProgram, Workload
from autotune.passes.options import Option, options_of
from autotune.schedule import Schedule, Trace
from autotune.target import Target
from autotune.te.dtypes import is_float
from autotune.tuning.measure.check import can_lose_precision, same_sign_tolerance, tolerance
from autotune.tuning.measure.outcome import Measurement, of_difference, of_exception
from autotune.tuning.measure.timing import time_candidate
from autotune.workers.serve import Handler, serve
from search_spaces.space import Space
from search_spaces.spaces import space_for

if TYPE_CHECKING:
    from autotune.codegen.code import DispatchCode
    from autotune.tuning.measure.confined import Confined

Request = dict[str, Any]
Answer = dict[str, Any]
_ROOM = 512 << 20
"""Bytes of prepared inputs and references that are kept for the next candidate."""
_CHEAP_FLOPS = 4e9
"""Workloads up to here have their reference worked out for a second set of inputs."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A workload with random inputs and the reference outputs for them."""

    workload: AnyWorkload
    arrays: list[Array]
    reference: list[Array]
    same_sign: Prepared | None = None
    """The same with inputs of one sign, where sums are so long that only those show what is lost."""

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        more = self.same_sign.nbytes if self.same_sign is not None else 0
        return sum(array.nbytes for array in (*self.arrays, *self.reference)) + more

    @property
    def terms(self) -> int:
        """Return the number of products that an element of the output adds up."""
        elements = sum(reference.size for reference in self.reference)
        return self.workload.flops // max(1, 2 * elements)


@lru_cache(maxsize=64)
def _space(workload: str, target: str) -> Space:
    return space_for(Workload.parse(workload), Target.from_json(target))


_KEPT: OrderedDict[tuple[str, int], Prepared] = OrderedDict()
"""The prepared references, the latest used last."""


def _prepared(workload: str, seed: int) -> Prepared:
    """Return inputs and reference, kept while there is room: weights of a large layer take hundreds of MB."""
    found = _KEPT.pop((workload, seed), None)
    if found is None:
        parsed = parse_workload(workload)
        arrays = parsed.random_inputs(seed)
        found = _with_same_sign(Prepared(parsed, arrays, parsed.reference(arrays)), seed)
    _KEPT[workload, seed] = found
    while len(_KEPT) > 1 and sum(prepared.nbytes for prepared in _KEPT.values()) > _ROOM:
        _KEPT.popitem(last=False)
    return found


def _with_same_sign(prepared: Prepared, seed: int) -> Prepared:
    """Add inputs of one sign, where they can show something and cost little."""
    workload = prepared.workload
    shows = any(can_lose_precision(str(r.dtype), prepared.terms) for r in prepared.reference)
    if not shows or workload.flops > _CHEAP_FLOPS or prepared.nbytes > _ROOM // 2:
        return prepared
    arrays = workload.random_inputs(seed, same_sign=True)
    reference = workload.reference(arrays)
    if not all(np.isfinite(array).all() for array in reference if is_float(array.dtype.name)):
        return prepared
    return replace(prepared, same_sign=Prepared(workload, arrays, reference))


@collector_paused()
def build(request: Request) -> Answer:
    """Return code of one candidate, or why there is none."""
    trace_json = trace_key = ""
    try:
        from autotune.codegen.backend import backend_for
        from autotune.compiler.memory.footprint import footprint_of
        from autotune.lower.program import lower_schedule

        workload, program, schedule = _scheduled(request)
        trace_json, trace_key = schedule.trace.to_json(), schedule.trace.key
        target = Target.from_json(request["target"])
        loops = lower_schedule(schedule, program.args, constants=program.constants, strides=program.strides)
        backend = backend_for(target.arch)
        code = backend.compile(loops, target, workload.symbol)
        checked = backend.fenced(loops, target, code)
        if target.group_items:
            from autotune.tuning.measure.driver_build import driver_build

            driver_build(code, target)
        payload = _payload(workload, schedule, code, target)
        fenced = None if checked is None else _payload(workload, schedule, checked, target)
    except Exception as error:  # noqa: BLE001 - whatever a candidate raises is its outcome
        return {
            "failed": _outcome(of_exception(error, running=False)),
            "trace_key": trace_key,
            "trace_json": trace_json,
        }
    takes = asdict(footprint_of(code, program.constants, target.threads))
    return {
        "trace_key": trace_key,
        "trace_json": trace_json,
        "payload": payload,
        "fenced": fenced,
        "footprint": takes,
    }


def _payload(workload: AnyWorkload, schedule: Schedule, code: DispatchCode, target: Target) -> Request:
    """Return the code as JSON; what a program of a user's own computes, it computes each time."""
    if isinstance(workload, ProgramWorkload):
        return wire.to_json(code)
    from autotune.compiler.assemble import on_wire
    from autotune.compiler.planned import GIVEN, Planned

    return on_wire(Planned(workload, schedule.trace, GIVEN), code, target)


def _scheduled(request: Request) -> tuple[AnyWorkload, RegionProgram, Schedule]:
    """Return the program of a candidate and its schedule: by its trace where it has one, else by our space of it."""
    if request.get("trace") is None:
        space = _space(request["workload"], request["target"])
        program = space.workload.program()
        return space.workload, program, space.apply(program, request["config"])
    workload = parse_workload(request["workload"])
    program = workload.program()
    schedule = Trace.from_json(request["trace"]).apply(te.create_schedule(list(program.outputs)))
    return workload, program, schedule


def prepare(request: Request) -> Answer:
    """Compute inputs and reference, and open the device, under a time limit of their own."""
    target = Target.from_json(request["target"])
    if target.group_items:
        from autotune.tuning.measure.device_run import device_of

        device_of(target)
    return {"nbytes": _prepared(request["workload"], request["seed"]).nbytes}


def measure(request: Request) -> Answer:
    """Check one candidate against the reference, then time it, then look at what it left behind and can still do."""
    prepared = _prepared(request["workload"], request["seed"])
    reference, allowed = prepared.reference, _allowed(prepared)
    try:
        payloads = {prepared.workload.key: request["payloads"][0]}
        if (end := _first_run(prepared, request, payloads))["outcome"] != Outcome.OK:
            return end
        with closing(_confined(prepared, request["target"], payloads)) as confined:
            confined.run()
            if (end := _judged(confined, reference, allowed))["outcome"] != Outcome.OK:
                return end
            default_ns = float("inf") if request["default_ns"] is None else float(request["default_ns"])
            latency = asdict(time_candidate(confined.sample, default_ns))
            if (end := _judged(confined, reference, allowed))["outcome"] == Outcome.OK:
                confined.run_again()
                end = _judged(confined, reference, allowed)
    except Exception as error:  # noqa: BLE001 - whatever a candidate raises is its outcome
        return _outcome(of_exception(error, running=True))
    return {**end, "latency": latency} if end["outcome"] == Outcome.OK else end


def _first_run(prepared: Prepared, request: Request, payloads: Mapping[str, Request]) -> Answer:
    """Return the outcome of one run that is not timed: of the build with fences in its local memory, where there is
    one, and with inputs of one sign, where these show more. None is needed without either."""
    fenced, again = request.get("fenced"), prepared.same_sign
    if fenced is None and again is None:
        return {"outcome": Outcome.OK.value}
    built = payloads if fenced is None else {prepared.workload.key: fenced}
    allowed = _allowed(prepared)
    if again is not None:
        allowed = max(same_sign_tolerance(str(r.dtype), prepared.terms) for r in again.reference)
    given = again or prepared
    with closing(_confined(given, request["target"], built)) as confined:
        confined.run()
        end = _judged(confined, given.reference, allowed)
    if end["outcome"] == Outcome.WRONG_RESULT and again is not None:
        end["message"] += " for inputs of one sign: its sums lose precision"
    return end


def check(request: Request) -> Answer:
    """Check a whole option against the exact result."""
    prepared = _prepared(request["workload"], request["seed"])
    workload = Workload.parse(request["workload"])
    option = next(option for option in options_of(workload) if option.name == request["name"])
    try:
        with closing(_confined(prepared, request["target"], request["payloads"], option)) as confined:
            confined.run()
            exact = _exact(workload, request["seed"])
            return _judged(confined, exact, option.error or _allowed(prepared))
    except Exception as error:  # noqa: BLE001 - whatever a candidate raises is its outcome
        return _outcome(of_exception(error, running=True))


@lru_cache(maxsize=1)
def _exact(workload: Workload, seed: int) -> list[Array]:
    """Return the exact reference, kept for the other options of the workload."""
    return exact_reference(workload, _prepared(workload.text, seed).arrays)


def _judged(confined: Confined, reference: Sequence[Array], allowed: float) -> Answer:
    """Return the outcome by what the last run wrote, and where."""
    if harm := confined.harm():
        return _outcome(Measurement(Outcome.OUT_OF_BOUNDS, message=harm))
    error = confined.error(reference)
    if not error <= allowed:
        return _outcome(of_difference(error, allowed))
    return {"outcome": Outcome.OK.value, "error": error}


def exact_reference(workload: Workload, arrays: Sequence[Array]) -> list[Array]:
    """Return the workload's outputs worked out in float64 and rounded to their dtypes at the end.

    An operator that takes no float64 (a product of bfloat16) gets its inputs in the graph's types.
    """
    graph = workload.region.graph
    values = {v: _widened(array) for v, array in zip(graph.inputs, arrays, strict=True)}
    for node in graph.nodes:
        try:
            found = run_node(node, values)
        except GraphError:
            found = run_node(node, {v: _typed(graph, v, values[v]) for v in node.present_inputs})
        values.update(found)
    return [_typed(graph, v, values[v]) for v in graph.outputs]


def _typed(graph: Graph, value: str, array: Array) -> Array:
    return array.astype(graph.type_of(value).dtype)


def _widened(array: Array) -> Array:
    return array.astype(np.float64) if is_float(array.dtype.name) else array


def _confined(
    prepared: Prepared,
    target: str,
    payloads: Mapping[str, Request],
    option: Option | None = None,
) -> Confined:
    """Return the workload in memory of its own, computed by an option if one is given; constants are packed here,
    untimed. ``payloads`` has the code of each dispatch by its workload's key."""
    from autotune.compiler.assemble import BuiltWorkload, assemble
    from autotune.compiler.planned import GIVEN, Planned
    from autotune.compiler.region import region_gaps, region_inputs, region_outputs, region_partition
    from autotune.functions.function import image_of
    from autotune.passes.substitute import substitute
    from autotune.tuning.measure.confined import Confined

    workload = prepared.workload
    if isinstance(workload, ProgramWorkload):
        code = wire.from_json(payloads[workload.key])
        return Confined(image_of(code, Target.from_json(target), workload.kind), prepared.arrays)
    parts = region_partition(workload, prepared.arrays)
    if option is not None:
        parts = substitute(parts, {workload.key: option})
    built = {
        d.workload.key: BuiltWorkload.of_wire(Planned(d.workload, Trace(()), GIVEN), payloads[d.workload.key])
        for d in parts.dispatches
    }
    image, _ = assemble(parts, built, Target.from_json(target), {})
    return Confined(
        image,
        region_inputs(workload, prepared.arrays),
        region_gaps(workload),
        partial(region_outputs, workload),
    )


def _allowed(prepared: Prepared) -> float:
    """Return the error that rounding explains."""
    return max(tolerance(str(r.dtype), prepared.terms) for r in prepared.reference)


def _outcome(measurement: Measurement) -> Answer:
    return {
        "outcome": measurement.outcome.value,
        "error": measurement.error,
        "message": measurement.message,
    }


_REHEARSAL = """region workload {
  input i0: float32[4, 8]
  const i1: float32[8, 16]
  v0 = MatMul(i0, i1) : float32[4, 16]
  output v0
}"""


def warm_up(request: Request) -> Answer:
    """Get ready before the first candidate's clock runs: build and, in a runner, measure a small product.

    That loads whatever the work needs. What goes wrong here goes wrong with every candidate, and ends this
    process with the reason.
    """
    from autotune.library import registry
    from cost_models.analytic import default_config

    target = Target.detect(threads=1)
    asked = {"workload": _REHEARSAL, "target": target.to_json(), "seed": 0}
    config = default_config(_space(_REHEARSAL, asked["target"]))
    made = build({**asked, "config": config})
    outcome = made.get("failed", {"outcome": "ok"})
    if request["role"] == "runner" and "failed" not in made:
        for name in registry.kernels("matmul", "float32"):
            registry.kernel(name, "float32").address()  # loads the library
        outcome = measure({**asked, "payloads": [made["payload"]], "default_ns": None})
    if outcome["outcome"] != "ok":
        raise MeasureError(f"a product of 4x8 and 8x16 was {outcome['outcome']}: {outcome['message']}")
    return {}


HANDLERS: dict[str, Handler] = {
    "warm_up": warm_up,
    "build": build,
    "prepare": prepare,
    "measure": measure,
    "check": check,
}


def main(run: Callable[..., None] = serve) -> None:
    """Serve requests until standard input ends."""
    memory = os.environ.get("AUTOTUNE_WORKER_MEMORY")
    run(HANDLERS, int(memory) if memory else None)


if __name__ == "__main__":
    main()

__all__ = [
    "HANDLERS",
    "Prepared",
    "build",
    "check",
    "exact_reference",
    "main",
    "measure",
    "prepare",
]
