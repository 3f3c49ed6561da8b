"""Constructs of TVM's te that need no numbers of their own: they run, and give NumPy's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import autotune
from autotune import te, tir
from autotune.errors import ScheduleError
from autotune.graph.program import ProgramWorkload
from autotune.target import Target
from search_spaces.programs.program import space
from search_spaces.sketch import Sketch

Array = np.ndarray[Any, Any]


def run(s: Any, args: Sequence[te.Tensor], *inputs: Array) -> list[Array]:
    """Outputs of the code of a schedule."""
    outputs = [np.zeros(s[t].op.shape, t.dtype) for t in args[len(inputs) :]]
    autotune.build(s, args, threads=1)(*inputs, *outputs)
    return outputs


def whole(*shape: int, low: int = -4) -> Array:
    return np.random.default_rng(len(shape)).integers(low, 5, shape).astype("float32")


def rows(n: int = 10, m: int = 12) -> tuple[te.Tensor, te.Tensor]:
    a, k = te.placeholder((n, m), name="A"), te.reduce_axis((0, m), name="k")
    return a, te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="C")


def test_whole_tensors() -> None:
    a, b = te.placeholder((4, 3), name="A"), te.placeholder((3,), name="B")
    c = (a + b) * 2 - b / 4
    assert (c.op.tag, c.shape) == ("broadcast", (4, 3))
    assert ((2 - a).op.tag, (a[0, 0] + b).shape) == ("elemwise", (3,))
    x, y = whole(4, 3), whole(3)
    np.testing.assert_array_equal(run(te.create_schedule(c.op), [a, b, c], x, y)[0], (x + y) * 2 - y / 4)
    with pytest.raises(ValueError, match=r"tensors of shapes \(4, 3\), \(4,\) do not go together"):
        a + te.placeholder((4,), name="D")


@pytest.mark.parametrize("name", ["C", "C.local"])
def test_a_reduction_starts_from_an_element(name: str) -> None:
    a, d = te.placeholder((10, 12), name="A"), te.placeholder((10,), name="D")
    k = te.reduce_axis((0, 12), name="k")
    c = te.compute((10,), lambda i: te.sum(a[i, k], axis=k, where=k > 3, init=d[i] * 2), name="C")
    x, y = whole(10, 12), whole(10)
    expected = x[:, 4:].sum(1) + 2 * y
    np.testing.assert_array_equal(te.evaluate([c], {a: x, d: y})[0], expected)
    s = te.create_schedule(c.op)
    if name != "C":
        s.cache_write(c, "local")
    s.rfactor(s[name].op.output(0), s[name].split(s[name].op.reduce_axis[0], factor=5)[1])
    np.testing.assert_array_equal(run(s, [a, d, c], x, y)[0], expected)


def test_a_reducer_of_ones_own_takes_a_condition_and_a_start() -> None:
    largest = te.comm_reducer(lambda p, q: te.max(p, q), lambda dtype: te.min_value(dtype), name="largest")
    a, k = te.placeholder((5, 7), name="A"), te.reduce_axis((0, 7), name="k")
    c = te.compute((5,), lambda i: largest(a[i, k], axis=k, where=k < 4, init=1.5), name="C")
    x = whole(5, 7)
    np.testing.assert_array_equal(
        run(te.create_schedule(c.op), [a, c], x)[0], np.maximum(x[:, :4].max(1), 1.5)
    )
    with pytest.raises(TypeError, match=r"init is set once, before the loop k that it reads"):
        te.sum(a[0, k], axis=k, init=a[0, k])


def test_a_stage_without_loops_gets_one() -> None:
    a = te.placeholder((), name="A")
    b = te.compute((), lambda: a() + 1, name="B")
    s = te.create_schedule(b.op)
    fused = s[b].fuse()
    assert tuple(s[b].leaf_iter_vars) == (fused,)
    assert run(s, [a, b], np.array(3, "float32"))[0] == 4


def test_a_full_reduction_gets_a_data_loop() -> None:
    a, k = te.placeholder((9,), name="A"), te.reduce_axis((0, 9), name="k")
    b = te.compute((), lambda: te.sum(a[k], axis=k), name="B")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(s[b].fuse(*b.op.axis), nparts=20)
    assert tuple(s[b].leaf_iter_vars) == (outer, inner, k)
    x = whole(9)
    assert run(s, [a, b], x)[0] == x.sum()
    assert run(s.trace.apply(te.create_schedule(b.op)), [a, b], x)[0] == x.sum()


def test_stages_of_a_group_move_together() -> None:
    x = te.placeholder((8, 6), name="X")
    x1 = te.compute((8, 6), lambda *i: x(*i) + 1, name="x1")
    x2 = te.compute((8, 6), lambda *i: x1(*i) * 2, name="x2")
    x3 = te.compute((8, 6), lambda *i: x2(*i) - 3, name="x3")
    s = te.create_schedule(x3.op)
    group = s.create_group(outputs=x2, inputs=x1, include_inputs=True)
    assert [stage.op.name for stage in group.stages] == ["x1", "x2"]
    group.compute_at(s[x3], x3.op.axis[0])
    assert {s[t].attach_ivar for t in (x1, x2)} == {x3.op.axis[0]}
    value = whole(8, 6)
    np.testing.assert_array_equal(run(s, [x, x3], value)[0], (value + 1) * 2 - 3)
    with pytest.raises(ScheduleError, match="create_group: no stage lies between x3 and x1"):
        s.create_group(outputs=x1, inputs=x3)


def test_an_input_that_nothing_reads() -> None:
    a, unused = te.placeholder((4,), name="A"), te.placeholder((5,), name="A")
    c = te.compute((4,), lambda i: a[i] * 2, name="C")
    x = whole(4)
    np.testing.assert_array_equal(run(te.create_schedule(c.op), [a, unused, c], x, whole(5))[0], x * 2)
    with pytest.raises(ScheduleError, match="'D' is not part of this schedule"):
        autotune.build(te.create_schedule(c.op), [a, te.compute((4,), lambda i: a[i], name="D"), c])


def test_a_cache_of_a_reduction_has_a_dimension_a_loop() -> None:
    a, c = rows()
    s = te.create_schedule(c.op)
    s[c].split(c.op.axis[0], factor=4)
    s[c].split(c.op.reduce_axis[0], factor=5)
    cache = s.cache_write(c, "global")
    assert cache.shape == (3, 4)
    assert [iv.extent for iv in s[cache].leaf_iter_vars] == [3, 4, 3, 5]
    x = whole(10, 12)
    np.testing.assert_array_equal(run(s, [a, c], x)[0], x.sum(1))


def test_a_cache_of_fused_and_reordered_loops() -> None:
    a = te.placeholder((6, 10), name="A")
    c, d = te.compute((6, 10), lambda i, j: (a[i, j] + 1, a[i, j] * 2), name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(s[c].fuse(*c.op.axis), factor=7)
    s[c].reorder(inner, outer)
    caches = s.cache_write([c, d], "local")
    assert [t.shape for t in caches] == [(7, 9), (7, 9)]
    x = whole(6, 10)
    found = run(s, [a, c, d], x)
    np.testing.assert_array_equal(found[0], x + 1)
    np.testing.assert_array_equal(found[1], x * 2)


def test_a_part_of_fused_loops_is_factored() -> None:
    a = te.placeholder((6, 5, 4), name="A")
    k, m = te.reduce_axis((0, 5), name="k"), te.reduce_axis((0, 4), name="m")
    c = te.compute((6,), lambda i: te.sum(a[i, k, m], axis=[k, m]), name="C")
    s = te.create_schedule(c.op)
    _, inner = s[c].split(s[c].fuse(k, m), factor=3)
    s[c].split(c.op.axis[0], factor=4)
    assert s.rfactor(c, inner, 1).shape == (6, 3)
    x = whole(6, 5, 4)
    np.testing.assert_array_equal(run(s, [a, c], x)[0], x.sum((1, 2)))


def test_arguments_in_another_layout() -> None:
    a = te.placeholder((10, 8), name="A")
    b = te.compute((10, 8), lambda i, j: a[i, j] + 1, name="B")
    s = te.create_schedule(b.op)
    s[a].transform_layout(lambda i, j: [j, i])
    s[b].transform_layout(lambda i, j: [i // 4, j, i % 4])
    x = whole(10, 8)
    padded = np.zeros((12, 8), "float32")
    padded[:10] = x + 1
    found = run(s, [a, b], np.ascontiguousarray(x.T))[0]
    np.testing.assert_array_equal(found, padded.reshape(3, 4, 8).transpose(0, 2, 1))


def test_a_search_keeps_the_layout_of_arguments() -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1, name="B")

    def packed(s: Any) -> None:
        s[b.name].split(s[b.name].op.axis[0], factor=s.knob("width", (2, 4)))
        s[a.name].transform_layout(lambda i: [i // 4, i % 4])

    mine = space(ProgramWorkload.of([a, b]), Target.detect(threads=1), Sketch(packed, [b]))
    with pytest.raises(ScheduleError, match=r"in a search arguments keep their layout \(8,\)"):
        mine.schedule(mine.default())


def test_pragmas_are_primitives_or_known_hints() -> None:
    _, c = rows()
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[0], factor=5)
    s[c].pragma(inner, "unroll")
    s[c].pragma(outer, "auto_unroll_max_step", 16)
    assert s[c].kind_of(inner) == "unrolled"
    with pytest.raises(ScheduleError, match="pragma: no hint is called 'nonsense'; known: vectorize, unroll"):
        s[c].pragma(outer, "nonsense")


def test_notes_and_domains() -> None:
    a = te.placeholder((6,), name="A")
    b = te.compute((6,), lambda i: a[i], name="B", tag="copy", attrs={"layout": "N"})
    assert (b.op.tag, b.op.attrs["layout"]) == ("copy", "N")
    assert (b.op.axis[0].dom.min, b.op.axis[0].dom.extent) == (0, 6)


def test_names_of_tir() -> None:
    assert [name for name in tir.__all__ if not hasattr(tir, name)] == []
    a, b = te.placeholder((4,), name="A", dtype="int32"), te.placeholder((4,), name="B", dtype="int32")

    def chosen(i: Any) -> te.Expr:
        inside = tir.all(a[i] > 0, i < 3)
        return tir.Select(inside, tir.div(b[i], a[i]), tir.Cast("int32", 7.9))

    c = te.compute((4,), chosen, name="C")
    x, y = np.array([2, -2, 3, 1], "int32"), np.array([-7, 7, 8, 5], "int32")
    assert run(te.create_schedule(c.op), [a, b, c], x, y)[0].tolist() == [-3, 7, 2, 7]
    assert isinstance(tir.const(1, "int32"), tir.IntImm)
