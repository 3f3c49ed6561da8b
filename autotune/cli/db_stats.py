"""What ``autotune db stats`` shows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.database import Database


def stats_of(store: Database) -> dict[str, Any]:
    """Everything that is shown, as JSON values; ``workloads`` has a row for each target that measured it."""
    targets = {key: target.name for key, target in store.targets().items()}
    outcomes = store.outcomes()
    return {
        "database": store.where,
        "runs": sum(outcomes.values()),
        "outcomes": outcomes,
        "targets": list(targets.values()),
        "jobs": [
            {
                "id": job.id,
                "model": job.model,
                "target": targets.get(job.target_key, job.target_key),
                "state": job.state,
                "runs": sum(store.outcomes(job=job.id).values()),
                "seconds": job.elapsed_s,
                "created": job.created,
            }
            for job in store.jobs()
        ],
        "workloads": sorted(_workloads(store, targets), key=lambda row: -(row["best_ns"] or 0.0)),
    }


def _workloads(store: Database, targets: dict[str, str]) -> Iterator[dict[str, Any]]:
    from autotune.database.describe import operators_of, shapes_of

    layers: dict[str, dict[str, None]] = {}  # the names in the order in which they were met, each once
    for (_, key), names in store.layers().items():
        layers.setdefault(key, {}).update(dict.fromkeys(names))
    measured: dict[str, list[Any]] = {}
    for row in store.summary():
        measured.setdefault(row.workload_key, []).append(row)
    for workload in store.workloads():
        described = {
            "key": workload.key,
            "kind": workload.kind,
            "operators": operators_of(workload.text),
            "shapes": shapes_of(workload.text),
            "layers": list(layers.get(workload.key, {})),
        }
        for row in measured.get(workload.key, [None]):
            yield described | {
                "target": targets.get(row.target_key) if row else None,
                "runs": row.runs if row else 0,
                "default_ns": row.default_ns if row else None,
                "best_ns": row.best_ns if row else None,
                "gain": str(row.ratio) if row and row.ratio else None,
                "gflops": workload.flops / row.best_ns if row and row.best_ns else None,
            }


def lines_of(facts: dict[str, Any], shown: int | None) -> Iterator[str]:
    """The text; not more than ``shown`` workloads of each target, None for all of them."""
    outcomes = ", ".join(f"{count} {name}" for name, count in facts["outcomes"].items())
    distinct = len({row["key"] for row in facts["workloads"]})
    yield f"{facts['database']}: {facts['runs']} runs ({outcomes or 'none'}) of {distinct} workloads"
    for job in facts["jobs"]:
        begun = time.strftime("%Y-%m-%d %H:%M", time.localtime(job["created"]))
        yield (
            f"  job {job['id']}  {job['model']}: {job['state']}, {job['runs']} runs in {job['seconds']:.0f} s, "
            f"begun {begun}, {job['target']}"
        )
    for target in facts["targets"]:
        rows = [row for row in facts["workloads"] if row["target"] == target]
        if rows:
            yield ""
            yield f"{target}: {len(rows)} workloads, those that take longest first; latencies alone"
            yield from _table(rows[:shown])
        if shown is not None and len(rows) > shown:
            yield f"  … and {len(rows) - shown} more: --all lists them"
    without = sum(row["target"] is None for row in facts["workloads"])
    if without:
        yield ""
        yield f"{without} workloads were not measured yet"


def _table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    from autotune.tuning.units import nanoseconds

    numbers = f"{'runs':>5} {'default':>10} {'best read':>10} {'GFLOP/s':>8} {'confirmed':>22}"
    yield f"  {'workload':<12}  {'kind':<14}{numbers}  shapes"
    for row in rows:
        speed = f"{row['gflops']:.1f}" if row["gflops"] else "-"
        yield (
            f"  {row['key'][:12]}  {row['kind']:<14}{row['runs']:>5} {nanoseconds(row['default_ns']):>10} "
            f"{nanoseconds(row['best_ns']):>10} {speed:>8} {row['gain'] or '-':>22}  {row['shapes']}"
        )
        if row["layers"]:
            first, *more = row["layers"]
            yield f"  {'':<12}  {first}" + (f" and {len(more)} more" if more else "")


__all__ = ["lines_of", "stats_of"]
