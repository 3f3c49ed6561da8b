"""One side-by-side benchmark from cases to a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from autotune.bench import machine
from autotune.bench.compare import BenchmarkPlan, Say, compare
from autotune.bench.problem import Case
from autotune.bench.result import Result
from autotune.bench.tables import Document, Table
from autotune.suggest import counted

Tables = Callable[[str, Sequence[Result]], Sequence[Table]]
"""The tables of one number of threads; the text says how many."""


def run(
    page: Document,
    cases: Iterable[Case],
    plan: BenchmarkPlan,
    tables: Tables,
    say: Say,
    save: Callable[[Document], None],
) -> Document:
    """Compare all cases and add them to the page's tables and data; ``save`` gets the page so far after each case.

    Raises what :func:`autotune.bench.compare.compare` raises.
    """
    versions = dict[str, str]()
    results: list[Result] = []
    filled = page
    for result in compare(cases, plan, say, versions):
        results.append(result)
        filled = _filled(page, versions, tables, results)
        save(filled)
    return filled


def _filled(page: Document, versions: Mapping[str, str], tables: Tables, results: list[Result]) -> Document:
    made = list(page.tables)
    for threads in dict.fromkeys(result.threads for result in results):
        mine = [result for result in results if result.threads == threads]
        made += tables(counted(threads, "thread"), mine)
    facts = machine.with_peers(page.facts, versions)
    return replace(
        page,
        facts=facts,
        tables=tuple(made),
        data=[*(page.data or []), *(result.to_json() for result in results)],
    )


__all__ = ["Tables", "run"]
