"""One side-by-side benchmark from cases to a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from autotune.bench import machine
from autotune.bench.compare import BenchmarkPlan, Say, compare
from autotune.bench.problem import Case
from autotune.bench.result import Result
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


def run(
    page: Page,
    cases: Iterable[Case],
    plan: BenchmarkPlan,
    tables: Tables,
    say: Say,
    save: Callable[[Document], None] | None = None,
) -> Document:
    """Compare all cases and make the page; ``save`` gets the page so far after each case.

    Raises what :func:`autotune.bench.compare.compare` raises.
    """
    facts, versions = machine.facts(), dict[str, str]()
    results: list[Result] = []
    for result in compare(cases, plan, say, versions):
        results.append(result)
        if save is not None:
            save(_document(page, facts, versions, tables, results))
    return _document(page, facts, versions, tables, results)


def _document(
    page: Page, facts: Mapping[str, str], versions: Mapping[str, str], tables: Tables, results: list[Result]
) -> Document:
    made: list[Table] = []
    for threads in dict.fromkeys(result.threads for result in results):
        mine = [result for result in results if result.threads == threads]
        made += tables(f"{threads} thread{'s' if threads > 1 else ''}", mine)
    return Document(
        page.title,
        page.command,
        machine.with_peers(facts, versions),
        tuple(made),
        [result.to_json() for result in results],
        page.about,
        page.notes,
    )


__all__ = ["Page", "Tables", "run"]
