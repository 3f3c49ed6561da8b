"""Reports of jobs out of the JSON that the database has of them: the numbers are those that the job has shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.database.evidence import Evidence, State
from autotune.database.goal import Objective, Saving
from autotune.database.records import Latency, Ratio
from autotune.errors import DatabaseError
from autotune.foreign import parse_json
from autotune.tuning.report.gain import Gain
from autotune.tuning.report.result import DispatchRow, ModelReport, OptionRow, Report


def report_from(text: str, job: str) -> Report:
    """Return the report in a job's row; raises DatabaseError where that is damaged."""
    try:
        made = parse_json(text)
        return Report(**{**made, "models": tuple(map(_model, made["models"]))})
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        why = f"{type(error).__name__}: {error}"
        raise DatabaseError(f"the report of job {job} is damaged, or of a newer version: {why}") from error


def _model(made: Mapping[str, Any]) -> ModelReport:
    return ModelReport(
        made["model"],
        tuple(map(_dispatch, made["dispatches"])),
        tuple(made["decisions"]),
        None if made["gain"] is None else _gain(made["gain"]),
        made.get("untimed", ""),
        tuple(
            OptionRow(**{**each, "workloads": tuple(each["workloads"])}) for each in made.get("options", ())
        ),
    )


_OF_EVIDENCE = ("state", "trials", "crashed", "gain", "saving")


def _dispatch(made: Mapping[str, Any]) -> DispatchRow:
    plain = {name: value for name, value in made.items() if name not in _OF_EVIDENCE}
    lists = {name: tuple(made.get(name, ())) for name in ("nodes", "names")}
    return DispatchRow(**{**plain, **lists, "evidence": _evidence(made)})


def _evidence(made: Mapping[str, Any]) -> Evidence:
    gain, saving = made["gain"], made["saving"]
    return Evidence(
        State(made["state"]),
        made["trials"],
        None if gain is None else Ratio.from_json(gain),
        made["crashed"],
        None if saving is None else _saving(saving),
    )


def _saving(made: Mapping[str, Any]) -> Saving:
    ratio = Ratio.from_json({"ratio": made["slowdown"], "interval": made["interval"]})
    objective = Objective(made["objective"])
    return Saving(objective, made["bytes"], made["bytes_of_fastest"], ratio, made["confirmed"])


def _gain(made: Mapping[str, Any]) -> Gain:
    before, after = (Latency(**made[side]) for side in ("before", "after"))
    return Gain(before, after, Ratio.from_json(made), made["processes"], made["error"], made["load"])


__all__ = ["report_from"]
