"""Sequential kernels: their loops, what a schedule may do with them, and what they compute everywhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from autotune import te
from autotune.errors import ScheduleError
from autotune.lower.printer import program_text
from autotune.lower.program import lower_schedule
from autotune.te.sequential import sequential
from autotune.te.statements import Steps
from tests.schedule.machine import run_machine_code

X = te.placeholder((2, 6), "int64", name="x")


def collatz(steps: Steps, point: Sequence[te.Expr]) -> None:
    """For each element the number of steps to 1: loops that run while a condition holds, and branches."""
    with steps.loop(6, "i") as i:
        value, count = steps.cell(X(point[0], i), name="value"), steps.cell(0, name="count")
        with steps.repeat_while(value.get() > 1):
            now = steps.let(value.get(), "now")
            with steps.when((now % 2).equal(0)):
                value.set(now // 2)
            with steps.otherwise():
                value.set(now * 3 + 1)
            count.add(1)
        steps.store(steps.results[0], (point[0], i), count.get())


def program() -> te.Tensor:
    return sequential((2, 6), ("int64",), [X], collatz, ["y"], apart={0: 2}, length=6)[0]


def test_loops() -> None:
    y = program()
    s = te.create_schedule(y.op)
    s[y].parallel(s[y].op.axis[0])
    assert program_text(lower_schedule(s, [X, y])) == (
        "program(x: int64[2, 6], y: int64[2, 6]) {\n"
        "  kernel y {\n"
        "    parallel (p0, 0, 2) {\n"
        "      allocate value0: int64[1]\n"
        "      allocate count1: int64[1]\n"
        "      for (i, 0, 6) {\n"
        "        value0[0] = x[p0, i]\n"
        "        count1[0] = 0\n"
        "        while (value0[0] > 1) {\n"
        "          let now = value0[0]\n"
        "          if (now % 2 == 0) {\n"
        "            value0[0] = now // 2\n"
        "          } else {\n"
        "            value0[0] = now * 3 + 1\n"
        "          }\n"
        "          count1[0] = count1[0] + 1\n"
        "        }\n"
        "        y[p0, i] = count1[0]\n"
        "      }\n"
        "    }\n"
        "  }\n"
        "}"
    )


def test_numbers_of_evaluation_interpreter_and_machine_code() -> None:
    from autotune.codegen.interpreter.machine import run_program

    x = np.array([[1, 2, 3, 6, 7, 27], [9, 1, 1, 97, 4, 5]])
    wanted = [[0, 1, 7, 8, 16, 111], [19, 0, 0, 118, 2, 5]]
    y = program()
    assert te.evaluate([y], {X: x})[0].tolist() == wanted
    found = {"x": x, "y": np.zeros((2, 6), np.int64)}
    run_program(lower_schedule(te.create_schedule(y.op), [X, y]), found)
    assert found["y"].tolist() == wanted
    assert run_machine_code(te.create_schedule(y.op), [X, y], {"x": x})["y"].tolist() == wanted


def test_points_may_be_shared_and_nothing_else() -> None:
    y = program()
    z = te.compute((2, 6), lambda i, j: y[i, j] + 1, name="z")
    s = te.create_schedule(z.op)
    with pytest.raises(ScheduleError, match="compute_inline: y is a sequential kernel"):
        s[y].compute_inline()
    with pytest.raises(ScheduleError, match="points of a sequential kernel cannot be vectorized"):
        s[y].vectorize(s[y].op.axis[0])
    with pytest.raises(ScheduleError, match="y is a sequential kernel, whose statements are fixed"):
        s.cache_read(X, "local", [y])
    assert len(s.trace) == 0


def test_what_a_kernel_reads_stays_in_memory() -> None:
    doubled = te.compute((2, 6), lambda i, j: X[i, j] * 2, name="doubled")

    def copied(steps: Steps, point: Sequence[te.Expr]) -> None:
        with steps.loop(6, "i") as i:
            steps.store(steps.results[0], (point[0], i), doubled(point[0], i))

    (y,) = sequential((2, 6), ("int64",), [doubled], copied, ["y"], apart={0: 2})
    s = te.create_schedule(y.op)
    with pytest.raises(ScheduleError, match="y is a sequential kernel, which reads doubled from memory"):
        s[doubled].compute_inline()


def test_statements_touch_what_is_theirs() -> None:
    def wrong(steps: Steps, point: Sequence[te.Expr]) -> None:
        steps.store(X, (0, 0), 1)

    with pytest.raises(TypeError, match="y: statements store to x, which is no result of theirs"):
        sequential((2, 6), ("int64",), [X], wrong, ["y"])


def test_a_proof_leaves_sequential_kernels_out() -> None:
    pytest.importorskip("islpy")
    from autotune.lower.verify_isl import verify

    def copied(steps: Steps, point: Sequence[te.Expr]) -> None:
        with steps.loop(6, "i") as i:
            steps.store(steps.results[0], (point[0], i), X(point[0], i))

    (y,) = sequential((2, 6), ("int64",), [X], copied, ["y"], apart={0: 2})
    assert verify(te.create_schedule(y.op), [X, y]).status == "not affine"
