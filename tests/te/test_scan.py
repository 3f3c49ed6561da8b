"""``te.scan``: states that follow one another."""

from __future__ import annotations

import numpy as np
import pytest

import autotune
from autotune import te
from autotune.codegen import interpreter
from autotune.errors import ScheduleError
from autotune.lower import lower_schedule

pytestmark = pytest.mark.registers


def running_sum(steps: object = 6, width: object = 48) -> tuple[te.Tensor, ...]:
    x, state = te.placeholder((steps, width), name="X"), te.placeholder((steps, width), name="state")
    first = te.compute((1, width), lambda _, i: x[0, i], name="first")
    update = te.compute((steps, width), lambda t, i: state[t - 1, i] + x[t, i], name="update")
    return x, update, te.scan(first, update, state, name="sums", inputs=[x])


@pytest.mark.parametrize("sizes", [(6, 48), (te.var("t"), te.var("n"))], ids=["numbers", "sizes"])
def test_a_running_sum(sizes: tuple[object, object]) -> None:
    x, update, sums = running_sum(*sizes)
    assert tuple(sums.shape) == sizes
    value = np.random.default_rng(0).integers(-9, 9, (6, 48)).astype("float32")
    np.testing.assert_array_equal(te.evaluate([sums], {x: value})[0], value.cumsum(0))
    s = te.create_schedule(sums.op)
    s[update].compute_inline()
    s[sums].parallel(s[sums].op.axis[1]) if isinstance(sizes[1], int) else None
    found = np.zeros_like(value)
    autotune.build(s, [x, sums], threads=2)(value, found)
    np.testing.assert_array_equal(found, value.cumsum(0))


def test_the_axis_of_a_scan_starts_behind_the_first_states() -> None:
    *_, sums = running_sum()
    assert sums.op.scan_axis.dom == (1, 5)


def test_the_interpreter_agrees() -> None:
    x, _, sums = running_sum()
    value = np.random.default_rng(1).random((6, 48), dtype="float32")
    arrays = {"X": value, "sums": np.zeros_like(value)}
    interpreter.run_program(lower_schedule(te.create_schedule(sums.op), [x, sums]), arrays)
    np.testing.assert_allclose(arrays["sums"], value.cumsum(0), rtol=1e-6)


def test_two_states_with_a_product_in_each_step() -> None:
    steps, width = 5, 8
    x, w = te.placeholder((steps, width), name="X"), te.placeholder((width, width), name="W")
    h, c = te.placeholder((steps, width), name="h"), te.placeholder((steps, width), name="c")
    k = te.reduce_axis((0, width), name="k")
    gate = te.compute((steps, width), lambda t, i: te.sum(w[i, k] * h[t - 1, k], axis=k), name="gate")
    cell = te.compute((steps, width), lambda t, i: c[t - 1, i] * 0.5 + gate[t, i] + x[t, i], name="cell")
    hidden = te.compute((steps, width), lambda t, i: te.tanh(cell[t, i]) * c[t - 1, i], name="hidden")
    start = te.compute((1, width), lambda _, i: 0.5, name="start")
    hs, cs = te.scan([start, start], [hidden, cell], [h, c], name="rnn")
    assert (hs.value_index, cs.value_index) == (0, 1)
    rng = np.random.default_rng(2)
    xs, ws = rng.random((steps, width), dtype="float32"), rng.random((width, width), dtype="float32") - 0.5
    want_h, want_c = np.full((steps, width), 0.5), np.full((steps, width), 0.5)
    for t in range(1, steps):
        want_c[t] = want_c[t - 1] * 0.5 + ws @ want_h[t - 1] + xs[t]
        want_h[t] = np.tanh(want_c[t]) * want_c[t - 1]
    found = [np.zeros((steps, width), "float32") for _ in range(2)]
    autotune.build(te.create_schedule(hs.op), [x, w, hs, cs], threads=1)(xs, ws, *found)
    np.testing.assert_allclose(found[0], want_h, rtol=1e-4)
    np.testing.assert_allclose(found[1], want_c, rtol=1e-4)


def test_several_first_states() -> None:
    state = te.placeholder((9,), name="F", dtype="int64")
    first = te.compute((2,), lambda t: te.cast(t, "int64"), name="first")
    update = te.compute((9,), lambda t: state[t - 1] + state[t - 2], name="update")
    fibonacci = te.scan(first, update, state)
    found = np.zeros(9, "int64")
    autotune.build(te.create_schedule(fibonacci.op), [fibonacci], threads=1)(found)
    assert found.tolist() == [0, 1, 1, 2, 3, 5, 8, 13, 21]


@pytest.mark.parametrize("back", [0, -1, 2])
def test_a_step_that_is_not_computed_yet_is_refused(back: int) -> None:
    state = te.placeholder((6,), name="S")
    first = te.compute((1,), lambda t: 0.0, name="first")
    update = te.compute((6,), lambda t: state[t - back] + 1, name="update")
    with pytest.raises(TypeError, match=r"update reads the state S at step .*; it must be one to 1 before"):
        te.scan(first, update, state)


def test_states_that_do_not_go_together_are_refused() -> None:
    state, other = te.placeholder((6,), name="S"), te.placeholder((7,), name="O")
    first = te.compute((1,), lambda t: 0.0, name="first")
    update = te.compute((6,), lambda t: state[t - 1] + 1, name="update")
    with pytest.raises(TypeError, match="all updates and states must have one shape"):
        te.scan(first, update, other)
    with pytest.raises(TypeError, match="got 1, 1 and 2"):
        te.scan(first, update, [state, other])


def test_stages_within_a_step_have_no_loops_to_schedule() -> None:
    _, update, sums = running_sum()
    s = te.create_schedule(sums.op)
    with pytest.raises(ScheduleError, match="split: update is computed within the steps of sums"):
        s[update].split(update.op.axis[0], 2)
