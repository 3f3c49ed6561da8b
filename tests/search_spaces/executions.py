"""A random schedule of a region by all executions: NumPy, the interpreter and machine code."""

from __future__ import annotations

import random

import numpy as np

from autotune.codegen import interpreter
from autotune.graph.region import Workload
from autotune.lower import lower_schedule
from autotune.target import Target
from autotune.tuning.measure.check import relative_error
from search_spaces.spaces import space_for
from tests.schedule.machine import run_machine_code

LARGEST = 40_000
"""Steps of the loops that the interpreter runs."""


def check(region: Workload, rng: random.Random, target: Target, tolerance: float = 2e-5) -> None:
    """One random schedule, run by machine code and, where that is quick, by the interpreter."""
    space = space_for(region, target)
    config = space.population(np.random.default_rng(rng.randrange(1 << 30)), 1).config(0)
    program = region.program()
    schedule = space.apply(program, config)
    inputs = region.random_inputs(rng.randrange(1 << 30))
    arrays = dict(zip([t.name for t in program.inputs], inputs, strict=True))
    found = [run_machine_code(schedule, program.args, arrays, target=target, constants=program.constants)]
    if region.flops < LARGEST:
        outputs = {t.name: np.zeros(t.shape, t.dtype) for t in program.outputs}
        interpreter.run_program(lower_schedule(schedule, program.args), {**arrays, **outputs})
        found.append(outputs)
    expected = region.reference(inputs)
    for one in found:
        error = relative_error([one[t.name] for t in program.outputs], expected)
        assert error <= tolerance, f"relative error {error:.3g} with {config}"
