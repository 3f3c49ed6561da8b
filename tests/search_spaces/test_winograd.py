"""Random convolutions by Winograd's algorithm: NumPy, the interpreter and machine code give one answer."""

from __future__ import annotations

import random

import numpy as np
import pytest

from autotune.graph import evaluate
from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.passes.algorithms.winograd import Winograd
from autotune.passes.options import options_of
from tests.schedule.machine import runnable_target
from tests.search_spaces import workloads as make
from tests.search_spaces.executions import check

TARGETS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
KINDS = ("line", "rows", "image", "volume", "strided")
RULES = ((2, 3), (4, 3), (6, 3), (2, 5), (4, 5))
"""Tiles and taps."""
STRIDED = ((5, 3), (7, 3), (4, 5), (5, 7))
"""The same with stride 2."""


def convolution(rng: random.Random, kind: str) -> tuple[Graph, Winograd]:
    """Windows of one or two small inputs along a line, the rows of an image, both of its axes, or those in a volume."""
    strided = kind == "strided"
    tile, taps = rng.choice(STRIDED if strided else RULES)
    rank, axes = {"line": (1, 1), "rows": (2, 1), "image": (2, 2)}.get(
        kind, (rng.choice((2, 3)) if strided else 3, 2)
    )
    outer = (rng.randint(1, 3),) if rank == 3 else (1,) * (rank - axes)
    kernel = (*outer, *(taps,) * axes)
    strides = (
        (*(rng.choice((1, 1, 2)) for _ in outer), *(2 if strided else 1,) * axes)
        if rank == 3
        else (2 if strided else 1,) * rank
    )
    dilations = tuple(rng.choice((1, 1, 2, 3)) if k > 1 and not strided else 1 for k in kernel)
    reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    ends = [[rng.randint(0, r) for r in reach] for _ in range(2)]
    least = [max(1, r + 1 - a - b) for r, a, b in zip(reach, *ends, strict=True)]
    size = tuple(rng.randint(low, low + 9) for low in least)
    c, oc = rng.choice((1, 3, 8, 17, 20)), rng.choice((1, 5, 16, 33))
    b = GraphBuilder("convolution")
    x = b.input("x", (rng.randint(1, 2), *size, c))
    w = b.constant(
        "w", np.random.default_rng(rng.randrange(1 << 30)).standard_normal((*kernel, c, oc), np.float32)
    )
    y = b.node("Conv", x, w, layout="NHWC", strides=strides, pads=(*ends[0], *ends[1]), dilations=dilations)
    return b.graph(b.node("Relu", y) if rng.random() < 0.5 else y), Winograd(
        tile, taps=taps, axes=axes, stride=strides[-1]
    )


def run(graph: Graph, rule: Winograd, rng: random.Random) -> None:
    """The whole in NumPy, then the dispatches of the option in all ways."""
    x = np.random.default_rng(rng.randrange(1 << 30)).standard_normal(graph.type_of("x").shape, np.float32)
    ((expected,), (found,)) = (evaluate.run(one, {"x": x}).values() for one in (graph, rule.apply(graph)))
    assert np.abs(found - expected).max() <= rule.error * np.abs(expected).max()
    constants = set(graph.constants)
    region = graph.replace(inputs=(*graph.inputs, *constants), constants={})
    workload = make.Workload.from_region(make.Region(region, frozenset(constants)))
    (option,) = [option for option in options_of(workload) if option.name == rule.label]
    first, products, last = (step.region.anchors[0].op for step in option.regions)
    assert (first, last) == ("WinogradInput", "WinogradOutput")
    assert products in ("MatMul", "WinogradProducts")
    target = runnable_target(rng.choice(TARGETS))
    for step in option.regions:
        check(step, rng, target)


def run_block(kind: str, seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        graph, rule = convolution(rng, kind)
        try:
            run(graph, rule, rng)
        except Exception as error:  # noqa: BLE001  # whatever went wrong is reported with its convolution
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}\n{rule}\n{graph}")


@pytest.mark.parametrize("kind", KINDS)
def test_all_executions_agree(kind: str) -> None:
    run_block(kind, range(8))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", range(10))
def test_all_executions_agree_on_many(kind: str, block: int) -> None:
    run_block(kind, range(1_000 + 20 * block, 1_020 + 20 * block))


@pytest.mark.parametrize(
    ("rule", "label"),
    [
        (Winograd(4), "winograd F(4x4)"),
        (Winograd(6, fused=True), "winograd F(6x6) fused"),
        (Winograd(2, axes=1), "winograd F(2)"),
        (Winograd(4, taps=5), "winograd F(4x4, 5x5)"),
        (Winograd(4, taps=5, axes=1), "winograd F(4, 5)"),
        (Winograd(5, taps=7, stride=2), "winograd F(5x5, 7x7), stride 2"),
    ],
)
def test_labels_name_tiles_and_windows(rule: Winograd, label: str) -> None:
    assert rule.label == label
