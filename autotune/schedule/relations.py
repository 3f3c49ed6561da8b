"""The derivation of a stage's loops from its axes."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.schedule.knob_expression import Expression
from autotune.te.expr import IterVar

TAILS = ("peel", "overlap", "guard")
"""The treatment of the rest by a split that does not divide.

"peel": separate, narrower code; "overlap": the last tile starts early and recomputes some elements; "guard": a
condition in the loop.
"""


@dataclass(frozen=True, eq=False)
class Split:
    """``parent = outer * factor + inner``."""

    parent: IterVar
    outer: IterVar
    inner: IterVar
    factor: int
    """Extent of the inner loop; 0 when ``nparts`` was given."""
    nparts: int
    """Extent of the outer loop; 0 when ``factor`` was given."""
    tail: str
    given: Expression
    """The factor or the number of parts as the step has it: an expression where it depends on knobs."""


@dataclass(frozen=True, eq=False)
class Fuse:
    """``fused = outer * extent(inner) + inner``."""

    outer: IterVar
    inner: IterVar
    fused: IterVar


Relation = Split | Fuse
