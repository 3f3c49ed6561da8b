"""One side-by-side benchmark from cases to a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from autotune.bench import machine
from autotune.bench.compare import Plan, Result, Say, compare
from autotune.bench.problem import Case
from autotune.bench.tables import Document, Table

Tables = Callable[[str, Sequence[Result]], Sequence[Table]]
"""The tables of one number of threads; the text says how many."""


@dataclass(frozen=True)
class Page:
    """What a benchmark's page says beside its tables."""

    title: str
    command: str
    about: str = ""
    notes: tuple[str, ...] = ()


def run(page: Page, cases: Iterable[Case], plan: Plan, tables: Tables, say: Say) -> Document:
    """Compare all cases and make the page. Raises what :func:`autotune.bench.compare.compare` raises."""
    before = machine.facts()
    results, versions = compare(cases, plan, say)
    made: list[Table] = []
    for threads in plan.threads:
        mine = [result for result in results if result.threads == threads]
        made += tables(f"{threads} thread{'s' if threads > 1 else ''}", mine)
    return Document(
        page.title,
        page.command,
        machine.with_peers(before, versions),
        tuple(made),
        [result.to_json() for result in results],
        page.about,
        page.notes,
    )


__all__ = ["Page", "Tables", "run"]
