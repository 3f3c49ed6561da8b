"""The page of a run of ONNX's tests: how many pass, of what kind, and why the others do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from autotune.bench.tables import Table
from tests.conformance.expected import reason_of
from tests.conformance.run import Outcome


def tables(found: Mapping[str, Sequence[Outcome]]) -> list[Table]:
    """``found``: by the name of a system, ours first, the outcomes of the same tests."""
    ours = next(iter(found.values()))
    return [_totals(found), _reasons(ours)]


def _totals(found: Mapping[str, Sequence[Outcome]]) -> Table:
    rows = []
    for system, outcomes in found.items():
        kinds = Counter(_kind(each) for each in outcomes)
        passed = Counter(_kind(each) for each in outcomes if each.passed)
        fixed = Counter(_kind(each) for each in outcomes if each.passed and each.values)
        rows += [(system, kind, f"{passed[kind]}", f"{kinds[kind]}", f"{fixed[kind]}") for kind in kinds]
    note = (
        "fixed: passed ones that have inputs which decide what is compiled (a shape, axes, bounds), "
        "known when their model was compiled"
    )
    return Table("Tests", ("system", "kind", "passed", "of", "fixed"), tuple(rows), (note,))


def _reasons(outcomes: Sequence[Outcome]) -> Table:
    counts = Counter(
        (_kind(each), reason_of(each.test) or "no reason is known") for each in outcomes if not each.passed
    )
    rows = [(kind, reason, f"{count}") for (kind, reason), count in counts.most_common()]
    return Table("Why tests fail", ("kind", "reason", "tests"), tuple(rows))


def _kind(outcome: Outcome) -> str:
    return outcome.test.partition("/")[0]


__all__ = ["tables"]
