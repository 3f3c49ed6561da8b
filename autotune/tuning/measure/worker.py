"""The measuring worker: builds candidates, and checks and times built ones.

Run as ``python -m autotune.tuning.measure.worker``; JSON lines in and out, see :mod:`autotune.workers.serve`. Requests:
``build`` (config → code), ``prepare`` (inputs and reference outputs), ``measure``, ``contest`` (whole
alternatives), and those of :mod:`seats` (whole models).
What only the runner needs (the executor) is imported by its requests.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.codegen import wire
from autotune.errors import MeasureError
from autotune.graph.evaluate import run_node
from autotune.graph.ir import Array
from autotune.graph.region import Workload
from autotune.passes.alternatives import Alternative, alternatives_of
from autotune.target import Target
from autotune.te.dtypes import is_float
from autotune.tuning.measure import seats
from autotune.tuning.measure.check import relative_error, tolerance
from autotune.tuning.measure.timing import Sample, time_candidate, time_rivals
from autotune.tuning.outcome import Measurement, of_difference, of_exception
from autotune.workers.serve import Handler, serve
from search_spaces.space import Space
from search_spaces.spaces import space_for

if TYPE_CHECKING:
    from autotune.runtime.module import Module

Request = dict[str, Any]
Answer = dict[str, Any]
_ROOM = 512 << 20
"""Bytes of prepared inputs and references that are kept for the next candidate."""
_COMPARE_S = 3.0


@dataclass(frozen=True, eq=False)
class Prepared:
    """A workload with random inputs and the reference outputs for them."""

    workload: Workload
    arrays: list[Array]
    reference: list[Array]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in (*self.arrays, *self.reference))


@lru_cache(maxsize=64)
def _space(workload: str, target: str) -> Space:
    return space_for(Workload.parse(workload), Target.from_json(target))


_KEPT: OrderedDict[tuple[str, int], Prepared] = OrderedDict()
"""What was prepared, the latest used last."""


def _prepared(workload: str, seed: int) -> Prepared:
    """Inputs and reference, kept while there is room: weights of a large layer take hundreds of MB."""
    found = _KEPT.pop((workload, seed), None)
    if found is None:
        parsed = Workload.parse(workload)
        arrays = parsed.random_inputs(seed)
        found = Prepared(parsed, arrays, parsed.reference(arrays))
    _KEPT[workload, seed] = found
    while len(_KEPT) > 1 and sum(prepared.nbytes for prepared in _KEPT.values()) > _ROOM:
        _KEPT.popitem(last=False)
    return found


def build(request: Request) -> Answer:
    """Code of one candidate, or why there is none."""
    trace_json = trace_key = ""
    try:
        from autotune.codegen.cpu import compile_schedule

        space = _space(request["workload"], request["target"])
        program = space.workload.program()
        schedule = space.apply(program, request["config"])
        trace_json, trace_key = schedule.trace.to_json(), schedule.trace.key
        code = compile_schedule(
            schedule,
            program.args,
            space.target,
            constants=program.constants,
            strides=program.strides,
        )
    except Exception as error:  # noqa: BLE001 - whatever a candidate raises is its outcome
        return {
            "failed": _outcome(of_exception(error, running=False)),
            "trace_key": trace_key,
            "trace_json": trace_json,
        }
    return {"trace_key": trace_key, "trace_json": trace_json, "payload": wire.to_json(code)}


def prepare(request: Request) -> Answer:
    """Compute inputs and reference, under a time limit of their own."""
    return {"nbytes": _prepared(request["workload"], request["seed"]).nbytes}


def measure(request: Request) -> Answer:
    """Check one candidate against the reference, then time it."""
    incumbent = request["incumbent_ns"]
    prepared = _prepared(request["workload"], request["seed"])
    try:
        payload = request["payloads"][0]
        with _module(prepared, request["target"], {prepared.workload.key: payload}) as module:
            error, allowed = _error(prepared, module, prepared.reference), _allowed(prepared)
            if not error <= allowed:
                return _outcome(of_difference(error, allowed))
            limit = float("inf") if incumbent is None else float(incumbent)
            latency = time_candidate(_sampler(prepared, module), limit)
    except Exception as error:  # noqa: BLE001 - whatever a candidate raises is its outcome
        return _outcome(of_exception(error, running=True))
    return {"outcome": "ok", "latency": asdict(latency), "error": error}


def contest(request: Request) -> Answer:
    """Check each alternative against the exact result, then time those that pass, taking turns."""
    prepared = _prepared(request["workload"], request["seed"])
    exact = exact_reference(prepared.workload, prepared.arrays)
    known = {alternative.name: alternative for alternative in alternatives_of(prepared.workload)}
    results: list[Answer] = []
    samples: list[tuple[int, Sample]] = []
    with ExitStack() as stack:
        for number, entry in enumerate(request["entries"]):
            alternative = known[entry["name"]]
            module = stack.enter_context(_module(prepared, request["target"], entry["payloads"], alternative))
            error = _error(prepared, module, exact)
            allowed = alternative.error or _allowed(prepared)
            if error <= allowed:
                samples.append((number, _sampler(prepared, module)))
                results.append({"outcome": "ok", "error": error})
            else:
                results.append(_outcome(of_difference(error, allowed)))
        timed = time_rivals([sample for _, sample in samples], request["rounds"], _COMPARE_S)
    for (number, _), latency in zip(samples, timed, strict=True):
        results[number]["latency"] = asdict(latency)
    return {"results": results}


def exact_reference(workload: Workload, arrays: Sequence[Array]) -> list[Array]:
    """The workload's outputs worked out in float64 and rounded to their dtypes at the end."""
    graph = workload.region.graph
    values = {v: _widened(array) for v, array in zip(graph.inputs, arrays, strict=True)}
    for node in graph.nodes:
        values.update(run_node(node, values))
    return [values[v].astype(graph.type_of(v).dtype) for v in graph.outputs]


def _widened(array: Array) -> Array:
    return array.astype(np.float64) if is_float(array.dtype.name) else array


def _module(
    prepared: Prepared,
    target: str,
    payloads: Mapping[str, Request],
    alternative: Alternative | None = None,
) -> Module:
    """The workload as a module, computed by an alternative if one is given; constants are packed here,
    untimed. ``payloads`` has the code of each dispatch by its workload's key."""
    from autotune.compiler.assemble import BuiltWorkload, assemble
    from autotune.compiler.choice import GIVEN, Choice
    from autotune.compiler.region import region_partition
    from autotune.passes.substitute import substitute
    from autotune.runtime.module import Module
    from autotune.schedule.trace import Trace

    workload = prepared.workload
    parts = region_partition(workload, prepared.arrays)
    if alternative is not None:
        parts = substitute(parts, {workload.key: alternative})
    built = {
        d.workload.key: BuiltWorkload(
            Choice(d.workload, Trace(()), GIVEN), wire.from_json(payloads[d.workload.key])
        )
        for d in parts.dispatches
    }
    image, _ = assemble(parts, built, Target.from_json(target), {})
    return Module(image, image.target.threads)


def _error(prepared: Prepared, module: Module, reference: Sequence[Array]) -> float:
    """The relative error of the module's outputs."""
    from autotune.compiler.region import region_inputs, region_outputs

    workload = prepared.workload
    outputs = module(*region_inputs(workload, prepared.arrays))
    return relative_error(region_outputs(workload, outputs), reference)


def _allowed(prepared: Prepared) -> float:
    """The error that rounding explains."""
    elements = sum(reference.size for reference in prepared.reference)
    terms = prepared.workload.flops // max(1, 2 * elements)
    return max(tolerance(str(r.dtype), terms) for r in prepared.reference)


def _sampler(prepared: Prepared, module: Module) -> Sample:
    from autotune.compiler.region import region_inputs

    inputs = region_inputs(prepared.workload, prepared.arrays)

    def sample(repeat: int) -> NDArray[Any]:
        return module.time(inputs, warmup=0, repeat=repeat).astype(np.float64)

    return sample


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
        outcome = measure({**asked, "payloads": [made["payload"]], "incumbent_ns": None})
    if outcome["outcome"] != "ok":
        raise MeasureError(f"a product of 4x8 and 8x16 was {outcome['outcome']}: {outcome['message']}")
    return {}


HANDLERS: dict[str, Handler] = {
    "warm_up": warm_up,
    "build": build,
    "prepare": prepare,
    "measure": measure,
    "contest": contest,
    "seat": seats.seat,
    "profile": seats.profile,
    "time": seats.time,
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
    "contest",
    "exact_reference",
    "main",
    "measure",
    "prepare",
]
