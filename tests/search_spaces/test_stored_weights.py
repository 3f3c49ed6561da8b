"""Random products and convolutions with stored weights: NumPy, the interpreter and machine code give one answer."""

from __future__ import annotations

import random

import numpy as np
import pytest

from autotune.codegen import interpreter
from autotune.graph.build import GraphBuilder
from autotune.graph.ops.common import STORED
from autotune.graph.region import Workload
from autotune.lower import lower_schedule
from autotune.passes import stored_weights
from autotune.passes.options import options_of
from autotune.passes.stored_weights import StoredWeights
from autotune.target import Target
from autotune.tuning.measure.check import relative_error
from search_spaces.spaces import space_for
from tests.schedule.machine import run_machine_code, runnable_target
from tests.search_spaces import workloads as make

TARGETS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
LARGEST = 40_000
"""Steps of the loops that the interpreter runs."""


def product(rng: random.Random) -> Workload:
    """Rows times weights, of one matrix or of several, and what may follow."""
    m, k, n = rng.choice((1, 1, 2, 5, 13)), rng.randint(1, 40), rng.randint(1, 50)
    batch = rng.choice(((), (), (2,)))
    b = GraphBuilder("product")
    weights = (*(batch if rng.random() < 0.5 else ()), k, n)
    y = b.node("MatMul", b.input("x", (*batch, m, k)), b.input("w", weights))
    return finished(rng, b, y)


def convolution(rng: random.Random) -> Workload:
    """Windows of a small image, channels last."""
    h, w, c, oc = rng.randint(3, 6), rng.randint(3, 7), rng.randint(1, 9), rng.randint(1, 40)
    window = (rng.randint(1, 3), rng.randint(1, 3))
    b = GraphBuilder("convolution")
    x, weights = b.input("x", (1, h, w, c)), b.input("w", (*window, c, oc))
    pads = tuple(rng.randint(0, 1) for _ in range(4))
    strides = (rng.randint(1, 2), rng.randint(1, 2))
    return finished(rng, b, b.node("Conv", x, weights, layout="NHWC", pads=pads, strides=strides))


def finished(rng: random.Random, b: GraphBuilder, y: str) -> Workload:
    """A bias and an activation, or none."""
    fixed = {"w"}
    if rng.random() < 0.7:
        y = b.node("Add", y, b.input("bias", (b.type_of(y).shape[-1],)))
        fixed.add("bias")
    return make.of(b, b.node("Relu", y) if rng.random() < 0.5 else y, fixed)


def stored(rng: random.Random) -> Workload:
    """The region that such a rule makes of a random one."""
    workload = rng.choice((product, convolution))(rng)
    name = StoredWeights(rng.choice(STORED)).label
    (option,) = [option for option in options_of(workload) if option.name == name]
    (region,) = option.regions
    return region


def check(region: Workload, rng: random.Random, target: Target) -> None:
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
        assert error <= 2e-5, f"relative error {error:.3g} with {config}"


def run_block(monkeypatch: pytest.MonkeyPatch, seeds: range) -> None:
    monkeypatch.setattr(stored_weights, "LEAST_BYTES", 0)
    for seed in seeds:
        rng = random.Random(seed)
        region = stored(rng)
        target = runnable_target(rng.choice(TARGETS))
        try:
            check(region, rng, target)
        except Exception as error:  # noqa: BLE001  # whatever went wrong is reported with its workload
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}\n{target.cpu}\n{region}")


@pytest.mark.parametrize("block", range(4))
def test_all_executions_agree(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run_block(monkeypatch, range(10 * block, 10 * block + 10))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_all_executions_agree_on_many(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run_block(monkeypatch, range(1_000_000 + 50 * block, 1_000_050 + 50 * block))
