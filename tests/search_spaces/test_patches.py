"""Products of patches: the copy at every place and in any geometry, NumPy against machine code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from autotune.codegen import interpreter
from autotune.codegen.backend import compile_schedule
from autotune.graph.build import GraphBuilder
from autotune.graph.region import Workload
from autotune.lower import lower_schedule
from autotune.schedule.knob import Value
from search_spaces import spaces
from search_spaces.space import Space
from tests.search_spaces import workloads as make


def product(
    image: tuple[int, ...],
    kernel: tuple[int, ...],
    oc: int,
    turned: bool = False,
    before: bool = False,
    **attrs: Any,
) -> Workload:
    """Patches of an image [n, spatial..., c] times weights, bias and square behind.

    ``turned``: the image is given channels first; ``before``: bias and ReLU on its way.
    """
    b, rank = GraphBuilder("patches"), len(image) - 2
    x = b.input("x", (image[0], image[-1], *image[1:-1]) if turned else image)
    if turned:
        x = b.node("Transpose", x, perm=(0, *range(2, rank + 2), 1))
    if before:
        x = b.node("Relu", b.node("Add", x, b.input("s", image[-1:])))
    patches = b.node("Patches", x, kernel_shape=kernel, **attrs)
    w = b.input("w", (b.type_of(patches).shape[1], oc))
    y = b.node("Add", b.node("MatMul", patches, w), b.input("bias", (oc,)))
    return make.of(b, b.node("Mul", y, y), {"w", "bias"})


def matches(space: Space, config: Mapping[str, Value]) -> None:
    rng = np.random.default_rng(3)
    graph = space.workload.region.graph
    inputs = [rng.integers(-3, 4, graph.type_of(v).shape).astype(np.float32) for v in graph.inputs]
    for found, expected in zip(
        make.run_on(space, config, inputs), space.workload.reference(inputs), strict=True
    ):
        np.testing.assert_array_equal(found, expected, err_msg=str(dict(config)))


WORKLOADS: dict[str, Workload] = {
    "3x3": product((1, 9, 11, 16), (3, 3), 40, pads=(1, 1, 1, 1)),
    "two images": product((2, 7, 6, 24), (3, 3), 33, pads=(1, 1, 1, 1), strides=(2, 2)),
    "no padding": product((1, 8, 9, 20), (3, 2), 20),
    "dilation": product((1, 12, 13, 17), (3, 3), 17, dilations=(2, 3), pads=(2, 3, 1, 0)),
    "planes": product((1, 15, 14, 3), (5, 5), 24, turned=True, strides=(2, 2), pads=(2, 2, 2, 2)),
    "planes, no padding": product((1, 15, 14, 3), (3, 3), 24, turned=True, strides=(2, 2)),
    "stride of 1x1": product((1, 13, 12, 40), (1, 1), 32, strides=(2, 3)),
    "after ReLU": product((1, 9, 8, 12), (3, 3), 24, before=True, pads=(1, 1, 1, 1)),
    "after ReLU, no padding": product((1, 9, 8, 12), (3, 3), 24, before=True),
    "1-D": product((1, 40, 18), (5,), 19, pads=(2, 2)),
    "1-D stride": product((1, 40, 18), (1,), 19, strides=(3,)),
    "3-D": product((1, 4, 5, 6, 7), (2, 3, 2), 21, pads=(1, 1, 0, 0, 1, 2)),
    "larger than the image": product((1, 3, 2, 16), (5, 5), 16, pads=(2, 2, 2, 2)),
    "one channel": product((1, 11, 10, 1), (3, 5), 16, pads=(1, 2, 1, 2)),
    "one position": product((3, 3, 3, 8), (3, 3), 16),
    "long": product((1, 6, 6, 64), (3, 3), 32, pads=(1, 1, 1, 1)),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_random_schedules(name: str) -> None:
    space = spaces.space_for(WORKLOADS[name], make.host())
    for config in [space.default(), *space.population(np.random.default_rng(len(name)), 3)]:
        matches(space, config)


@pytest.mark.parametrize("tail", ["overlap", "peel"])
@pytest.mark.parametrize("stage", ["root", "block"])
@pytest.mark.parametrize("name", ["3x3", "two images", "stride of 1x1", "3-D"])
def test_copies_at_every_place(name: str, stage: str, tail: str) -> None:
    space = spaces.space_for(WORKLOADS[name], make.host())
    config = space.default() | {"stage": stage, "tail": tail, "rows": 5, "vectors": 1, "row_block": 1}
    matches(space, space.check(config))


@pytest.mark.parametrize("changed", [{"stage": "root"}, {"stage": "block", "row_block": 0}])
def test_with_blocks_of_the_reduction(changed: Mapping[str, Value]) -> None:
    space = spaces.space_for(WORKLOADS["long"], make.host())
    matches(space, space.check(space.default() | {"k_block": 256, "rows": 5, "tail": "peel"} | changed))


def random_product(seed: int) -> Workload:
    """Patches of any rank, window, stride, dilation and padding."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    kernel, strides, dilations = (tuple(map(int, rng.integers(1, top, rank))) for top in (5, 4, 3))
    pads = tuple(map(int, rng.integers(0, 4, 2 * rank)))
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    size = [
        max(1, span - before - after + int(rng.integers(0, 7)))
        for span, before, after in zip(spans, pads[:rank], pads[rank:], strict=True)
    ]
    image = (int(rng.integers(1, 3)), *size, int(rng.choice([1, 3, 8, 17, 32])))
    turned = bool(rng.integers(2))
    attrs = {"strides": strides, "dilations": dilations, "pads": pads}
    return product(image, kernel, int(rng.choice([1, 5, 16, 37])), turned=turned, **attrs)


SMALL: dict[str, Workload] = {
    "two images": product((2, 5, 4, 5), (3, 3), 17, pads=(1, 1, 1, 1), strides=(2, 2)),
    "planes": product((1, 9, 8, 3), (5, 5), 17, turned=True, strides=(2, 2), pads=(2, 2, 2, 2)),
    "1-D": product((1, 12, 7), (5,), 19, pads=(2, 2)),
    "3-D": product((1, 3, 4, 3, 4), (2, 3, 2), 17, pads=(1, 1, 0, 0, 1, 2)),
    "one channel": product((1, 6, 7, 1), (3, 5), 17, pads=(1, 2, 1, 2)),
    "after ReLU": product((1, 5, 4, 5), (3, 3), 17, before=True, pads=(1, 1, 1, 1)),
}
"""Small enough for the interpreter, with more output channels than a vector has lanes."""


@pytest.mark.parametrize("name", SMALL)
def test_the_interpreter_computes_the_same(name: str) -> None:
    workload = SMALL[name]
    space = spaces.space_for(workload, make.host())
    (config,) = space.population(np.random.default_rng(1), 1)
    rng = np.random.default_rng(2)
    types = [workload.region.graph.type_of(v) for v in workload.region.graph.inputs]
    inputs = [rng.integers(-3, 4, found.shape).astype(np.float32) for found in types]
    program = workload.program()
    lowered = lower_schedule(space.apply(program, config), program.args)
    arrays = {t.name: a for t, a in zip(program.inputs, inputs, strict=True)}
    arrays |= {t.name: np.full(t.shape, np.nan, np.float32) for t in program.outputs}
    interpreter.run_program(lowered, arrays)
    for tensor, expected in zip(program.outputs, workload.reference(inputs), strict=True):
        np.testing.assert_array_equal(arrays[tensor.name], expected, err_msg=str(config))


@pytest.mark.parametrize("seed", range(16))
def test_any_geometry(seed: int) -> None:
    space = spaces.space_for(random_product(seed), make.host())
    for config in space.population(np.random.default_rng(seed), 2):
        matches(space, config)


def test_the_image_is_copied_in_full_vectors() -> None:
    """Quotients and remainders of a run fall away: no lane has an address of its own."""
    space = spaces.space_for(WORKLOADS["3x3"], make.AVX512)
    program = space.workload.program()
    schedule = space.apply(program, space.default() | {"stage": "block"})
    code = compile_schedule(
        schedule, program.args, space.target, constants=program.constants, strides=program.strides
    )
    assert "gather" not in code.ir
