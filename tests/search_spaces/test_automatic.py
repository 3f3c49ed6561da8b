"""Automatic sketches: what they declare for well-known programs, and that all of their schedules are right."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune import te
from autotune.errors import KnobError
from autotune.schedule import Schedule
from autotune.schedule.knob import Value
from autotune.target import Target
from search_spaces.automatic import Automatic
from search_spaces.sketch import Sketch
from tests.schedule.machine import run_machine_code
from tests.schedule.random_programs import random_program
from tests.schedule.three_ways import all_outputs

TARGET = Target.parse("x86-64-v3", 2)


def sketch_of(*outputs: te.Tensor) -> Sketch:
    return Sketch(Automatic(outputs, TARGET), outputs)


def dense() -> tuple[te.Tensor, ...]:
    a, b = te.placeholder((64, 96), name="A"), te.placeholder((96, 80), name="B")
    bias, k = te.placeholder((80,), name="bias"), te.reduce_axis((0, 96), name="k")
    c = te.compute((64, 80), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((64, 80), lambda i, j: c[i, j] + bias[j], name="D")
    return a, b, bias, te.compute((64, 80), lambda i, j: te.maximum(d[i, j], 0.0), name="E")


def softmax() -> tuple[te.Tensor, ...]:
    x, m, n = (
        te.placeholder((32, 100), name="x"),
        te.reduce_axis((0, 100), name="m"),
        te.reduce_axis((0, 100), name="n"),
    )
    top = te.compute((32,), lambda i: te.max(x[i, m], axis=m), name="top")
    e = te.compute((32, 100), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    total = te.compute((32,), lambda i: te.sum(e[i, n], axis=n), name="total")
    return x, te.compute((32, 100), lambda i, j: e[i, j] / total[i], name="y")


def blur() -> tuple[te.Tensor, ...]:
    x = te.placeholder((66, 66), name="x")
    h = te.compute((66, 64), lambda i, j: te.exp(x[i, j]) + x[i, j + 1] + x[i, j + 2], name="h")
    return x, te.compute((64, 64), lambda i, j: h[i, j] + h[i + 1, j] + h[i + 2, j], name="v")


def convolution() -> tuple[te.Tensor, ...]:
    """A 3x3 convolution with padding."""
    x, w = te.placeholder((10, 12, 8), name="x"), te.placeholder((3, 3, 8, 16), name="w")
    padded = te.compute(
        (12, 14, 8),
        lambda y, z, c: te.if_then_else(
            te.all(y > 0, y < 11, z > 0, z < 13), x[y - 1, z - 1, c], te.const(0.0)
        ),
        name="padded",
    )
    dy, dx, c = (te.reduce_axis((0, n), name=name) for n, name in ((3, "dy"), (3, "dx"), (8, "c")))
    out = te.compute(
        (10, 12, 16),
        lambda y, z, k: te.sum(padded[y + dy, z + dx, c] * w[dy, dx, c, k], axis=[dy, dx, c]),
        name="out",
    )
    return x, w, out


def test_a_product_is_tiled_and_what_finishes_it_is_fused() -> None:
    sketch = sketch_of(dense()[-1])
    assert [k.name for k in sketch.knobs] == [
        "E_vectors",
        "E_rows",
        "E_order",
        "E_parallel",
        "E_unroll",
    ]
    assert [c.name for c in sketch.constraints] == ["E_registers"]
    s = sketch.schedule({})
    assert s["D"].attach_type == "inline"
    assert (s["C"].attach_stage, s["C"].scope) == (s["E"], "local")


def test_reductions_of_rows_keep_partial_vectors_beside_their_readers() -> None:
    sketch = sketch_of(softmax()[-1])
    places = {k.name: k.values for k in sketch.knobs if "_in_" in k.name}
    assert places == {
        "total_in_y_row": ("root", "tile", "row"),
        "e_in_y_row": ("root", "tile", "row", "inline"),
        "e_in_y_tile": ("root", "tile", "inline"),
        "e_in_place": ("root", "inline"),
        "top_in_y_tile": ("root", "tile"),
        "top_in_y_row": ("root", "tile", "row"),
        "top_in_e_row": ("root", "tile", "row"),
    }


def test_a_producer_of_a_stencil_may_be_computed_in_tiles() -> None:
    sketch = sketch_of(blur()[-1])
    inside = sketch.schedule({"h_in_v_row": "tile", "v_row_block": 16})
    assert inside["h"].attach_stage is inside["v"]
    assert sketch.schedule({})["h"].attach_type == "root"


def assert_right(
    inputs: list[te.Tensor], outputs: list[te.Tensor], arrays: list[Any], schedule: Schedule, atol: float
) -> None:
    """Machine code computes what NumPy does."""
    named = {tensor.name: array for tensor, array in zip(inputs, arrays, strict=True)}
    expected = te.evaluate(outputs, dict(zip(inputs, arrays, strict=True)))
    found = run_machine_code(schedule, [*inputs, *outputs], named)
    for tensor, wanted in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(found[schedule.name_of(tensor)], wanted, rtol=2e-4, atol=atol)


def some_configs(sketch: Sketch, seed: int, count: int) -> list[dict[str, Value]]:
    """The default and random configurations that keep the constraints, those of paths met here first too."""
    rng = random.Random(seed)
    found = [sketch.default]
    for _ in range(20 * count):
        config = {knob.name: rng.choice(knob.values) for knob in sketch.knobs}
        columns = {name: np.asarray([value]) for name, value in config.items()}
        if len(found) <= count and all(c.mask(columns)[0] for c in sketch.constraints):
            with suppress(KnobError):
                sketch.bind(config)
                found.append(config)
    return found


@pytest.mark.parametrize("program", [dense, softmax, blur, convolution])
def test_every_schedule_computes_the_same(program: Callable[[], tuple[te.Tensor, ...]]) -> None:
    *inputs, output = program()
    sketch = sketch_of(output)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(t.shape).astype(t.dtype) for t in inputs]
    for config in some_configs(sketch, 0, 6):
        assert_right(inputs, [output], arrays, sketch.schedule(config), 1e-3)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_random_programs_have_automatic_schedules(seed: int) -> None:
    program = random_program(random.Random(seed))
    inputs, outputs = program.tensors()
    outputs = all_outputs(outputs)
    sketch = sketch_of(*outputs)
    for config in some_configs(sketch, seed, 2):
        assert_right(
            inputs, outputs, program.arrays(seed), sketch.schedule(config), max(1e-3, program.tolerance)
        )
