"""Random convolutions of bytes by instructions: NumPy, the interpreter and machine code give one answer."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from autotune.codegen import interpreter
from autotune.graph.build import GraphBuilder
from autotune.graph.region import Workload
from autotune.lower import lower_schedule
from autotune.target import Target
from autotune.te.taps import by_name
from autotune.tuning.measure.check import relative_error
from search_spaces.spaces import space_for
from tests.schedule.machine import run_machine_code
from tests.search_spaces import workloads as make

pytestmark = pytest.mark.registers

VNNI = Target.parse("x86-64-v4-vnni", threads=2)
BYTES = ("uint8", "int8")


def window(rng: random.Random) -> dict[str, Any]:
    """Strides, dilations and paddings, which differ from side to side."""
    pairs = {name: (rng.choice((1, 1, 2)), rng.choice((1, 1, 2))) for name in ("strides", "dilations")}
    return {**pairs, "pads": tuple(rng.randint(0, 2) for _ in range(4))}


def convolution(
    left: str, right: str, image: tuple[int, ...], weights: tuple[int, ...], group: int, attrs: dict[str, Any]
) -> Workload:
    """A channels-last convolution with its sums as they are, and constant weights."""
    b = GraphBuilder("convolution")
    x, w = b.input("x", image, left), b.input("w", weights, right)
    if left == "bfloat16":
        return make.of(b, b.node("Conv", x, w, layout="NHWC", group=group, **attrs), {"w"})
    fill = [b.input("fill", (), left)] if any(attrs["pads"]) else []
    return make.of(b, b.node("IntegerConv", x, w, *fill, layout="NHWC", group=group, **attrs), {"w"})


def depthwise(rng: random.Random) -> Workload:
    """A convolution of each channel by itself, of as many channels as vectors hold or some more."""
    channels, kernel = rng.randint(16, 50), (rng.randint(1, 5), rng.randint(1, 5))
    image = (rng.randint(1, 2), rng.randint(9, 14), rng.randint(9, 14), channels)
    return convolution("uint8", "int8", image, (*kernel, 1, channels), channels, window(rng))


def run(workload: Workload, target: Target, rng: random.Random, wanted: dict[str, Any]) -> None:
    """Run a random configuration that has these values by NumPy, the interpreter and, where it can, this machine."""
    space, program = space_for(workload, target), workload.program()
    population = space.population(np.random.default_rng(rng.randrange(1 << 30)), 512)
    columns, chosen = population.columns(), np.ones(len(population), dtype=bool)
    for name, value in wanted.items():
        chosen &= columns[name] == value
    config = population.config(int(rng.choice(np.flatnonzero(chosen))))
    inputs = workload.random_inputs(rng.randrange(99))
    schedule = space.apply(program, config)
    arrays = dict(zip([t.name for t in program.inputs], inputs, strict=True))
    found = {t.name: np.zeros(t.shape, t.dtype) for t in program.outputs}
    interpreter.run_program(lower_schedule(schedule, program.args), {**arrays, **found})
    expected = workload.reference(inputs)
    error = relative_error([found[t.name] for t in program.outputs], expected)
    assert error <= (0 if expected[0].dtype == np.int32 else 1e-2), f"{error:.3g}: {config} of {workload}"
    if not Target.detect().lacks(target):
        code = run_machine_code(schedule, program.args, arrays, target=target, constants=program.constants)
        for tensor in program.outputs:
            assert code[tensor.name].tobytes() == found[tensor.name].tobytes(), f"{config} of {workload}"


@pytest.mark.parametrize("seed", range(12))
def test_depthwise_windows_agree(seed: int) -> None:
    rng = random.Random(seed)
    run(depthwise(rng), VNNI, rng, {})


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 400))
def test_many_depthwise_windows_agree(seed: int) -> None:
    rng = random.Random(seed)
    run(depthwise(rng), VNNI, rng, {})


def test_depthwise_windows_have_an_instruction() -> None:
    attrs = {"pads": (1, 1, 1, 1)}
    workload = convolution("uint8", "int8", (1, 9, 9, 32), (3, 3, 1, 32), 32, attrs)
    schedule = (space := space_for(workload, VNNI)).schedule(space.default())
    names = {call.name for stage in schedule.stages for call in stage.tensorized.values()}
    assert names == {by_name("taps_vpdpbusd_16x3").name}
