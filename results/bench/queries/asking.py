"""The process that asks a made-up database: it has not seen a workload before that it asks for.

It reads one JSON object from standard input and writes the times of one question a line to standard output.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from autotune.database import WorkloadRow
from autotune.database.store import Database
from autotune.graph.program import parse_workload
from autotune.graph.region import Workload
from autotune.target import Target
from autotune.tuning.api import query
from results.bench.queries.material import another_target
from results.bench.queries.times import Times
from search_spaces.spaces import space_for

_FEW = 3
"""So often what takes seconds is asked."""


@dataclass(frozen=True)
class Questions:
    """The queries: the database, keys of workloads that were tuned here, and texts of some that were not.

    ``first`` are keys of others, asked for before any time is taken: what is imported is not counted. ``again``: only
    what a process asks that finds what another one has kept.
    """

    where: str
    tuned: tuple[str, ...]
    missing: tuple[str, ...]
    first: tuple[str, ...]
    again: bool = False

    def to_json(self) -> str:
        """Read back by :meth:`from_json`."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Questions:
        """Read what :meth:`to_json` wrote."""
        fields: dict[str, Any] = json.loads(text)
        lists = {name: tuple(fields[name]) for name in ("tuned", "missing", "first")}
        return Questions(**{**fields, **lists})


def answered(questions: Questions) -> Iterator[Times]:
    """Ask, and take the time of each answer."""
    other, where = another_target(), questions.where
    with Database(where, read_only=True) as database:
        for key in questions.first:
            query(key, database=database)
            query(key, database=database, target=other)

        def elsewhere(key: str) -> object:
            return query(key, database=database, target=other)

        tuned = questions.tuned
        if questions.again:
            yield _each("another target, by the next process", tuned, elsewhere)
            return
        exact: Callable[[str], object] = partial(query, database=database)
        yield _each("autotune.query, exact", tuned, exact)
        yield _each("the same workloads again", tuned, exact)
        yield _each("the same, the database by its path", tuned, partial(query, database=where))
        yield _each("autotune.query, another target", tuned, elsewhere)
        yield _each("the same workloads again", tuned, elsewhere)
        yield from _lookups(database, questions)
        yield _each("Database.runs of a workload", tuned[:5], lambda key: database.runs(workload=key))
        few = tuned[:_FEW]
        yield _each("Database.workloads", few, lambda _: database.workloads())
        yield _each("Database.summary", few, lambda _: database.summary())
        yield _each("Database.tuned_keys", few, lambda _: database.tuned_keys())


def _lookups(database: Database, questions: Questions) -> Iterator[Times]:
    """Time what the database does of a query."""
    here = Target.detect()
    (tuned, missing) = (
        [parse_workload(text) for text in texts]
        for texts in (_texts(database, questions.tuned), questions.missing)
    )
    keys = {
        w: (w.key, here.key, space_for(w, here).key) for w in (*tuned, *missing) if isinstance(w, Workload)
    }
    yield _each("Database.lookup, exact", tuned, lambda w: database.lookup(*keys[w]))
    yield _each("Database.lookup, a miss", missing, lambda w: database.lookup(*keys[w]))
    yield _each(
        "Database.near, other sizes",
        missing,
        lambda w: database.near(WorkloadRow.of(w), here, keys[w][2]),
    )


def _texts(database: Database, keys: Iterable[str]) -> list[str]:
    wanted = set(keys)
    return [row.text for row in database.workload_rows() if row.key in wanted]


def _each(name: str, asked: Sequence[Any], ask: Callable[[Any], object]) -> Times:
    found = Times(name)
    for one in asked:
        found.add(partial(ask, one))
    return found


def main() -> None:
    """Answer the request on standard input."""
    for times in answered(Questions.from_json(sys.stdin.read())):
        print(json.dumps(asdict(times)), flush=True)


if __name__ == "__main__":
    main()

__all__ = ["Questions", "answered", "main"]
