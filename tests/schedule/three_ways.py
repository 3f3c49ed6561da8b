"""One program, one schedule, three executions: NumPy, loop-IR interpreter, machine code."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autotune import te
from autotune.codegen import interpreter
from autotune.errors import LoweringError, ScheduleError
from autotune.lower import lower_schedule, program_text
from autotune.schedule import Schedule, Trace
from tests.schedule import loop_interpreter
from tests.schedule.machine import run_machine_code
from tests.schedule.random_programs import Program, random_program
from tests.schedule.random_steps import apply_random_steps

REFUSALS = (ScheduleError, LoweringError)


@dataclass(frozen=True)
class Case:
    """A program and the steps applied to it."""

    program: Program
    trace: Trace

    def schedule(self) -> tuple[Schedule, list[te.Tensor]]:
        """A fresh schedule with the steps applied, and its arguments."""
        placeholders, outputs = self.program.tensors()
        schedule = self.trace.apply(te.create_schedule(outputs))
        return schedule, placeholders + all_outputs(outputs)

    def text(self) -> str:
        """Python that reproduces the case."""
        names = ", ".join(self.program.outputs)
        return f"{self.program.source}\ns = te.create_schedule([{names}])\n{self.trace.to_python()}"


class Mismatch(AssertionError):
    """Two executions disagree."""


def all_outputs(outputs: list[te.Tensor]) -> list[te.Tensor]:
    """The outputs with all components of tuple operations, each once."""
    every = [t.op.output(i) for t in outputs for i in range(len(t.op.dtypes))]
    return list(dict.fromkeys(every))


def random_case(seed: int) -> Case:
    """A program and steps; the steps that no lowering accepts are dropped."""
    rng = random.Random(seed)
    program = random_program(rng)
    schedule = te.create_schedule(program.tensors()[1])
    apply_random_steps(rng, schedule)
    return lowerable(Case(program, schedule.trace))


def lowerable(case: Case) -> Case:
    """The case with steps dropped from the end until lowering does not refuse it."""
    while True:
        try:
            schedule, args = case.schedule()
            lower_schedule(schedule, args)
        except REFUSALS:
            case = replace(case, trace=Trace(case.trace.steps[:-1]))
        except Exception:  # noqa: BLE001  # a failure that `check` will raise again
            return case
        else:
            return case


def check(case: Case, seed: int = 0, *, with_reference: bool = False) -> None:
    """Raise Mismatch, or whatever the compiler raises, when the executions disagree.

    ``with_reference`` runs the shipped interpreter too, which is slow.
    """
    schedule, args = case.schedule()
    program = lower_schedule(schedule, args)
    text = program_text(program)
    again, other_args = replace(case, trace=Trace.from_json(case.trace.to_json())).schedule()
    if again.trace.key != case.trace.key:
        raise Mismatch("the trace changes when replayed from JSON")
    if program_text(lower_schedule(again, other_args)) != text:
        raise Mismatch("the replayed trace lowers to another program")

    placeholders, outputs = case.program.tensors()
    outputs = all_outputs(outputs)
    arrays = case.program.arrays(seed)
    expected = te.evaluate(outputs, dict(zip(placeholders, arrays, strict=True)))
    named = {p.name: a for p, a in zip(placeholders, arrays, strict=True)}
    wanted = {t.name: value for t, value in zip(outputs, expected, strict=True)}
    tolerance = case.program.tolerance
    _compare("checking interpreter", loop_interpreter.run_program(program, named), wanted, tolerance)
    if with_reference:
        outer = {t.name: np.zeros(t.shape, t.dtype) for t in outputs}
        interpreter.run_program(program, {**named, **outer})
        _compare("interpreter", outer, wanted, tolerance)
    schedule, args = case.schedule()
    _compare("machine code", run_machine_code(schedule, args, named), wanted, tolerance)


def _compare(who: str, got: dict[str, Any], wanted: dict[str, Any], tolerance: float) -> None:
    for name, expected in wanted.items():
        value = got[name]
        if tolerance == 0.0:
            wrong = value != expected
        else:
            wrong = ~np.isclose(value, expected, rtol=1e-4, atol=tolerance)
        if wrong.any():
            where = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise Mismatch(
                f"{who}: {int(wrong.sum())} of {wrong.size} elements of {name} differ; "
                f"at {where} got {value[where]}, NumPy has {expected[where]}"
            )


def minimised(case: Case, error: BaseException) -> Case:
    """The smallest case found that still fails the same way: fewer steps, smaller sizes."""
    kind = failure_kind(error)
    changed = True
    while changed:
        changed = False
        for candidate in _smaller(case):
            if failure_kind(_error_of(candidate)) == kind:
                case, changed = candidate, True
                break
    return case


def describe(case: Case) -> str:
    """The case as Python text, with the error it ends in and the loops it lowers to."""
    error = _error_of(case)
    try:
        schedule, args = case.schedule()
        loops = program_text(lower_schedule(schedule, args))
    except Exception as failure:  # noqa: BLE001  # lowering itself may be what fails
        loops = f"lowering: {type(failure).__name__}: {failure}"
    return f"{case.text()}\n# {type(error).__name__}: {error}\n{loops}"


def failure_kind(error: BaseException | None) -> str:
    """What a failure is recognised by."""
    if error is None:
        return ""
    message = str(error).split(":")[0] if isinstance(error, Mismatch) else ""
    return f"{type(error).__name__} {message}"


def _smaller(case: Case) -> list[Case]:
    steps = case.trace.steps
    result = [replace(case, trace=Trace(steps[:k] + steps[k + 1 :])) for k in reversed(range(len(steps)))]
    sizes = case.program.sizes
    for k, size in enumerate(sizes):
        for smaller in sorted({1, 2, 3, size // 2, size - 1}):
            if 1 <= smaller < size:
                new = (*sizes[:k], smaller, *sizes[k + 1 :])
                result.append(replace(case, program=replace(case.program, sizes=new)))
    if len(case.program.outputs) > 1:
        for k in range(len(case.program.outputs)):
            rest = case.program.outputs[:k] + case.program.outputs[k + 1 :]
            result.append(replace(case, program=replace(case.program, outputs=rest)))
    return result


def _error_of(case: Case) -> BaseException | None:
    try:
        check(case)
    except REFUSALS:
        return None
    except (Exception, RecursionError) as error:  # noqa: BLE001  # any failure is what is looked for
        return error
    return None
