"""Prefetches ahead of a loop: through fused and split loops, inlined stages, and an index in memory."""

from __future__ import annotations

import numpy as np
import pytest

import autotune
from autotune import te
from autotune.codegen.interpreter import run_program
from autotune.lower import lower_schedule, program_text
from autotune.lower.ir import Prefetch, walk
from autotune.te.tensor import Tensor

ROWS, COUNT, WIDTH = 40, 21, 48


def gathered(index_shape: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of a table by indices that may count from the end."""
    table = te.placeholder((ROWS, WIDTH), name="table")
    index = te.placeholder(index_shape, name="index", dtype="int64")

    def element(*at: te.Expr) -> te.Expr:
        chosen = index(*at[:-1])
        return table(te.if_then_else(chosen < 0, chosen + ROWS, chosen), at[-1])

    return table, index, te.compute((*index_shape, WIDTH), element, name="out")


def test_a_row_is_looked_up_some_iterations_ahead() -> None:
    table, index, out = gathered((COUNT,))
    s = te.create_schedule(out.op)
    s[out].prefetch(table, s[out].op.axis[0], 3)
    text = program_text(lower_schedule(s, [table, index, out]))
    assert "index[min(i0 + 3, 20)]" in text
    assert "prefetch table[" in text
    assert f"unrolled (p1, 0, {WIDTH // 16})" in text


def test_fused_indices_move_on_to_the_next_row_of_the_index() -> None:
    table, index, out = gathered((3, 7))
    s = te.create_schedule(out.op)
    fused = s[out].fuse(*s[out].op.axis[:2])
    s[out].prefetch(table, fused, 4)
    text = program_text(lower_schedule(s, [table, index, out]))
    assert "index[min((i0.i1.fused + 4) // 7, 2), (i0.i1.fused + 4) % 7]" in text


def test_what_an_inlined_stage_reads_is_fetched() -> None:
    a = te.placeholder((8, 64), name="a")
    b = te.compute((8, 64), lambda i, j: a[i, j] * 2.0, name="b")
    c = te.compute((8, 64), lambda i, j: b[i, j] + 1.0, name="c")
    s = te.create_schedule(c.op)
    with pytest.raises(autotune.errors.ScheduleError, match="c does not read a; it reads: b"):
        s[c].prefetch(a, s[c].op.axis[0], 1)
    s[b].compute_inline()
    s[c].prefetch(a, s[c].op.axis[0], 1)
    assert "prefetch a[i + 1, p1 * 16]" in program_text(lower_schedule(s, [a, c]))


@pytest.mark.parametrize("shape", [(COUNT,), (3, 7), (1,)])
@pytest.mark.parametrize("distance", [1, 2, 50])
@pytest.mark.parametrize("block", [1, 4])
def test_the_numbers_stay(shape: tuple[int, ...], distance: int, block: int) -> None:
    """NumPy, the interpreter and machine code agree; indices at both ends, negative ones among them."""
    table, index, out = gathered(shape)
    chosen_rows = int(np.prod(shape))
    s = te.create_schedule(out.op)
    *outer, last = s[out].op.axis
    row = s[out].fuse(*outer) if len(outer) > 1 else outer[0]
    if block > 1:
        _, row = s[out].split(row, factor=block)
    s[out].prefetch(table, row, distance)
    s[out].vectorize(s[out].split(last, factor=16)[1])
    lowered = lower_schedule(s, [table, index, out])
    fetches = any(isinstance(node, Prefetch) for kernel in lowered.kernels for node in walk(kernel.body))
    assert fetches == (chosen_rows > 1)
    rng = np.random.default_rng(0)
    values = rng.standard_normal((ROWS, WIDTH), dtype=np.float32)
    chosen = rng.integers(-ROWS, ROWS, shape)
    chosen.flat[-1] = -1
    expected = values[chosen]
    interpreted, compiled = np.zeros_like(expected), np.zeros_like(expected)
    run_program(lowered, {"table": values, "index": chosen, "out": interpreted})
    autotune.build(s, [table, index, out])(values, chosen, compiled)
    np.testing.assert_array_equal(interpreted, expected)
    np.testing.assert_array_equal(compiled, expected)


def pooled(size: int = 12, window: int = 3, channels: int = 32) -> tuple[Tensor, Tensor]:
    """Sums of the windows of an image, channels last."""
    out = size - window + 1
    image = te.placeholder((size, size, channels), name="image")
    p, q = te.reduce_axis((0, window), name="p"), te.reduce_axis((0, window), name="q")

    def element(i: te.Expr, j: te.Expr, c: te.Expr) -> te.Expr:
        return te.sum(image[i + p, j + q, c], axis=[p, q])

    return image, te.compute((out, out, channels), element, name="out")


def test_places_that_share_a_line_are_fetched_once() -> None:
    """Bytes in groups of four: the last two dimensions of 8 x 4 are half a line, those of 40 x 4 two and a half."""
    for width, lines in ((8, ""), (40, "unrolled (p1, 0, 3) {")):
        a = te.placeholder((8, width, 4), name="a", dtype="int8")
        b = te.compute((8, width, 4), lambda i, j, k, a=a: a[i, j, k] + a[i, j, k], name="b")
        s = te.create_schedule(b.op)
        s[b].prefetch(a, s[b].op.axis[0], 1)
        text = program_text(lower_schedule(s, [a, b]))
        assert lines in text
        assert ("prefetch a[i + 1, p1 * 16, 0]" if lines else "prefetch a[i + 1, 0, 0]") in text


def test_what_a_stage_computed_in_the_loop_reads_is_fetched() -> None:
    """The accumulator of a tile reads windows of the image, some tiles ahead; the last tile has no next one."""
    image, out = pooled()
    s = te.create_schedule(out.op)
    sums = s[s.cache_write(out, "local")]
    i, j, c = s[out].op.axis
    tiles, inner = s[out].split(j, factor=4)
    s[out].reorder(i, tiles, inner, c)
    with pytest.raises(autotune.errors.ScheduleError, match=r"out does not read image; it reads: out\.local"):
        s[out].prefetch(image, tiles, 2)
    sums.compute_at(s[out], tiles)
    with pytest.raises(autotune.errors.ScheduleError, match=r"out does not read image; it reads: out\.local"):
        s[out].prefetch(image, inner, 2)
    s[out].prefetch(image, tiles, 2)
    lowered = lower_schedule(s, [image, out])
    text = program_text(lowered)
    for line in (
        "unrolled (p0, 0, 3) {",
        "unrolled (p1, 0, 6) {",
        "prefetch image[i + p0, j.outer * 4 + p1 + 8, p2 * 16]",
    ):
        assert line in text
    values = np.random.default_rng(0).integers(-9, 9, (12, 12, 32)).astype(np.float32)
    (expected,) = te.evaluate([out], {image: values})
    interpreted, compiled = np.zeros_like(expected), np.zeros_like(expected)
    run_program(lowered, {"image": values, "out": interpreted})
    autotune.build(s, [image, out])(values, compiled)
    np.testing.assert_array_equal(interpreted, expected)
    np.testing.assert_array_equal(compiled, expected)
