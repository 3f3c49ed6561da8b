"""The emitter as a whole."""

from __future__ import annotations

import gc

from autotune import te
from autotune.codegen.llvm.backend import emit_program
from autotune.lower import lower_schedule
from tests.schedule.machine import host


def test_emitting_leaves_nothing_to_the_collector_of_cyclic_garbage() -> None:
    """It is paused while a model compiles."""
    a = te.placeholder((64, 64), name="A")
    c = te.compute((64, 64), lambda i, j: te.exp(a[j, i]), name="C")
    s = te.create_schedule(c)
    s[c].parallel(s[c].op.axis[0])
    program = lower_schedule(s, [a, c])
    emit_program(program, host(), "warm")  # what is cached for good
    gc.collect()
    gc.disable()
    try:
        emit_program(program, host(), "k")
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_a_condition_that_one_part_decides_is_no_jump() -> None:
    a = te.placeholder((64,), name="A")
    c = te.compute((8,), lambda i: te.if_then_else(te.all(i >= 4, a[i] > 0.0), a[i * 2], -1.0), name="C")
    s = te.create_schedule(c)
    s[c].unroll(s[c].op.axis[0])
    ir, _ = emit_program(lower_schedule(s, [a, c]), host(), "k")
    assert ir.count("br i1 %") == 4  # of the elements whose index does not decide
