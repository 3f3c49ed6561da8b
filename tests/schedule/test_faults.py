"""Each precondition violated once: the whole message, and a schedule that is as it was and still lowers."""

from __future__ import annotations

import ast
import traceback
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune.schedule
from autotune import te
from autotune.errors import AutotuneError, ScheduleError
from autotune.lower import lower_schedule, program_text
from autotune.lower.examples import arguments, chain, matmul_relu
from autotune.schedule import PRIMITIVES, Schedule
from tests.schedule.faults import FAULTS, Fault, Made
from tests.schedule.random_steps import state_text

PACKAGE = Path(autotune.schedule.__file__).parent
ROOMS = ("arguments", "legality", "padding", "primitives/*", "index_map")
"""Modules whose refusals all have a case."""
OF_TRACES = {("index_map.py", "inverse")}
"""Functions that also judge what only a trace or a direct call can hold."""


def message(fault: Fault) -> tuple[Made, ScheduleError]:
    """The made program after the refused step, and the refusal."""
    made = fault.make()
    fault.before(made)
    before, steps = state_text(made[0]), len(made[0].trace)
    with pytest.raises(AutotuneError) as refusal:
        fault.step(made)
    assert isinstance(refusal.value, ScheduleError)
    assert (state_text(made[0]), len(made[0].trace)) == (before, steps)
    return made, refusal.value


def test_names_are_unique() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("primitive", PRIMITIVES)
def test_refusals_of(primitive: str, golden: Callable[[str], None]) -> None:
    """The whole messages of a primitive; each begins with its name, which the user wrote."""
    texts = []
    for fault in (f for f in FAULTS if f.primitive == primitive):
        text = str(message(fault)[1])
        assert text.startswith(f"{primitive}: ") or fault.what == "unknown", text
        texts.append(f"-- {fault.what}\n{text}")
    assert texts
    golden("\n\n".join(texts))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_a_refused_step_changes_nothing(fault: Fault) -> None:
    """The same loops as without the step, also after a replay of the trace."""
    made, _ = message(fault)
    again = fault.make()
    fault.before(again)
    assert lowered(made[0]) == lowered(again[0])
    replayed = made[0].trace.apply(fault.make()[0])
    assert lowered(replayed) == lowered(again[0])


def lowered(schedule: Schedule) -> str:
    return program_text(lower_schedule(schedule, arguments(schedule)))


@cache
def raising() -> dict[Path, ast.Module]:
    files = [file for room in ROOMS for file in PACKAGE.glob(f"{room}.py")]
    return {file: ast.parse(file.read_text(encoding="utf-8")) for file in files}


def refusals() -> Iterator[tuple[str, str, int, int]]:
    """File, function and lines of every ``raise`` in the rooms."""
    for file, module in raising().items():
        for function in (n for n in ast.walk(module) if isinstance(n, ast.FunctionDef)):
            for node in ast.walk(function):
                if isinstance(node, ast.Raise):
                    yield file.name, function.name, node.lineno, node.end_lineno or node.lineno


def test_every_refusal_has_a_case() -> None:
    """Each ``raise`` in the code of the primitives is reached by one of the faults."""
    reached = set()
    for fault in FAULTS:
        error: BaseException | None = message(fault)[1]
        while error is not None:
            reached |= {
                (Path(f.filename).name, f.lineno)
                for f in traceback.extract_tb(error.__traceback__)
                if f.lineno
            }
            error = error.__cause__
    missing = [
        f"{file}:{first} in {function}"
        for file, function, first, last in refusals()
        if not any((file, line) in reached for line in range(first, last + 1))
        and (file, function) not in OF_TRACES
    ]
    assert missing == []


def garbage(made: Made) -> dict[str, Any]:
    """Arguments that hardly any primitive takes, and a few that look right."""
    s, *tensors = made
    return {
        "none": None,
        "minus_one": -1,
        "zero": 0,
        "fraction": 2.5,
        "huge": 10**30,
        "bool": True,
        "numpy": np.int64(4),
        "array": np.zeros(3),
        "text": "nonsense",
        "list": [1, "a", None],
        "empty": [],
        "dictionary": {"a": 1},
        "function": lambda: 1,
        "object": object(),
        "loop": tensors[-1].op.axis[0],
        "inner_stage_loop": tensors[-2].op.axis[0],
        "foreign_loop": chain(4)[3].op.axis[0],
        "thread": te.thread_axis("threadIdx.x"),
        "tensor": tensors[0],
        "foreign_tensor": chain(4)[3],
        "operation": tensors[-2].op,
        "stage": s[tensors[-2]],
        "expression": tensors[-1].op.axis[0] + 1,
        "constant": te.const(4, "int32"),
        "twice": [tensors[-1].op.axis[0]] * 2,
    }


@pytest.mark.parametrize("primitive", PRIMITIVES)
def test_garbage_is_refused_or_taken(primitive: str) -> None:
    """No argument makes a Python error come out of a primitive; what is refused changes nothing."""
    parameters = [n for n in PRIMITIVES[primitive].__annotations__ if n != "return"]
    for name in garbage(matmul_relu(3, 4, 5)):
        for count in (1, max(len(parameters), 1)):
            for lead in (0, 1):
                made = matmul_relu(3, 4, 5)
                value = garbage(made)[name]
                on_schedule = hasattr(made[0], primitive)
                first = made[3] if on_schedule else made[4].op.axis[0]
                args = ([first] * lead + [value] * count)[: max(len(parameters), 1)]
                owner = made[0] if on_schedule else made[0][made[4]]
                before = state_text(made[0])
                try:
                    getattr(owner, primitive)(*args)
                except AutotuneError as error:
                    refusal = str(error)
                else:
                    continue
                assert refusal.startswith(f"{primitive}: "), args
                assert state_text(made[0]) == before, args
