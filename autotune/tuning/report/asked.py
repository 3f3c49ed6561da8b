"""The results of a query: each requested workload, followed by the steps that its option makes of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.compiler.plan import Plan, Ranking
    from autotune.graph.program import AnyWorkload

Asked = tuple["AnyWorkload", tuple[str, ...], tuple[str, ...]]
"""A workload, its dispatches, and the model's nodes that they come from."""


@dataclass
class WorkloadEntry:
    """A workload with all dispatches that have it, and their nodes; ``ranking`` has its options, if it was asked."""

    workload: AnyWorkload
    names: list[str] = field(default_factory=list)
    nodes: dict[str, None] = field(default_factory=dict)
    ranking: Ranking | None = None

    def add(self, names: Iterable[str], nodes: Iterable[str]) -> None:
        """Add dispatches that have the workload too."""
        self.names += names
        self.nodes.update(dict.fromkeys(nodes))


def entries(asked: Sequence[Asked], plan: Plan) -> list[WorkloadEntry]:
    """Return an entry for each workload, and for each that is divided one of its own: it may be a step elsewhere.

    Steps that several share, or that were asked for themselves, are one entry.
    """
    found: dict[tuple[str, bool], WorkloadEntry] = {}

    def entry(workload: AnyWorkload, divided: bool = False) -> WorkloadEntry:
        return found.setdefault((workload.key, divided), WorkloadEntry(workload))

    for workload, names, nodes in asked:
        option = plan.options.get(workload.key)
        steps = () if option is None or option.steps is None else option.steps.dispatches
        mine = entry(workload, divided=bool(steps))
        mine.add(names, nodes)
        mine.ranking = plan.rankings.get(workload.key)
        for step in steps:
            entry(step.workload).add([f"{name}/{step.name}" for name in names], nodes)
    return list(found.values())


__all__ = ["Asked", "WorkloadEntry", "entries"]
