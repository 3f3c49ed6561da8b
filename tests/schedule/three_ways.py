"""One program, one schedule, three executions: NumPy, loop-IR interpreter, machine code."""

from __future__ import annotations

import random
import re
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from autotune import te
from autotune.codegen import interpreter
from autotune.errors import BuildError, LoweringError, ScheduleError
from autotune.lower import LoopProgram, lower_schedule, program_text
from autotune.lower.ir import For, Stmt, Store, sub_statements
from autotune.schedule import Schedule, Trace
from tests.codegen.opencl_device import run_on_device
from tests.schedule import loop_interpreter
from tests.schedule.machine import numba_target, run_machine_code
from tests.schedule.random_programs import Program, random_program
from tests.schedule.random_steps import apply_random_steps

REFUSALS = (ScheduleError, LoweringError)
MAX_STORES = 40_000


@dataclass(frozen=True)
class Case:
    """A program and the steps applied to it."""

    program: Program
    trace: Trace
    constants: frozenset[str] = frozenset()
    strides: tuple[tuple[str, tuple[int, ...]], ...] = ()
    target: str = "host"
    refused: int = 0
    """Steps that were refused while it was drawn."""
    dropped: int = 0
    """Steps that were legal alone, but without a loop nest at the end."""

    def lowered(self) -> LoopProgram:
        """The loop program of a fresh schedule."""
        schedule, args = self.schedule()
        return lower_schedule(schedule, args, constants=self.constants, strides=dict(self.strides))

    def schedule(self) -> tuple[Schedule, list[te.Tensor]]:
        """A fresh schedule with the steps applied, and its arguments."""
        placeholders, outputs = self.program.tensors()
        schedule = self.trace.apply(te.create_schedule(outputs))
        return schedule, placeholders + all_outputs(outputs)

    def text(self) -> str:
        """Python that reproduces the case."""
        names = ", ".join(self.program.outputs)
        text = f"{_needed_lines(self.program)}\ns = te.create_schedule([{names}])\n{self.trace.to_python()}"
        if self.constants or self.strides:
            text += f"\n# constants={set(self.constants)}, strides={dict(self.strides)}"
        if self.target != "host":
            text += f"\n# target={self.target}"
        return text


def _needed_lines(program: Program) -> str:
    """The program's text without lines that its outputs do not need."""
    lines = program.source.splitlines()
    kept = [k for k in range(1, len(lines)) if set(_targets(lines[k])) & set(program.outputs)]
    for k in reversed(range(1, len(lines))):
        if any(re.search(rf"\b{t}\b", lines[o]) for t in _targets(lines[k]) for o in kept if o > k):
            kept.append(k)
    return "\n".join([lines[0], *(lines[k] for k in sorted(set(kept)))])


def _with_output(program: Program, name: str) -> Program:
    """The part of the program that one stage needs."""
    program = replace(program, outputs=(name,))
    needed = {target for line in _needed_lines(program).splitlines() for target in _targets(line)}
    return replace(program, inputs=tuple(i for i in program.inputs if i.name in needed))


def _targets(line: str) -> list[str]:
    return line.split(" = ")[0].split(", ")


class Mismatch(AssertionError):
    """Two executions disagree."""


def all_outputs(outputs: list[te.Tensor]) -> list[te.Tensor]:
    """The outputs with all components of tuple operations, each once."""
    every = [t.op.output(i) for t in outputs for i in range(len(t.op.dtypes))]
    return list(dict.fromkeys(every))


def random_case(seed: int, *, threads: bool = False) -> Case:
    """A program and steps; the steps that no lowering accepts are dropped."""
    rng = random.Random(seed)
    program = random_program(rng)
    schedule = te.create_schedule(program.tensors()[1])
    refused = apply_random_steps(rng, schedule, threads=threads)
    case = Case(program, schedule.trace, refused=refused)
    return lowerable(case if threads else _with_layout(rng, case))


def _with_layout(rng: random.Random, case: Case) -> Case:
    """The case with some inputs constant, and some arguments padded or transposed in memory."""
    constants = frozenset[str]()
    if rng.random() < 0.25:
        constants = frozenset(i.name for i in case.program.inputs if rng.random() < 0.6)
    strides = []
    if rng.random() < 0.25:
        placeholders, outputs = case.program.tensors()
        for tensor in placeholders + all_outputs(outputs):
            if rng.random() < 0.5:
                strides.append((tensor.name, _random_strides(rng, tensor.shape)))
    target = rng.choice(("host", "x86-64-v3"))  # two vector widths where the host has the wider
    return replace(case, constants=constants, strides=tuple(strides), target=target)


def _random_strides(rng: random.Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides without overlap: some padding, and now and then another order of the dimensions."""
    order = list(reversed(range(len(shape))))
    if rng.random() < 0.3:
        rng.shuffle(order)
    strides, step = [0] * len(shape), 1
    for dim in order:
        strides[dim] = step
        step *= shape[dim] + rng.choice((0, 0, 1, 3))
    return tuple(strides)


def lowerable(case: Case) -> Case:
    """The case with steps dropped from the end until lowering accepts it and it is quick to run."""
    while True:
        try:
            program = case.lowered()
            if sum(_stores(k.body) for k in program.kernels) <= MAX_STORES or not case.trace.steps:
                return case
        except REFUSALS:
            pass
        except Exception:  # noqa: BLE001  # a failure that `check` will raise again
            return case
        case = replace(case, trace=Trace(case.trace.steps[:-1]), dropped=case.dropped + 1)


def _stores(stmt: Stmt) -> int:
    """Stores that run, both sides of branches counted."""
    here = 1 if isinstance(stmt, Store) else 0
    inside = here + sum(_stores(part) for part in sub_statements(stmt))
    return stmt.extent * inside if isinstance(stmt, For) else inside


def check(
    case: Case,
    seed: int = 0,
    *,
    with_reference: bool = False,
    with_device: bool = False,
    with_numba: bool = False,
) -> None:
    """Raise Mismatch, or whatever the compiler raises, when the executions disagree.

    ``with_reference`` runs the shipped interpreter too, which is slow, ``with_device`` OpenCL, ``with_numba`` numba.
    """
    program = case.lowered()
    text = program_text(program)
    again = replace(case, trace=Trace.from_json(case.trace.to_json()))
    if again.schedule()[0].trace.key != case.trace.key:
        raise Mismatch("the trace changes when replayed from JSON")
    if program_text(again.lowered()) != text:
        raise Mismatch("the replayed trace lowers to another program")

    placeholders, outputs = case.program.tensors()
    outputs = all_outputs(outputs)
    arrays = case.program.arrays(seed)
    expected = te.evaluate(outputs, dict(zip(placeholders, arrays, strict=True)))
    named = {p.name: a for p, a in zip(placeholders, arrays, strict=True)}
    wanted = {t.name: value for t, value in zip(outputs, expected, strict=True)}
    tolerance = case.program.tolerance
    if with_device:
        _check_device(case, named, wanted)
    if with_numba:
        _check_numba(case, named, wanted)
    if any(step.primitive == "bind" for step in case.trace.steps):
        outer = {t.name: np.zeros(t.shape, t.dtype) for t in outputs}
        interpreter.run_program(program, {**named, **outer})
        _compare("interpreter of threads", outer, wanted, tolerance)
        return
    _compare("checking interpreter", loop_interpreter.run_program(program, named), wanted, tolerance)
    if with_reference:
        outer = {t.name: np.zeros(t.shape, t.dtype) for t in outputs}
        interpreter.run_program(program, {**named, **outer})
        _compare("interpreter", outer, wanted, tolerance)
    schedule, args = case.schedule()
    computed = run_machine_code(schedule, args, named, constants=case.constants, strides=dict(case.strides))
    _compare("machine code", computed, wanted, tolerance)


_REFUSED = ("threads", "blocks of a GPU do not wait", "around loops bound to blockIdx")
"""In what is said of programs that no device runs."""


def _check_device(case: Case, named: dict[str, Any], wanted: dict[str, Any]) -> None:
    """OpenCL has the same numbers; threads that no device can run together are refused with a reason."""
    schedule, args = case.schedule()
    try:
        computed = run_on_device(schedule, args, named, constants=case.constants, strides=dict(case.strides))
    except BuildError as error:
        if not any(reason in str(error) for reason in _REFUSED):
            raise
        return
    _compare("OpenCL", computed, wanted, case.program.tolerance)


def _check_numba(case: Case, named: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Run the printed module; threads that are not taken apart at barriers are refused with a reason."""
    schedule, args = case.schedule()
    options: dict[str, Any] = {"constants": case.constants, "strides": dict(case.strides)}
    try:
        computed = run_machine_code(schedule, args, named, target=numba_target(), **options)
    except BuildError as error:
        if not any(reason in str(error) for reason in _REFUSED):
            raise
        return
    _compare("numba", computed, wanted, case.program.tolerance)


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
        loops = program_text(case.lowered())
    except Exception as failure:  # noqa: BLE001  # lowering itself may be what fails
        loops = f"lowering: {type(failure).__name__}: {failure}"
    return f"{case.text()}\n# {type(error).__name__}: {error}\n{loops}"


def failure_kind(error: BaseException | None) -> str:
    """Return the text by which a failure is recognised."""
    if error is None:
        return ""
    if isinstance(error, Mismatch):
        return f"Mismatch {str(error).split(':')[0]}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} {Path(last.filename).name} {last.name}"


def _smaller(case: Case) -> list[Case]:
    steps = case.trace.steps
    result = [replace(case, trace=Trace(steps[:k] + steps[k + 1 :])) for k in reversed(range(len(steps)))]
    stages = re.findall(r"^(?:\w+, )?(T\d+) = ", case.program.source, re.MULTILINE)
    result += [
        replace(case, program=_with_output(case.program, name))
        for name in stages
        if (name,) != case.program.outputs
        and (len(case.program.outputs) > 1 or name < case.program.outputs[0])
    ]
    if case.target != "host":
        result.append(replace(case, target="host"))
    if case.constants:
        result.append(replace(case, constants=frozenset()))
    for k in range(len(case.strides)):
        result.append(replace(case, strides=case.strides[:k] + case.strides[k + 1 :]))
    if case.strides:  # they belong to the sizes
        return result
    sizes = case.program.sizes
    for k, size in enumerate(sizes):
        for smaller in sorted({1, 2, 3, size // 2, size - 1}):
            if 1 <= smaller < size:
                new = (*sizes[:k], smaller, *sizes[k + 1 :])
                result.append(replace(case, program=replace(case.program, sizes=new)))
    return result


def _error_of(case: Case) -> BaseException | None:
    try:
        check(case)
    except REFUSALS:
        return None
    except (Exception, RecursionError) as error:  # noqa: BLE001  # any failure is what is looked for
        return error
    return None
