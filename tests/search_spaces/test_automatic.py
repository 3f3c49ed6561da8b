"""Automatic sketches: what they declare for well-known programs, and that all of their schedules are right."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune import te
from autotune.errors import KnobError
from autotune.graph.program import ProgramWorkload
from autotune.lower.examples import loops
from autotune.schedule import Schedule
from autotune.schedule.knob import Value
from autotune.target import Target
from cost_models.program_default import program_default
from search_spaces.programs import program as program_space
from search_spaces.programs.automatic import Automatic
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


def product(
    rows: int, columns: int, steps: int, left: str = "ik", right: str = "kj"
) -> tuple[te.Tensor, ...]:
    """A product whose operands have their axes in any order."""
    extents = {"i": rows, "j": columns, "k": steps}
    k = te.reduce_axis((0, steps), name="k")
    a = te.placeholder(tuple(extents[x] for x in left), name="A")
    b = te.placeholder(tuple(extents[x] for x in right), name="B")

    def element(i: te.IterVar, j: te.IterVar) -> te.Expr:
        at = {"i": i, "j": j, "k": k}
        return te.sum(a(*(at[x] for x in left)) * b(*(at[x] for x in right)), axis=k)

    return a, b, te.compute((rows, columns), element, name="C")


def strided_convolution(size: int = 11) -> tuple[te.Tensor, ...]:
    """A convolution with stride 2, planes first."""
    shape = (16, size // 2, size // 2)
    x, w = te.placeholder((8, size, size), name="x"), te.placeholder((16, 8, 3, 3), name="w")
    c, dy, dx = (te.reduce_axis((0, n), name=name) for n, name in ((8, "c"), (3, "dy"), (3, "dx")))
    out = te.compute(
        shape,
        lambda f, i, j: te.sum(x[c, i * 2 + dy, j * 2 + dx] * w[f, c, dy, dx], axis=[c, dy, dx]),
        name="out",
    )
    return x, w, te.compute(shape, lambda f, i, j: te.maximum(out[f, i, j], 0.0), name="relu")


def transposed_sums() -> tuple[te.Tensor, ...]:
    """Weighted sums of matrices, transposed."""
    a, b, k = (
        te.placeholder((20,), name="A"),
        te.placeholder((20, 24, 64), name="B"),
        te.reduce_axis((0, 20), name="k"),
    )
    return a, b, te.compute((64, 24), lambda i, j: te.sum(a[k] * b[k, j, i], axis=k), name="C")


def batch_last() -> tuple[te.Tensor, ...]:
    """A product a batch element, the batch the last axis of the result."""
    a, b = te.placeholder((4, 24, 20), name="A"), te.placeholder((20, 16, 4), name="B")
    k = te.reduce_axis((0, 20), name="k")
    return a, b, te.compute((24, 16, 4), lambda i, j, n: te.sum(a[n, i, k] * b[k, j, n], axis=k), name="C")


def sums_of_lines() -> tuple[te.Tensor, ...]:
    """Sums over two axes, the contiguous one stated first."""
    x = te.placeholder((6, 5, 40), name="x")
    n, m = te.reduce_axis((0, 40), name="n"), te.reduce_axis((0, 6), name="m")
    return x, te.compute((5,), lambda i: te.sum(x[m, i, n], axis=[n, m]), name="y")


def layer_norm() -> tuple[te.Tensor, ...]:
    x, m, n = te.placeholder((12, 72), name="x"), *(te.reduce_axis((0, 72), name=name) for name in "mn")
    mean = te.compute((12,), lambda i: te.sum(x[i, m] * (1 / 72), axis=m), name="mean")
    d = te.compute((12, 72), lambda i, j: te.exp(x[i, j]) - mean[i], name="d")
    square = te.compute((12,), lambda i: te.sum(d[i, n] * d[i, n], axis=n), name="square")
    return x, te.compute((12, 72), lambda i, j: d[i, j] * te.rsqrt(square[i] + 1.0), name="y")


def default_schedule(args: Sequence[te.Tensor]) -> Schedule:
    """Return the schedule with which ``tune_schedule(None, ...)`` begins."""
    function = Automatic(args[-1:], TARGET)
    sketch = Sketch(function, args[-1:])
    space = program_space.space(ProgramWorkload.of(args), TARGET, sketch)
    return sketch.schedule(program_default(space, function))


def vector_updates(text: str) -> list[tuple[str, list[str]]]:
    """The innermost vector loop and the last indices of what is stored and read, of each multiply-add of a program."""
    found, vector = [], ""
    for line in text.splitlines():
        if match := re.search(r"vectorized \(([\w.]+),", line):
            vector = match[1]
        elif re.search(r"\] \+ .*\] \* ", line):
            found.append((vector, [index.split(", ")[-1] for index in re.findall(r"\[([^\]]*)\]", line)]))
    return found


@pytest.mark.parametrize(("left", "right"), [("ik", "kj"), ("ki", "kj"), ("ik", "jk"), ("ki", "jk")])
@pytest.mark.parametrize(("rows", "columns"), [(512, 512), (512, 128), (128, 512)])
def test_vectors_of_a_product_are_contiguous_in_the_output_and_in_one_operand(
    rows: int, columns: int, left: str, right: str
) -> None:
    updates = vector_updates(loops(default_schedule(product(rows, columns, 256, left, right))))
    assert updates
    for vector, (stored, _, first, second) in updates:
        assert stored.endswith(vector)
        assert [vector in read.split(" + ") for read in (first, second)] == [False, True]


def test_a_product_has_the_space_of_a_model_and_what_finishes_it_is_fused() -> None:
    sketch = sketch_of(dense()[-1])
    names = [k.name for k in sketch.knobs]
    assert names[:4] == ["E_rows", "E_vectors", "E_row_block", "E_vector_block"]
    assert "E_pack" in names
    assert [c.name for c in sketch.constraints][:2] == ["E_registers", "E_body"]
    s = sketch.schedule({})
    assert s["D"].attach_type == "inline"
    assert (s["C"].attach_stage, s["C"].scope) == (s["E"], "local")


@pytest.mark.parametrize(
    ("program", "regions"),
    [
        (softmax, [("normalization", {"y", "total", "e", "top"})]),
        (layer_norm, [("normalization", {"y", "square", "d", "mean"})]),
        (blur, [("elementwise", {"v"}), ("elementwise", {"h"})]),
        (convolution, [("convolution", {"out", "padded"})]),
        (strided_convolution, [("elementwise", {"relu"}), ("convolution", {"out"})]),
        (batch_last, [("elementwise", {"C"}), ("contraction", {"C.global"})]),
        (sums_of_lines, [("reduction", {"y"})]),
    ],
)
def test_regions_and_their_families_follow_from_reads(
    program: Callable[[], tuple[te.Tensor, ...]], regions: list[tuple[str, set[str]]]
) -> None:
    found = Automatic(program()[-1:], TARGET).regions
    assert [(r.space and r.space.family, set(r.stages)) for r in found] == regions


@pytest.mark.parametrize("program", [strided_convolution(113), transposed_sums()])
def test_vectors_are_not_gathered(program: tuple[te.Tensor, ...]) -> None:
    updates = vector_updates(loops(default_schedule(program)))
    assert updates
    for vector, (stored, _, first, second) in updates:
        assert stored.endswith(vector)
        assert [vector in read.split(" + ") for read in (first, second)].count(True) == 1


def test_a_producer_of_a_stencil_may_be_computed_in_tiles() -> None:
    sketch = sketch_of(blur()[-1])
    inside = sketch.schedule({"h_in_v_row": "tile", "v_row_block": 16})
    assert inside["h"].attach_stage is inside["v"]
    assert sketch.schedule({})["h"].attach_type == "root"


def test_what_a_nest_may_compute_on_the_way_is_not_prefetched() -> None:
    """A prefetch of what is inlined would be refused: images beyond the second cache could be placed nowhere."""
    x = te.placeholder((1026, 1024), name="x")
    h = te.compute((1026, 1024), lambda i, j: te.exp(x[i, j]), name="h")
    v = te.compute((1024, 1024), lambda i, j: h[i, j] + h[i + 1, j] + h[i + 2, j], name="v")
    sketch = sketch_of(v)
    places = next(knob for knob in sketch.knobs if knob.name == "h_in_v_row").values
    assert places == ("root", "tile", "row", "inline")
    assert all(sketch.path({"h_in_v_row": place}).error is None for place in places)


def test_a_product_of_one_row_a_batch_is_no_matrix_product() -> None:
    """Its rows are those of the batch, of which a library kernel would make one matrix."""
    a, b = te.placeholder((1, 20, 384), name="A"), te.placeholder((20, 384, 20), name="B")
    k = te.reduce_axis((0, 384), name="k")
    c = te.compute((20, 1, 20), lambda n, i, j: te.sum(a[i, n, k] * b[n, k, j], axis=k), name="C")
    assert "C_kernel" not in [knob.name for knob in sketch_of(c).knobs]


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


@pytest.mark.parametrize(
    "program",
    [
        dense,
        softmax,
        blur,
        convolution,
        strided_convolution,
        batch_last,
        transposed_sums,
        sums_of_lines,
        layer_norm,
        lambda: product(13, 9, 30, "ki", "jk"),
    ],
)
def test_every_schedule_computes_the_same(program: Callable[[], tuple[te.Tensor, ...]]) -> None:
    *inputs, output = program()
    sketch = sketch_of(output)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(t.shape).astype(t.dtype) for t in inputs]
    for config in some_configs(sketch, 0, 6):
        assert_right(inputs, [output], arrays, sketch.schedule(config), 1e-3)
    assert_right(inputs, [output], arrays, default_schedule([*inputs, output]), 1e-3)


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
