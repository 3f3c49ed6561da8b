"""Reducers of one's own, and domains that depend on other loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autotune
from autotune import te
from autotune.errors import ScheduleError

pytestmark = pytest.mark.registers

Array = np.ndarray[Any, Any]


def rows(n: int, m: int) -> tuple[te.Tensor, te.IterVar, Array]:
    a = te.placeholder((n, m), name="A")
    value = np.random.default_rng(0).integers(-4, 5, (n, m)).astype("float32")
    return a, te.reduce_axis((0, m), name="k"), value


def run(s: Any, args: list[te.Tensor], *inputs: Array, target: str = "host") -> Array:
    output = np.zeros(args[-1].op.shape, args[-1].dtype)
    autotune.build(s, args, target=target)(*inputs, output)
    return output


def test_the_name_of_a_reducer_says_nothing() -> None:
    a, k, x = rows(3, 300)  # more terms than a float32 sum has in one part
    largest = te.comm_reducer(lambda p, q: te.max(p, q), te.min_value, name="sum")
    c = te.compute((3,), lambda i: largest(a[i, k], axis=k), name="C")
    np.testing.assert_array_equal(te.evaluate([c], {a: x})[0], x.max(1))
    s = te.create_schedule(c.op)
    np.testing.assert_array_equal(run(s, [a, c], x), x.max(1))
    with pytest.raises(ScheduleError, match="k reduces by a custom reducer"):
        s[c].vectorize(s[c].op.reduce_axis[0])


def test_an_intrinsic_of_another_reducer_does_not_match() -> None:
    def row(reducer: Any, n: int) -> tuple[te.Tensor, te.Tensor]:
        a, k = te.placeholder((n,), name="a"), te.reduce_axis((0, n), name="k")
        return a, te.compute((1,), lambda i: reducer(a[k], axis=k), name="row")

    sums = te.comm_reducer(lambda p, q: p + q, lambda dtype: te.const(0, dtype), name="fold")
    products = te.comm_reducer(lambda p, q: p * q, lambda dtype: te.const(1, dtype), name="fold")
    intrin = te.decl_tensor_intrin(row(sums, 8)[1].op, kinds={"k": "unrolled"}, name="fold_8")
    for reducer, fits in ((sums, True), (products, False)):
        _, c = row(reducer, 8)
        s = te.create_schedule(c.op)
        if fits:
            s[c].tensorize(c.op.axis[0], intrin)
        else:
            with pytest.raises(ScheduleError, match="the stage computes fold"):
                s[c].tensorize(c.op.axis[0], intrin)


REFUSED = {
    "a start value that is none": (
        lambda i: te.comm_reducer(lambda p, q: p + q, lambda dtype: te.const(3, dtype), name="shifted"),
        "te.comm_reducer: fidentity must be neutral; that of 'shifted' is 3, and fcombine makes 4 of it and 1; "
        "say init= to start from a value",
    ),
    "a start value for each row": (
        lambda i: te.comm_reducer(lambda p, q: p + q, lambda dtype: i.astype(dtype), name="shifted"),
        "te.comm_reducer: fidentity must be constant: say init= to start from a value; that of 'shifted' depends on i",
    ),
    "a rule for each row": (
        lambda i: te.comm_reducer(
            lambda p, q: te.max(p + q, i.astype("float32")), lambda d: te.const(0, d), name="clipped"
        ),
        "te.comm_reducer: fcombine may use its two arguments alone; that of 'clipped' depends on i",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_reducers_that_are_none(name: str) -> None:
    reducer, message = REFUSED[name]
    a, k, _ = rows(3, 4)
    with pytest.raises(TypeError) as refusal:
        te.compute((3,), lambda i: reducer(i)(a[i, k], axis=k), name="C")
    assert str(refusal.value) == message


def test_reducers_of_tuples_are_tried_component_by_component() -> None:
    def merge(p: Any, q: Any) -> Any:
        largest = te.max(p[0], q[0])
        return largest, p[1] * te.exp(p[0] - largest) + q[1] * te.exp(q[0] - largest)

    logsumexp = te.comm_reducer(merge, lambda x, y: (te.min_value(x), te.const(0, y)), name="logsumexp")
    a, k, x = rows(3, 9)
    top, total = te.compute((3,), lambda i: logsumexp((a[i, k], te.const(1.0, "float32")), axis=k), name="C")
    found = te.evaluate([top, total], {a: x})
    np.testing.assert_allclose(found[0] + np.log(found[1]), np.log(np.exp(x).sum(1)), rtol=1e-5)


@pytest.mark.parametrize("target", ["host", "interpreter"])
def test_a_domain_that_ends_at_another_loop(target: str) -> None:
    a, _, x = rows(10, 10)

    def between(i: te.IterVar) -> te.Expr:
        k = te.reduce_axis((i // 2, i + 1), name="k")
        assert (k.start, k.extent) == (0, 10)
        return te.sum(a[i, k], axis=k)

    c = te.compute((10,), between, name="C")
    s = te.create_schedule(c.op)
    s.cache_write(c, "local")
    s[c].split(c.op.axis[0], factor=4)
    expected = [x[i, i // 2 : i + 1].sum() for i in range(10)]
    np.testing.assert_array_equal(run(s, [a, c], x, target=target), expected)
    s.rfactor(s["C.local"].op.output(0), s["C.local"].op.reduce_axis[0])
    np.testing.assert_array_equal(run(s, [a, c], x, target=target), expected)


def test_domains_that_depend_on_one_another() -> None:
    a = te.placeholder((6, 6, 6), name="A")

    def below(i: te.IterVar) -> te.Expr:
        k = te.reduce_axis((0, i), name="k")
        m = te.reduce_axis((0, k), name="m")
        return te.sum(a[i, k, m], axis=[k, m])

    c = te.compute((6,), below, name="C")
    x = np.random.default_rng(0).integers(-4, 5, (6, 6, 6)).astype("float32")
    expected = [sum(x[i, k, :k].sum() for k in range(i)) for i in range(6)]
    np.testing.assert_array_equal(run(te.create_schedule(c.op), [a, c], x), expected)


def test_a_domain_that_data_decide_is_refused() -> None:
    a, length = te.placeholder((3, 8), name="A"), te.placeholder((3,), "int32", name="L")

    def ragged(i: te.IterVar) -> te.Expr:
        k = te.reduce_axis((0, length[i]), name="k")
        return te.sum(a[i, k], axis=k)

    with pytest.raises(
        TypeError, match=r"reduce_axis k: no limits are known of the bound L\[i\]; reduce over"
    ):
        te.compute((3,), ragged, name="C")
