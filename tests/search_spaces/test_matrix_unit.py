"""Random products on a target with a matrix unit: NumPy, the interpreter and machine code give one answer."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from autotune.codegen import interpreter
from autotune.graph.build import GraphBuilder
from autotune.graph.region import Workload
from autotune.lower import lower_schedule
from autotune.lower.ir import Allocate, Intrinsic, walk
from autotune.target import Target
from autotune.tuning.measure.check import relative_error
from cost_models import analytic
from search_spaces.space import Space
from search_spaces.spaces import space_for
from tests.schedule.machine import run_machine_code
from tests.search_spaces import workloads as make

pytestmark = pytest.mark.registers

AMX = Target.parse("x86-64-v4-amx", threads=2)
TYPES = ("uint8", "int8", "bfloat16")


def product(left: str, right: str, m: int, k: int, n: int, *, constant: bool = True) -> Workload:
    """Rows times weights; in float32 of what is read where the factors are floats."""
    b = GraphBuilder("product")
    x, w = b.input("x", (m, k), left), b.input("w", (k, n), right)
    y = b.node("MatMul" if left in ("bfloat16", "float32") else "IntegerMatMul", x, w)
    return make.of(b, y, {"w"} if constant else set())


def convolution(
    left: str, right: str, image: tuple[int, int, int], oc: int, kernel: int, stride: int
) -> Workload:
    """Windows of an image; what is padded counts as a number that is given."""
    b = GraphBuilder("convolution")
    x, w = b.input("x", (1, *image), left), b.input("w", (kernel, kernel, image[-1], oc), right)
    fill = [b.input("fill", (), left)] if kernel > 1 else []
    window = {"strides": (stride, stride), "pads": (kernel // 2,) * 4, "dilations": (1, 1)}
    return make.of(b, b.node("IntegerConv", x, w, *fill, layout="NHWC", **window), {"w"})


def rows_of_channels(rng: random.Random) -> Workload:
    """Windows of several channels as rows of one: the next result begins a few elements further."""
    across, depth = rng.randint(2, 6), 2 * rng.choice((*range(4, 17), 18, 20, 22))
    b = GraphBuilder("convolution")
    x = b.input("x", (1, rng.randint(3, 6), across * rng.choice((14, 16, 33)) + depth, 1), "bfloat16")
    w = b.input("w", (3, depth, 1, rng.choice((16, 24, 32, 64))), "bfloat16")
    window = {"strides": (rng.randint(1, 2), across), "pads": (1, across, 1, 0)}
    return make.of(b, b.node("ShortConv", x, w, layout="NHWC", **window), {"w"})


def groups_of_channels(rng: random.Random) -> Workload:
    """A product for each group of channels of the pixels of an image."""
    groups, depth = rng.randint(2, 4), rng.choice((16, 24, 40, 64))
    b = GraphBuilder("convolution")
    x = b.input("x", (1, rng.randint(2, 4), rng.choice((7, 14, 16, 33)), groups * depth), "bfloat16")
    w = b.input("w", (1, 1, depth, groups, rng.choice((16, 24, 32, 64))), "bfloat16")
    return make.of(b, b.node("ShortGroupedConv", x, w), {"w"})


def drawn(rng: random.Random) -> Workload:
    """A product or a convolution of random types and sizes, which tiles cover."""
    if rng.random() < 0.3:
        return rng.choice((rows_of_channels, groups_of_channels))(rng)
    left, right = rng.choice([(a, b) for a in TYPES for b in TYPES if (a == "bfloat16") == (b == "bfloat16")])
    depth, columns = rng.choice((16, 24, 36, 64, 96, 128, 192)), rng.choice((16, 24, 32, 48, 64))
    if left == "bfloat16" or rng.random() < 0.4:
        return product(left, right, rng.randint(16, 70), depth, columns, constant=rng.random() < 0.7)
    kernel, stride = rng.choice(((1, 1), (1, 2), (3, 1), (3, 2)))
    image = rng.randint(2, 4) * stride, rng.choice((7, 14, 28, 33)) * stride, rng.choice((16, 24, 64, 128))
    return convolution(left, right, image, columns, kernel, stride)


def by_tiles(space: Space, rng: random.Random) -> dict[str, object]:
    """A random configuration whose products are those of tiles."""
    population = space.population(np.random.default_rng(rng.randrange(1 << 30)), 4096)
    rows = np.flatnonzero(population.columns()["unit"] == "matrix")
    return population.config(int(rng.choice(rows)))


def run(rng: random.Random) -> None:
    workload = drawn(rng)
    space, program, inputs = (
        space_for(workload, AMX),
        workload.program(),
        workload.random_inputs(rng.randrange(99)),
    )
    config = by_tiles(space, rng)
    schedule = space.apply(program, config)
    arrays = dict(zip([t.name for t in program.inputs], inputs, strict=True))
    found = {t.name: np.zeros(t.shape, t.dtype) for t in program.outputs}
    interpreter.run_program(lower_schedule(schedule, program.args), {**arrays, **found})
    expected = workload.reference(inputs)
    exact = expected[0].dtype == np.int32
    error = relative_error([found[t.name] for t in program.outputs], expected)
    assert error <= (0 if exact else 1e-2), f"{error:.3g} with {config} of {workload}"
    if not Target.detect().lacks(AMX):
        code = run_machine_code(schedule, program.args, arrays, target=AMX, constants=program.constants)
        for tensor in program.outputs:
            assert code[tensor.name].tobytes() == found[tensor.name].tobytes(), f"{config} of {workload}"


@pytest.mark.parametrize("block", range(4))
def test_all_executions_agree(block: int) -> None:
    for seed in range(4 * block, 4 * block + 4):
        run(random.Random(seed))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(40))
def test_all_executions_agree_on_many(block: int) -> None:
    for seed in range(1000 + 10 * block, 1010 + 10 * block):
        run(random.Random(seed))


@pytest.mark.parametrize(("left", "right", "rate"), [("uint8", "int8", 16), ("bfloat16", "bfloat16", 8)])
def test_the_floor_is_that_of_tiles(left: str, right: str, rate: int) -> None:
    """A job searches what is far above its floor: that of float32 would be above what tiles take."""
    short, floats = product(left, right, 1024, 1024, 1024), product("float32", "float32", 1024, 1024, 1024)
    floor = analytic.floor(short, AMX)
    assert floor < analytic.floor(floats, AMX) / (rate - 1)
    assert floor <= analytic.default_seconds(space_for(short, AMX))


def test_a_dot_product_of_vectors_counts_once_for_the_steps_of_its_group() -> None:
    """Else bytes seem to take as long as float32 where there is no matrix unit, and no budget would choose them."""
    target = replace(Target.parse("x86-64-v4-bf16", threads=1), cpu="znver4")
    took = {
        left: analytic.default_seconds(space_for(product(left, right, 512, 512, 512), target))
        for left, right in (("uint8", "int8"), ("bfloat16", "bfloat16"), ("float32", "float32"))
    }
    assert took["uint8"] < 0.4 * took["float32"]
    assert took["bfloat16"] < 0.7 * took["float32"]


def test_pairs_of_bfloat16_have_a_rate_of_their_own() -> None:
    """Nothing is gained by them on Xeons, which make a quarter as many of them as of multiply-adds."""
    short, floats = (product(kind, kind, 512, 512, 512) for kind in ("bfloat16", "float32"))
    level = Target.parse("x86-64-v4-bf16", threads=1)
    for cpu, most in (("cooperlake", 3.0), ("znver4", 0.7)):
        target = replace(level, cpu=cpu)
        short_s, floats_s = (analytic.default_seconds(space_for(each, target)) for each in (short, floats))
        assert most - 2 < short_s / floats_s < most
    floors = [analytic.floor(each, level) for each in (short, floats)]
    assert floors[0] == floors[1], "shorter numbers may be widened, and multiplied in float32"


def test_the_default_takes_tiles_where_there_are_rows() -> None:
    config = analytic.default_config(space_for(product("uint8", "int8", 256, 256, 256), AMX))
    assert config["unit"] == "matrix"
    assert "unit" not in space_for(product("uint8", "int8", 1, 256, 256), AMX).names


@pytest.mark.parametrize(
    ("left", "right", "scratch"), [("uint8", "int8", False), ("bfloat16", "bfloat16", True)]
)
def test_sums_without_an_epilogue_are_stored_where_the_result_lies(
    left: str, right: str, scratch: bool
) -> None:
    space = space_for(product(left, right, 64, 64, 64), AMX)
    program = space.workload.program()
    config = {**analytic.default_config(space), "unit": "matrix"}
    (*_, kernel) = lower_schedule(space.apply(program, config), program.args).kernels
    assert any(isinstance(part, Intrinsic) for part in walk(kernel.body))
    stored = [part.buffer.shape for part in walk(kernel.body) if isinstance(part, Allocate)]
    sums_of_loops = (1, 1)  # of those that the product stands for
    assert any(size != sums_of_loops for size in stored) is scratch


def test_other_targets_have_no_such_choice() -> None:
    for name in ("x86-64-v4-vnni", "x86-64-v3", "aarch64"):
        assert "unit" not in space_for(product("uint8", "int8", 64, 64, 64), Target.parse(name)).names
