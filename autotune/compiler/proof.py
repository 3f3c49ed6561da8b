"""Proofs by isl that the schedules of a model's dispatches compute what their programs say (``--verify``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from autotune.compiler.planned import Planned, apply
from autotune.errors import LoweringError
from autotune.lower import verify
from autotune.lower.verify_isl import Verified
from autotune.passes.partition import Partition
from autotune.suggest import counted


@dataclass(frozen=True)
class Proof:
    """The proof of one workload; ``names`` are the dispatches that have it."""

    names: tuple[str, ...]
    kind: str
    verdict: Verified


@dataclass(frozen=True)
class ProofReport:
    """The proofs of all workloads of a model."""

    proofs: tuple[Proof, ...]

    def __str__(self) -> str:
        """Return one line, e.g. ``schedules of 26 dispatches: 24 proven, 2 not affine``."""
        counts: Counter[str] = Counter()
        for proof in self.proofs:
            counts[proof.verdict.status] += len(proof.names)
        parts = ", ".join(f"{count} {status}" for status, count in counts.most_common())
        return f"schedules of {counted(counts.total(), 'dispatch')}: {parts}"

    def details(self) -> str:
        """Return the one line, then a line a workload."""
        lines = [str(self)]
        for proof in self.proofs:
            more = f" ×{len(proof.names)}" if len(proof.names) > 1 else ""
            lines.append(f"  {proof.names[0]}{more} ({proof.kind}): {proof.verdict.text()}")
        return "\n".join(lines)


def prove_all(parts: Partition, schedules: Iterable[Planned]) -> ProofReport:
    """Prove the schedule of each workload.

    Raises LoweringError with the dispatch and a counterexample for a schedule that is wrong, MissingExtraError
    without islpy.
    """
    names: dict[str, list[str]] = {}
    for dispatch in parts.dispatches:
        names.setdefault(dispatch.workload.key, []).append(dispatch.name)
    proofs = []
    for planned in schedules:
        mine = tuple(names[planned.workload.key])
        proofs.append(Proof(mine, planned.workload.kind, _prove(planned, mine[0])))
    return ProofReport(tuple(proofs))


def _prove(planned: Planned, name: str) -> Verified:
    applied = planned.scheduled or apply(planned.workload, planned.trace)
    program = applied.program
    try:
        return verify(applied.schedule, program.args, constants=program.constants, strides=program.strides)
    except LoweringError as error:
        raise LoweringError(f"the schedule of {name} is wrong; {error}") from error


__all__ = ["Proof", "ProofReport", "prove_all"]
