"""Answers of a database that are asked for again and again while a job works: looked up anew only where something was
stored."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.database.query import Hit, Miss
from autotune.database.records import Key, Run
from autotune.database.store import Database


class KeptAnswers:
    """The answers of :meth:`Database.lookup`, kept until any process stores something of the workload."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._last = database.last_rows()
        self._found: dict[Key, Hit | Miss] = {}

    def best(self, keys: Iterable[Key]) -> dict[Key, Run | Miss]:
        """Return the schedule to use for each key, or why there is none."""
        found = self.lookup(keys)
        return {key: one.best if isinstance(one, Hit) else one for key, one in found.items()}

    def lookup(self, keys: Iterable[Key]) -> dict[Key, Hit | Miss]:
        """Return the same with how well it is known."""
        self._forget_changed()
        answers = dict[Key, Hit | Miss]()
        for key in keys:
            if key not in self._found:
                self._found[key] = self.database.lookup(key.workload, key.target, key.space)
            answers[key] = self._found[key]
        return answers

    def _forget_changed(self) -> None:
        last = self.database.last_rows()
        if last == self._last:
            return
        changed, self._last = self.database.changed_since(self._last), last
        self._found = {key: found for key, found in self._found.items() if key.workload not in changed}


__all__ = ["KeptAnswers"]
