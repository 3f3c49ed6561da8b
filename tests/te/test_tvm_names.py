"""Programs written for TVM's te run unchanged, or are told how to write it here."""

from __future__ import annotations

import doctest
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune import te
from autotune.errors import ScheduleError

PAGE = Path(__file__).parents[2] / "docs" / "tvm.md"


def test_the_program_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    space: dict[str, Any] = {}
    exec(code.replace("512", "48"), space)
    assert "vectorized" in capsys.readouterr().out
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (48, 48)).astype("float32") for _ in range(2))
    c = np.zeros_like(a)
    space["gemm"](a, b, c)
    np.testing.assert_array_equal(c, a @ b)


def test_the_examples_of_the_page_run() -> None:
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted > 20
    assert found.failed == 0


def test_reductions_take_a_condition() -> None:
    a = te.placeholder((3, 7), name="A")
    k = te.reduce_axis((0, 7), name="k")
    c = te.compute((3,), lambda i: te.max(a[i, k], axis=k, where=k % 2 == 1), name="C")
    value = np.random.default_rng(0).standard_normal((3, 7), dtype=np.float32)
    np.testing.assert_array_equal(te.evaluate([c], {a: value})[0], value[:, 1::2].max(axis=1))


def test_varargs_are_named() -> None:
    a = te.placeholder((2, 3))
    b = te.compute(a.shape, lambda *i: a(*i) + 1, "B", "tag", None, ["row", "column"])
    assert [axis.name for axis in b.op.axis] == ["row", "column"]


@pytest.mark.parametrize(("x", "y"), [(7, 2), (-7, 2), (7, -2), (-7, -2), (6, 3), (-6, 3), (0, 5)])
def test_division_toward_zero(x: int, y: int) -> None:
    a = te.placeholder((2,), dtype="int32", name="A")
    q = te.compute((1,), lambda i: te.truncdiv(a[i], a[i + 1]), name="Q")
    r = te.compute((1,), lambda i: te.truncmod(a[i], a[i + 1]), name="R")
    found = te.evaluate([q, r], {a: np.array([x, y], "int32")})
    assert [int(v[0]) for v in found] == [int(x / y), x - y * int(x / y)]


def chain() -> tuple[Any, Any, Any]:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1, name="B")
    return te.create_schedule(b.op), a, b


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "hybrid": (
        te.hybrid,
        "te.hybrid: hybrid script is not supported; write te.compute with te.if_then_else",
    ),
    "gradient": (
        te.gradient,
        "te.gradient: not supported; export the training graph with its backward pass instead",
    ),
    "disable_predication": (
        lambda: chain()[0]["B"].split(chain()[2].op.axis[0], 4, disable_predication=True),
        "split: got an unexpected keyword argument 'disable_predication'; its arguments are: parent, factor, nparts, "
        "tail",
    ),
    "env_threads": (
        lambda: chain()[0]["B"].env_threads([]),
        "env_threads: the steps of a scan run in one thread; bind loops of the scan's own stage instead",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_missing_says_what_to_do(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(ScheduleError) as refusal:
        call()
    assert str(refusal.value) == message


def test_all_names_exist() -> None:
    assert [name for name in te.__all__ if not hasattr(te, name)] == []
    assert len(set(te.__all__)) == len(te.__all__)
    assert autotune.te is te
