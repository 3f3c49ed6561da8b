"""The measuring worker: builds candidates, and checks and times built ones.

Run as ``python -m autotune.tuning.measure.worker``; JSON lines in and out, see :mod:`serve`. Requests:
``build`` (config → code), ``prepare`` (inputs and reference outputs), ``measure``, ``compare``.
What only the runner needs (numba and the executor) is imported by its requests.
"""

from __future__ import annotations

import importlib
import os
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.graph.ir import Array
from autotune.graph.region import Workload
from autotune.target import Target
from autotune.tuning.measure import wire
from autotune.tuning.measure.check import relative_error, tolerance
from autotune.tuning.measure.serve import Handler, serve
from autotune.tuning.measure.timing import Sample, time_candidate, time_rivals
from autotune.tuning.outcome import Measurement, of_difference, of_exception
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
        with _module(prepared, request["target"], request["payloads"][0]) as module:
            error, allowed = _check(prepared, module)
            if not error <= allowed:
                return _outcome(of_difference(error, allowed))
            limit = float("inf") if incumbent is None else float(incumbent)
            latency = time_candidate(_sampler(prepared, module), limit)
    except Exception as error:  # noqa: BLE001 - whatever a candidate raises is its outcome
        return _outcome(of_exception(error, running=True))
    return {"outcome": "ok", "latency": asdict(latency), "error": error}


def compare(request: Request) -> Answer:
    """Time several candidates taking turns."""
    prepared = _prepared(request["workload"], request["seed"])
    with ExitStack() as stack:
        modules = [
            stack.enter_context(_module(prepared, request["target"], payload))
            for payload in request["payloads"]
        ]
        samples = [_sampler(prepared, module) for module in modules]
        for sample in samples:
            sample(1)
        return {"latencies": [asdict(found) for found in time_rivals(samples, request["rounds"], _COMPARE_S)]}


def _module(prepared: Prepared, target: str, payload: Request) -> Module:
    """The candidate as a module of one dispatch; constants are packed here, untimed."""
    from autotune.compiler.assemble import BuiltWorkload, assemble
    from autotune.compiler.choice import GIVEN, Choice
    from autotune.compiler.region import region_partition
    from autotune.runtime.module import Module
    from autotune.schedule.trace import Trace

    workload = prepared.workload
    built = BuiltWorkload(Choice(workload, Trace(()), GIVEN), wire.from_json(payload))
    parts = region_partition(workload, prepared.arrays)
    image, _ = assemble(parts, {workload.key: built}, Target.from_json(target), {})
    return Module(image)


def _check(prepared: Prepared, module: Module) -> tuple[float, float]:
    """The relative error of the module's outputs, and the allowed one."""
    from autotune.compiler.region import region_inputs, region_outputs

    workload = prepared.workload
    outputs = module(*region_inputs(workload, prepared.arrays))
    error = relative_error(region_outputs(workload, outputs), prepared.reference)
    elements = sum(reference.size for reference in prepared.reference)
    terms = workload.flops // max(1, 2 * elements)
    return error, max(tolerance(str(r.dtype), terms) for r in prepared.reference)


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


def warm_up(request: Request) -> Answer:
    """Load what a builder or a runner needs before the first candidate comes."""
    modules = {
        "builder": ("autotune.codegen.cpu", "search_spaces.convolution", "search_spaces.contraction"),
        "runner": ("autotune.runtime.module", "autotune.compiler"),
    }
    for name in modules[request["role"]]:
        importlib.import_module(name)
    return {}


HANDLERS: dict[str, Handler] = {
    "warm_up": warm_up,
    "build": build,
    "prepare": prepare,
    "measure": measure,
    "compare": compare,
}


def main(run: Callable[..., None] = serve) -> None:
    """Serve requests until standard input ends."""
    memory = os.environ.get("AUTOTUNE_WORKER_MEMORY")
    run(HANDLERS, int(memory) if memory else None)


if __name__ == "__main__":
    main()

__all__ = ["HANDLERS", "Prepared", "build", "compare", "main", "measure", "prepare"]
