"""A model as what its dispatches run in."""

from __future__ import annotations

from pathlib import Path

from autotune.compiler import divide
from autotune.compiler.decision import alternative_key
from autotune.database import ContestRow, Database, Latency, WorkloadRow
from autotune.passes.alternatives import Alternative
from autotune.passes.preference import Preference
from autotune.target import Target
from autotune.tuning.confirm import Version
from autotune.tuning.model import ModelSurroundings, work_of


def _count(alternative: Alternative) -> int:
    return 1 if alternative.steps is None else len(alternative.steps.dispatches)


def test_what_another_job_decides_meanwhile_does_not_change_what_is_read(tmp_path: Path) -> None:
    target, parts = Target.detect(1), divide("zoo:squeezenet")
    _, forks = work_of(parts, target, Preference())
    fork, other = next((f, a) for f in forks for a in f.alternatives if _count(a) != _count(f.default))
    with Database(tmp_path / "tuning.db") as database:
        database.add_target(target)
        w = fork.workload
        database.add_workload(WorkloadRow(w.key, w.text, w.kind, w.flops, w.bytes))
        model = ModelSurroundings(parts, target, database, Preference(), 0)
        told = model.dispatches(decided=True)
        entries = [
            ContestRow(a.name, alternative_key(a, target), Latency(5, ns, ns, 0.0))
            for a, ns in ((other, 1.0), (fork.default, 1e9))
        ]
        database.record_contest(w.key, target.key, entries)
        (readings,) = model.read([Version(True, {})], 1, lambda: False)
        assert readings is not None
        assert readings.shape[1] == len(told)
        assert model.dispatches(decided=True) != told
