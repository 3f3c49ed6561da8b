"""Random products with weights of few bits: NumPy, the interpreter and machine code give one answer."""

from __future__ import annotations

import random

import pytest

from autotune.graph.build import GraphBuilder
from autotune.graph.region import Workload
from tests.schedule.machine import runnable_target
from tests.search_spaces import workloads as make
from tests.search_spaces.executions import check

STEPS = {"float32": 2e-5, "float16": 1e-3, "bfloat16": 8e-3}
"""By what results differ at most: of two bytes by a step, as sums in another order may round to the next number."""
TARGETS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")


def product(rng: random.Random) -> Workload:
    """Rows times weights of blocks, and what may follow."""
    bits = rng.choice((4, 8))
    block = rng.choice([size for size in (4, 8, 16, 32, 64) if size * bits >= 32])
    m, blocks, n = rng.choice((1, 1, 2, 5, 13)), rng.randint(1, 4), rng.randint(1, 50)
    dtype = rng.choice(("float32", "float32", "float32", "float16", "bfloat16"))
    b = GraphBuilder("product")
    steps = blocks * block
    operands = [b.input("x", (m, steps), dtype), b.input("words", (steps * bits // 32, n), "int32")]
    operands.append(b.input("scale", (blocks, n), rng.choice(("float32", dtype))))
    fixed = {"words", "scale"} if rng.random() < 0.8 else set[str]()
    if rng.random() < 0.5:
        operands.append(b.input("zero", (blocks, n), "uint8"))
        fixed |= {"zero"} if fixed else set()
    y = b.node("BlockMatMul", *operands, bits=bits, zero_point=rng.choice((0, 8, 1 << (bits - 1))))
    if rng.random() < 0.5:
        y = b.node("Add", y, b.input("bias", (n,), dtype))
    return make.of(b, b.node("Relu", y) if rng.random() < 0.5 else y, fixed)


def product_of_bytes(rng: random.Random) -> Workload:
    """The same of rows that are integers of three bytes already."""
    block, blocks, n = rng.choice((8, 16, 32, 64, 256)), rng.randint(1, 4), rng.randint(1, 70)
    m, k = rng.choice((1, 1, 2, 5, 13)), block * blocks
    b = GraphBuilder("product")
    operands = [
        b.input("planes", (3, m, k), "int8"),
        b.input("factors", (m, blocks)),
        b.input("sums", (m, blocks)),
    ]
    operands += [b.input("words", (k // 8, n), "int32"), b.input("scale", (blocks, n))]
    fixed = {"words", "scale"} if rng.random() < 0.8 else set[str]()
    if rng.random() < 0.5:
        operands.append(b.input("zero", (blocks, n), "uint8"))
        fixed |= {"zero"} if fixed else set()
    y = b.node("BlockDot", *operands, zero_point=rng.choice((0, 8)))
    return make.of(b, b.node("Relu", y) if rng.random() < 0.5 else y, fixed)


def rows_as_bytes(rng: random.Random) -> Workload:
    """Rows of float32, and a part of what such integers are."""
    block, blocks = rng.choice((8, 16, 32, 64, 256)), rng.randint(1, 5)
    b = GraphBuilder("rows")
    x = b.input("x", (rng.choice((1, 2, 5, 13)), block * blocks))
    factors = b.node("BlockFactors", x, block=block)
    made = rng.choice(("BlockFactors", "BlockPlanes", "PlaneSums"))
    return make.of(b, factors if made == "BlockFactors" else b.node(made, x, factors))


def run_block(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        region = rng.choice((product, product_of_bytes, product_of_bytes, rows_as_bytes))(rng)
        target = runnable_target(rng.choice(TARGETS))
        try:
            check(region, rng, target, STEPS.get(region.dtype, STEPS["float32"]))
        except Exception as error:  # noqa: BLE001  # whatever went wrong is reported with its workload
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}\n{target.cpu}\n{region}")


def test_all_executions_agree() -> None:
    run_block(range(12))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_all_executions_agree_on_many(block: int) -> None:
    run_block(range(1_000_000 + 50 * block, 1_000_050 + 50 * block))
