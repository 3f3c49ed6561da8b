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
