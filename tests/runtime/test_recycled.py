"""Memory of arrays that are gone is used again, and never that of those that somebody has."""

from __future__ import annotations

import numpy as np

from autotune.runtime.recycled import Recycled


def address(array):
    return array.__array_interface__["data"][0]


def test_memory_is_used_again_when_the_last_view_is_gone():
    memory = Recycled(2)
    first = memory.array((300, 400), "float32")
    at, view = address(first), first.T[3:].reshape(-1)[:5]
    first[...] = 1
    view = first[2:].T[::2]
    del first
    second = memory.array((300, 401), np.float32)  # the same step
    assert address(second) != at
    second[...] = 2
    assert (view == 1).all()
    del view
    assert address(memory.array((299, 400), "float32")) == at


def test_no_more_is_kept_than_was_said():
    memory = Recycled(2)
    arrays = [memory.array((1 << 18,), "uint8") for _ in range(5)]
    arrays.clear()
    assert len(memory._free) == 2
    assert not memory._held
    assert memory.array((3, 4), "int64").base is None  # small ones are NumPy's own
    for _ in range(3):  # of other sizes, the oldest go
        memory.array((1 << 20,), "uint8")
    assert {m.size for m in memory._free} == {1 << 18, 1 << 20}
    assert memory.array((), "float32").shape == ()
