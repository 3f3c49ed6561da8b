"""Random products and convolutions with stored weights: NumPy, the interpreter and machine code give one answer."""

from __future__ import annotations

import random

import pytest

from autotune.graph.build import GraphBuilder
from autotune.graph.ops.common import STORED
from autotune.graph.region import Workload
from autotune.passes.layout import stored_weights
from autotune.passes.layout.stored_weights import StoredWeights
from autotune.passes.options import options_of
from tests.schedule.machine import runnable_target
from tests.search_spaces import workloads as make
from tests.search_spaces.executions import check

TARGETS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")


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
