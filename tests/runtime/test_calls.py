"""Calls in machine code: what they take themselves, what they leave to the checks, references, threads."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from autotune.runtime.cpu import call_record
from autotune.runtime.image import TensorSpec
from autotune.runtime.module import Module
from tests.runtime.kernels import binding, chain, image

X = np.arange(16, dtype=np.int64)


class Derived(np.ndarray):
    """An array type of a user."""


@pytest.fixture
def module():
    with Module(chain(3, 16), 1) as made:
        yield made


def test_this_python_lays_objects_out_as_expected() -> None:
    assert call_record._layouts_agree()


def test_usual_calls_need_no_checks_in_python(module: Module) -> None:
    frozen = X.copy()
    frozen.flags.writeable = False
    for x in (X, frozen):
        (y,) = module.loaded._native_call((x,), None)
        assert y.tolist() == (x + 3).tolist()
        assert (y.dtype, y.shape, y.flags.carray, y.flags.owndata) == (X.dtype, (16,), True, True)
    out = [np.zeros(16, np.int64)]
    assert module.loaded._native_call((X,), out) is out
    assert out[0].tolist() == (X + 3).tolist()


@pytest.mark.parametrize(
    "arrays",
    [
        (),
        (X, X),
        (X.tolist(),),
        (None,),
        (X.astype(np.uint64),),
        (X.astype(">i8"),),
        (X[:8],),
        (X.reshape(4, 4),),
        (np.arange(32)[::2],),
        (X.view(Derived),),
    ],
)
def test_all_else_is_left_to_the_checks(module: Module, arrays: tuple[Any, ...]) -> None:
    assert module.loaded._native_call(arrays, None) is None


def test_out_arrays_that_a_run_may_not_write_to_are_left_to_the_checks(module: Module) -> None:
    x = np.zeros(32, np.int64)
    frozen = np.zeros(16, np.int64)
    frozen.flags.writeable = False
    for out in ([], [x[8:24]], [frozen], [X.astype(np.float64)], [x[::2]], [None], (x[16:],)):
        assert module.loaded._native_call((x[:16],), out) is None  # type: ignore[arg-type]
    out = [x[16:]]
    assert module.loaded._native_call((x[:16],), out) is out


def test_scalars_and_large_outputs() -> None:
    def scalar(name: str) -> TensorSpec:
        return TensorSpec(name, (), "int64")

    copy = ("increment", binding("input", 1), binding("output", 1), 1)
    with Module(image([copy], inputs=(scalar("x"),), outputs=(scalar("y"),)), 1) as module:
        (y,) = module(np.array(4))
        assert (y.shape, y.tolist()) == ((), 5)
    with Module(chain(1, 1000), 1) as module:
        (y,) = module(np.zeros(1000, np.int64))
        assert y.ctypes.data % 64 == 0
        assert y.flags.carray
        assert y.tolist() == [1] * 1000


def test_references_are_kept_and_given_back(module: Module) -> None:
    x, out = X.copy(), [np.zeros(16, np.int64)]
    objects = (x, out, out[0], x.dtype, np.ndarray, None)
    before = [sys.getrefcount(item) for item in objects]
    for _ in range(1000):
        module(x)
        module(x, out=out)
        module.loaded._native_call((x[:4],), None)
    after = [sys.getrefcount(item) for item in objects]
    assert all(abs(a - b) < 100 for a, b in zip(after, before, strict=True))
    (y,) = module(x)
    assert sys.getrefcount(y) == 2


def test_many_threads_call_at_once() -> None:
    def calls(start: int) -> bool:
        return all(module(X + start + n)[0].tolist() == (X + start + n + 3).tolist() for n in range(200))

    for workers in (1, 2):
        with Module(chain(3, 16), workers) as module, ThreadPoolExecutor(4) as pool:
            assert all(pool.map(calls, range(0, 4000, 1000)))


def test_without_the_expected_layout_the_checks_take_all_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_record, "_layouts_agree", lambda: False)
    with Module(chain(3, 16), 2) as module:
        assert module.loaded._native_call((X,), None) is None
        assert module(X)[0].tolist() == (X + 3).tolist()
        out = np.zeros(16, np.int64)
        assert module(X, out=[out])[0] is out
