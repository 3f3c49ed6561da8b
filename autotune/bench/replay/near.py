"""Warm starts in replay: recordings of other workloads are the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from autotune.bench.replay.recording import CandidateRecording
from autotune.bench.replay.search import Answers
from autotune.database import Database, Key, Latency, Origin, Outcome, Run, WorkloadRow
from autotune.database.records import Reading
from autotune.files import scratch_folder
from autotune.schedule.knob import Config, config_to_json
from autotune.tuning.search import warm_start

if TYPE_CHECKING:
    from autotune.database.near import Neighbour
    from autotune.target import Target

_BEST = 32
"""So many of the fastest candidates of a recording are stored: a warm start looks at fewer."""


class _OfOthers:
    """A database without what it knows of the workload that is asked for, on whatever target."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def near(
        self, workload: WorkloadRow, target: Target, space_key: str, *, with_kin: bool
    ) -> list[Neighbour]:
        found = self._database.near(workload, target, space_key, with_kin=with_kin)
        return [neighbour for neighbour in found if neighbour.key.workload != workload.key]

    def leaders(self, key: Key, count: int) -> list[tuple[Run, float]]:
        return self._database.leaders(key, count)


def warm_starts(
    recordings: Sequence[CandidateRecording], searched: Sequence[Answers], by: str
) -> list[list[Config]]:
    """For each pool that is ``searched`` its candidates nearest to what was fastest, ``by`` the same readings, in the
    recordings of other workloads."""
    with scratch_folder("autotune-replay-") as folder, Database(folder / "recorded.db") as database:
        for recording in recordings:
            _store(database, Answers(recording, by))
        others = _OfOthers(database)
        return [warm_start.proposals(answers.space, answers.default, others) for answers in searched]


def _store(database: Database, answers: Answers) -> None:
    """The default and the fastest candidates of a recording, its ratios as in-model measurements."""
    space, facts = answers.space, answers.recording.facts
    key = Key(space.workload.key, space.target.key, space.key)
    database.add_workload(WorkloadRow.of(space.workload))
    database.add_target(space.target)
    database.add_space(space.key, space.workload.key, "{}")
    configs, table = answers.recording.today
    readings = []
    fastest = answers.ratios.argsort(kind="stable")[:_BEST]
    for row in fastest[np.isfinite(answers.ratios[fastest])]:
        ns, trace = float(answers.ratios[row] * facts.default_ns), str(table.trace_key[row])
        default = configs[row] == answers.default
        text, origin = config_to_json(configs[row]), Origin.DEFAULT if default else Origin.SEARCH
        latency = Latency(1, ns, ns, 0.0)
        if database.record(Run(key, trace, "[]", text, Outcome.OK, latency, origin=origin)) and not default:
            readings.append(
                Reading(trace, float(answers.ratios[row]), int(table.turns[row]), facts.default_ns)
            )
    database.read_inside(key, readings, facts.model)


__all__ = ["warm_starts"]
