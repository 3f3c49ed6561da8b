"""A summary of each workload on each target that measured it, with the names of models and layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from autotune.database.describe import operators_of, shapes_of

if TYPE_CHECKING:
    from autotune.database.records import WorkloadSummary
    from autotune.database.store import Database


def overview(database: Database) -> Iterator[dict[str, Any]]:
    """Yield a row for each workload and target; one without a target for what was not measured yet."""
    targets = {key: target.name for key, target in database.targets().items()}
    jobs = {job.id: job.model for job in database.jobs()}
    layers: dict[str, dict[str, None]] = {}  # names in the order in which they were met, each once
    models: dict[str, dict[str, None]] = {}
    for (job, key), names in database.layers().items():
        layers.setdefault(key, {}).update(dict.fromkeys(names))
        models.setdefault(key, {})[jobs.get(job, job)] = None
    measured: dict[str, list[WorkloadSummary | None]] = {}
    for row in database.summary():
        measured.setdefault(row.workload_key, []).append(row)
    for workload in database.workload_rows():
        described = {
            "key": workload.key,
            "kind": workload.kind,
            "operators": operators_of(workload.text),
            "shapes": shapes_of(workload.text),
            "models": list(models.get(workload.key, {})),
            "layers": list(layers.get(workload.key, {})),
            "flops": workload.flops,
            "bytes": workload.bytes,
        }
        for found in measured.get(workload.key, [None]):
            best = found.best_ns if found else None
            yield described | {
                "target": targets.get(found.target_key) if found else None,
                "runs": found.runs if found else 0,
                "default_ns": found.default_ns if found else None,
                "best_ns": best,
                "gflops": workload.flops / best if best else None,
                "ratio": found.ratio if found else None,
            }


__all__ = ["overview"]
