"""The output of ``autotune db stats``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

from autotune.suggest import counted

if TYPE_CHECKING:
    from autotune.database import Database


def stats_of(store: Database) -> dict[str, Any]:
    """Return everything that is shown, as JSON values; ``workloads`` has a row for each target that measured it."""
    from autotune.database.overview import overview
    from autotune.tuning.jobs.owner import states_of

    targets = {key: target.name for key, target in store.targets().items()}
    outcomes, rows = store.outcomes(), list(overview(store))
    jobs = store.jobs()
    trials = store.job_trials([job.id for job in jobs])
    return {
        "database": store.where,
        "runs": sum(outcomes.values()),
        "outcomes": outcomes,
        "targets": list(targets.values()),
        "jobs": [
            {
                "id": state.job.id,
                "model": state.job.model,
                "target": targets.get(state.job.target_key, state.job.target_key),
                "state": state.life.value,
                "runs": trials[state.job.id],
                "seconds": state.job.elapsed_s,
                "created": state.job.created,
            }
            for state in states_of(jobs)
        ],
        "by": {by: _groups(rows, by) for by in BY},
        "workloads": sorted(map(_shown, rows), key=lambda row: -(row["best_ns"] or 0.0)),
    }


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the overview with the gain in words."""
    return {name: value for name, value in row.items() if name != "ratio"} | {
        "gain": str(row["ratio"]) if row["ratio"] else None
    }


BY: Mapping[str, Callable[[Mapping[str, Any]], Sequence[str]]] = {
    "model": lambda row: row["models"] or ["no model"],
    "family": lambda row: [row["kind"]],
    "target": lambda row: [row["target"] or "not measured"],
}
"""The groups by which workloads are counted, to which a row of the overview belongs."""


def _groups(rows: Sequence[Mapping[str, Any]], by: str) -> list[dict[str, Any]]:
    """Return the sums of the workloads of each group; one of several models counts in each."""
    members: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        for name in BY[by](row):
            members.setdefault(name, []).append(row)
    return [_group(name, found) for name, found in sorted(members.items())]


def _group(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    faster = [row["ratio"].speedup for row in rows if row["ratio"] and row["ratio"].changed]
    return {
        "name": name,
        "workloads": len({row["key"] for row in rows}),
        "runs": sum(row["runs"] for row in rows),
        "confirmed_faster": len(faster),
        "gain": geometric_mean(faster) if faster else None,
    }


def lines_of(facts: dict[str, Any], shown: int | None, by: str | None = None) -> Iterator[str]:
    """Yield the text: not more than ``shown`` workloads of each target, None for all of them; or groups
    ``by`` something."""
    outcomes = ", ".join(f"{count} {name}" for name, count in facts["outcomes"].items())
    distinct = len({row["key"] for row in facts["workloads"]})
    runs = counted(facts["runs"], "run")
    yield f"{facts['database']}: {runs} ({outcomes or 'none'}) of {counted(distinct, 'workload')}"
    for job in facts["jobs"]:
        begun = time.strftime("%Y-%m-%d %H:%M", time.localtime(job["created"]))
        yield (
            f"  job {job['id']}  {job['model']}: {job['state']}, {counted(job['runs'], 'run')} "
            f"in {job['seconds']:.0f} s, begun {begun}, {job['target']}"
        )
    if by is not None:
        yield ""
        yield from _table_of_groups(facts["by"][by], by)
        return
    for target in facts["targets"]:
        rows = [row for row in facts["workloads"] if row["target"] == target]
        if rows:
            yield ""
            yield f"{target}: {counted(len(rows), 'workload')}, those that take longest first; latencies alone"
            yield from _table(rows[:shown])
        if shown is not None and len(rows) > shown:
            yield f"  … and {len(rows) - shown} more: --all lists them"
    without = sum(row["target"] is None for row in facts["workloads"])
    if without:
        yield ""
        yield f"not measured yet: {counted(without, 'workload')}"


def _table_of_groups(groups: Sequence[dict[str, Any]], by: str) -> Iterator[str]:
    width = max([len(by), *(len(group["name"]) for group in groups)])
    yield f"  {by:<{width}} {'workloads':>10} {'runs':>8} {'faster':>7}  their speed-up"
    for group in groups:
        gain = f"{group['gain']:.2f}×" if group["gain"] else "-"
        counts = f"{group['workloads']:>10} {group['runs']:>8} {group['confirmed_faster']:>7}"
        yield f"  {group['name']:<{width}} {counts}  {gain}"


def _table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    from autotune.tuning.report.units import nanoseconds

    numbers = f"{'runs':>5} {'default':>10} {'best':>10} {'GFLOP/s':>8} {'confirmed':>22}"
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


__all__ = ["BY", "lines_of", "stats_of"]
