"""The report of a job on a narrow terminal."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from autotune.database import Evidence, Ratio, State
from autotune.tuning.report.live import Live
from autotune.tuning.report.result import DispatchRow, ModelReport, Report, lines_of

NAME = "features.10.expand3x3.convolution"
TUNED = Evidence(State.TUNED, 19, Ratio(0.5, (0.49, 0.51)))
ROW = DispatchRow(NAME, "convolution", "w" * 64, 1, 2e5, 1e5, 20, TUNED)


def report_of(*rows: DispatchRow, models: tuple[str, ...] = ("m",)) -> Report:
    found = tuple(ModelReport(model, rows) for model in models)
    return Report(found, "t", "tuning.db", "j", False, 20, 20, 1.0, 20.0, {"ok": 20}, {})


REPORT = report_of(ROW)


def test_names_are_cut_so_that_rows_fit() -> None:
    assert NAME in lines_of(REPORT)[1]
    header, row = lines_of(REPORT, 80)[:2]
    assert len(header) == len(row) == 80
    assert row.startswith(NAME[:8] + "…  convolution")
    assert row.endswith(" 20  2.00× (1.96× to 2.04×)")
    assert lines_of(REPORT, 200) == lines_of(REPORT)


def test_the_nodes_of_the_model_stand_at_the_end_where_there_is_room() -> None:
    report = report_of(replace(ROW, nodes=("conv1", "norm1", "relu1")))
    assert lines_of(report)[1].endswith("×)  conv1, norm1, relu1")
    assert lines_of(report, 123)[1].endswith("×)  conv1, norm1, re…")
    assert lines_of(report, 80) == lines_of(REPORT, 80)
    assert report.to_json()["models"][0]["dispatches"][0]["nodes"] == ("conv1", "norm1", "relu1")


def test_a_terminal_shows_one_line_a_dispatch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = io.StringIO()
    Live(out).finished(REPORT)
    assert [len(line) for line in out.getvalue().splitlines()[:2]] == [80, 80]
