"""Answers of a query as JSON values."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from autotune.cli.answer_lines import fastest, in_use

if TYPE_CHECKING:
    from autotune.database import Run
    from autotune.database.near import Neighbour
    from autotune.tuning.api import Answer

_TEXTS = ("trace_json", "config_json", "versions")
"""Fields of a run that hold JSON text."""


def to_json(answer: Answer, *, explain: bool = False) -> dict[str, Any]:
    """Return one answer as JSON values; ``explain`` adds the schedule as Python text."""
    from autotune.database import Miss

    found = answer.answer
    base: dict[str, Any] = {
        "workload": answer.workload.key,
        "kind": answer.workload.kind,
        "dispatches": list(answer.names),
        "nodes": list(answer.nodes),
        "ranking": None if answer.ranking is None else answer.ranking.to_json(),
        "used": not answer.divided,
        "tier": answer.tier.value,
        "code": answer.code,
        "latency_ns": answer.latency_ns,
        "interval_ns": answer.interval_ns,
        "default_ns": answer.default_ns,
        "floor_ns": answer.floor_ns,
        **answer.evidence.to_json(),
        "transfer": None if answer.transfer is None else answer.transfer.to_json(),
        "hit": not isinstance(found, Miss),
    }
    if explain and answer.planned is not None:
        base["python"] = answer.planned.trace.to_python()
    if isinstance(found, Miss):
        near = [_near(neighbour) for neighbour in answer.near]
        return base | {"reason": found.reason.value, "message": str(found), "near": near}
    return base | {
        "runs": found.runs,
        "ok": found.ok,
        "best": _run(found.best),
        "top": [_run(run) for run in fastest(answer)],
        "front": [point.to_json() | {"used": in_use(answer, point)} for point in answer.front],
    }


def _run(run: Run) -> dict[str, Any]:
    """Return a run whose texts are values: its configuration, its trace, and the versions that made it."""
    plain = {name: value for name, value in asdict(run).items() if name not in _TEXTS}
    return plain | {
        "config": run.config,
        "trace": json.loads(run.trace_json),
        "versions": json.loads(run.versions) if run.versions else None,
    }


def _near(neighbour: Neighbour) -> dict[str, Any]:
    return {
        "workload": neighbour.key.workload,
        "target": vars(neighbour.target),
        "runs": neighbour.runs,
        "compatible": neighbour.compatible,
        "differences": [vars(difference) for difference in neighbour.differences],
    }


__all__ = ["to_json"]
