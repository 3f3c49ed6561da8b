"""Traces: text forms that come back, keys, damaged input."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune import te
from autotune.errors import ScheduleError
from autotune.lower import lower_schedule, program_text
from autotune.lower.examples import arguments, chain
from autotune.schedule import PRIMITIVES, Schedule, Trace
from tests.schedule.printed import run_printed
from tests.schedule.random_programs import Program, random_program
from tests.schedule.random_steps import apply_random_steps
from tests.schedule.test_further_primitives import WORKS
from tests.schedule.three_ways import random_case


def text_of(schedule: Schedule) -> str:
    return program_text(lower_schedule(schedule, arguments(schedule)))


@pytest.mark.parametrize("name", WORKS)
def test_python_text_makes_the_same_schedule(name: str) -> None:
    make, steps = WORKS[name]
    made, again = make(), make()[0]
    steps(made)
    trace = made[0].trace
    run_printed(trace.to_python(), again)
    assert again.trace.key == trace.key
    assert text_of(again) == text_of(made[0])


@pytest.mark.parametrize("seed", range(60))
def test_python_text_of_random_traces(seed: int) -> None:
    case = random_case(seed)
    fresh = te.create_schedule(case.program.tensors()[1])
    assert run_printed(case.trace.to_python(), fresh).trace.to_python() == case.trace.to_python()


def drawn(seed: int, *, threads: bool = False) -> tuple[Program, Trace]:
    """A random program, and random steps that are legal on it."""
    rng = random.Random(seed)
    program = random_program(rng)
    schedule = te.create_schedule(program.tensors()[1])
    apply_random_steps(rng, schedule, threads=threads)
    return program, schedule.trace


def assert_comes_back(trace: Trace) -> None:
    back = Trace.from_json(trace.to_json())
    assert back == trace
    assert (hash(back), back.key, str(back), back.to_json()) == (
        hash(trace),
        trace.key,
        str(trace),
        trace.to_json(),
    )


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_json_gives_back_an_equal_trace_of_any_steps(seed: int, threads: bool) -> None:
    program, trace = drawn(seed, threads=threads)
    assert_comes_back(trace)
    fresh = te.create_schedule(program.tensors()[1])
    assert run_printed(str(trace), fresh).trace == trace


def test_examples_and_random_steps_use_every_primitive() -> None:
    met: set[str] = set()
    for make, steps in WORKS.values():
        made = make()
        steps(made)
        met |= {step.primitive for step in made[0].trace.steps}
    for seed in range(200):
        met |= {step.primitive for step in drawn(seed, threads=seed % 2 == 1)[1].steps}
    assert met == set(PRIMITIVES)


@pytest.mark.parametrize("name", WORKS)
def test_json_gives_back_an_equal_trace(name: str) -> None:
    make, steps = WORKS[name]
    made = make()
    steps(made)
    assert_comes_back(made[0].trace)


def test_numbers_of_numpy_leave_a_trace_of_plain_ones() -> None:
    s, _, _, c = chain(16)
    (i,) = s[c].op.axis
    s[c].pragma(i, np.str_("unroll_explicit"), np.float64(1.5))
    s[c].split(i, factor=np.int64(4))
    assert_comes_back(s.trace)
    assert str(s.trace).splitlines() == [
        's["C"].pragma(var=s["C"].loop_named("i"), pragma_type=\'unroll_explicit\', pragma_value=1.5)',
        'i_outer, i_inner = s["C"].split(parent=s["C"].loop_named("i"), factor=4)',
    ]


def test_names_that_python_cannot_take_are_printed_so_that_they_paste() -> None:
    def program() -> Schedule:
        a = te.placeholder((8, 8), name='say "A"')
        b = te.compute((8, 8), lambda i, j: a[i, j] + 1, name="2b")
        return te.create_schedule(te.compute((8, 8), lambda s, te: b[s, te] * 2, name="if"))

    s = program()
    out = s["if"]
    rows, columns = out.op.axis
    out.fuse(rows, columns)
    s.cache_read(s['say "A"'].tensor, "local", [s["2b"].tensor])
    s.transform_layout(s["2b"].tensor, lambda i, j: [j, i // 4, i % 4])
    assert run_printed(str(s.trace), program()).trace == s.trace


def test_numbers_without_json_are_refused() -> None:
    s, _, _, c = chain(8)
    with pytest.raises(ScheduleError, match="a schedule step takes finite numbers, got nan"):
        s[c].pragma(s[c].op.axis[0], "unroll_explicit", float("nan"))


@pytest.mark.parametrize(
    "primitive", ["sample_perfect_tile", "sample_categorical", "sample_compute_location"]
)
def test_traces_with_sampling_steps_are_refused(primitive: str) -> None:
    text = f'{{"version":1,"steps":[["{primitive}","",[["decision",1]],["d0"]]]}}'
    with pytest.raises(ScheduleError) as refusal:
        Trace.from_json(text)
    assert str(refusal.value) == (
        f"the trace has the step {primitive}, which knobs have replaced (s.knob); its schedule has to be found again"
    )


def test_the_key_is_the_same_in_another_process() -> None:
    code = (
        "from autotune.lower.examples import chain\n"
        "s, A, B, C = chain(8)\ns[C].unroll(s[C].split(s[C].op.axis[0], 4)[1])\nprint(s.trace.key)"
    )
    s, _, _, c = chain(8)
    s[c].unroll(s[c].split(s[c].op.axis[0], 4)[1])
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == s.trace.key


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"version":1,"steps":[["split"]]}', '{"version":9,"steps":[]}']
)
def test_damaged_json_is_refused(text: str) -> None:
    with pytest.raises(ScheduleError):
        Trace.from_json(text)
