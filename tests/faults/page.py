"""What faults did, as a table: a row for each fault, place and way of asking."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.bench.tables import NOTHING, Table
from tests.faults.run import Outcome

_COLUMNS = ("fault", "users have", "others right", "beside", "bytes after", "its caller got")
_SHOWN = 110


def line(outcome: Outcome) -> str:
    """One outcome in a line."""
    held = "; ".join(outcome.problems) or "holds"
    return f"{outcome.where}, {outcome.fault}, {outcome.way}: {held}"


def tables(found: Sequence[Outcome]) -> list[Table]:
    """A table for each place."""
    return [_table(where, [each for each in found if each.where == where]) for where in _places(found)]


def _places(found: Sequence[Outcome]) -> list[str]:
    return list(dict.fromkeys(each.where for each in found))


def _table(where: str, found: Sequence[Outcome]) -> Table:
    rows = tuple(
        (
            each.fault,
            each.way,
            f"{each.good} of {each.others}",
            str(each.beside),
            str(each.live_bytes),
            _short(each.error),
        )
        for each in found
    )
    notes = (
        "others right: answers of requests without the fault, and of those afterwards where the model could answer; "
        "how many those are that were answered before something was closed is chance",
        "beside: right answers of another module of this process meanwhile",
        "bytes after: in use on all devices, when the model was closed and they were not",
    )
    return Table(where, _COLUMNS, rows, notes)


def _short(error: str) -> str:
    text = " ".join(error.replace("|", "/").split())
    return (text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…") or NOTHING


__all__ = ["line", "tables"]
