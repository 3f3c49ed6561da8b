"""Mutations of lowered programs: one statement, loop or operand changed, as a fault of lowering would change it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from dataclasses import replace as with_fields

from autotune.lower.ir import LoopKernel, LoopProgram, Stmt, kernel_of
from tests.schedule.mutated_expressions import EXPRESSIONS, STORES, of_expression, of_store
from tests.schedule.mutated_statements import STATEMENTS, of_statement


@dataclass(frozen=True)
class Mutant:
    """A program with one mutation; ``kind`` names it, ``text`` says what was changed."""

    kind: str
    text: str
    program: LoopProgram


def random_mutant(rng: random.Random, program: LoopProgram) -> Mutant | None:
    """A mutant of a program; None where the mutation drawn has nothing to change."""
    if rng.random() < 0.03:
        return _kernels_swapped(rng, program)
    number = rng.randrange(len(program.kernels))
    kind = rng.choice([*STATEMENTS, *STORES, *EXPRESSIONS])
    body = program.kernels[number].body
    how = of_statement if kind in STATEMENTS else of_store if kind in STORES else of_expression
    change = how(rng, kind, body)
    if change is None:
        return None
    text, changed = change
    kernels = list(program.kernels)
    kernels[number] = with_body(kernels[number], changed)
    return Mutant(kind, text, with_fields(program, kernels=tuple(kernels)))


def with_body(kernel: LoopKernel, body: Stmt) -> LoopKernel:
    """A kernel of another body, which says of itself what is true of that."""
    made = kernel_of(kernel.name, body)
    return with_fields(made, hoisted=kernel.hoisted, in_order=kernel.in_order)


def _kernels_swapped(rng: random.Random, program: LoopProgram) -> Mutant | None:
    if len(program.kernels) < 2:
        return None
    kernels = list(program.kernels)
    at = rng.randrange(len(kernels) - 1)
    kernels[at : at + 2] = kernels[at + 1], kernels[at]
    return Mutant(
        "kernels swapped", f"{kernels[at].name} first", with_fields(program, kernels=tuple(kernels))
    )


__all__ = ["Mutant", "random_mutant", "with_body"]
