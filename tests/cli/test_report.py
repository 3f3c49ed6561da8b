"""The report of a job on a narrow terminal, and as a page."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.cli import main as cli
from autotune.database import Comparison, Evidence, JobRow, Ratio, State
from autotune.database.evidence import tally
from autotune.tuning.api import tune
from autotune.tuning.jobs.budget import Budget
from autotune.tuning.jobs.owner import states_of
from autotune.tuning.report.gain import Gain
from autotune.tuning.report.live import Live
from autotune.tuning.report.page import Compared, page
from autotune.tuning.report.result import DispatchRow, ModelReport, OptionRow, Report, lines_of
from autotune.tuning.report.table import entries
from autotune.tuning.report.table import lines as table_lines
from autotune.tuning.report.units import nanoseconds
from tests.database.examples import job, latency
from tests.outline import Outline
from tests.tuning.test_job import A
from tests.tuning.test_job import job as made_up_job

NAME = "features.10.expand3x3.convolution"
TUNED = Evidence(State.TUNED, 19, Ratio(0.5, (0.49, 0.51)))
ROW = DispatchRow(NAME, "convolution", "w" * 64, 1, 2e5, 1e5, 20, TUNED)


def report_of(*rows: DispatchRow, models: tuple[str, ...] = ("m",)) -> Report:
    found = tuple(ModelReport(model, rows, untimed="a reason") for model in models)
    return Report(found, "t", "tuning.db", "j", False, 20, 20, 1.0, 20.0, {"ok": 20}, {})


REPORT = report_of(ROW)


def test_names_are_cut_in_their_middle_so_that_rows_fit() -> None:
    assert NAME in lines_of(REPORT)[1]
    header, row = lines_of(REPORT, 80)[:2]
    assert (len(header), len(row)) == (66, 80)
    assert row.startswith("features.10…onvolution  ")
    assert row.endswith(" 20  2.00× (1.96× to 2.04×)")
    assert lines_of(REPORT, 200) == lines_of(REPORT)


def test_the_nodes_of_the_model_stand_at_the_end_where_there_is_room() -> None:
    report = report_of(replace(ROW, nodes=("conv1", "norm1", "relu1")))
    assert lines_of(report)[1].endswith("×)  conv1, norm1, relu1")
    assert lines_of(report, 109)[1].endswith("×)  conv1, n…, relu1")
    assert lines_of(report, 80) == lines_of(REPORT, 80)
    assert report.to_json()["models"][0]["dispatches"][0]["nodes"] == ("conv1", "norm1", "relu1")


def test_a_terminal_shows_one_line_a_dispatch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = io.StringIO()
    Live(out).finished(REPORT)
    lines = out.getvalue().splitlines()
    assert len(lines[1]) == 80
    assert max(map(len, lines)) == 80


ANY = Evidence(State.TRIED, 8)
PLAIN = DispatchRow("001_pool", "pool", "p", 4, 80.0, 60.0, 1, ANY, names=("001_pool",), alone=False)
SHARED = DispatchRow(
    "002_conv/000_in", "winograd", "i", 3, 40.0, 40.0, 9, TUNED, schedule="default, 8 trials",
    names=("002_conv/000_in", "003_conv/000_in", "004_in"),
)  # fmt: skip
PRODUCT = DispatchRow(
    "002_conv/001_matmul", "contraction", "m", 2, 160.0, 120.0, 9, TUNED, schedule="unconfirmed, 8 trials",
    names=("002_conv/001_matmul", "003_conv/001_matmul"), alone=False,
)  # fmt: skip
BY_OPTIONS = ModelReport(
    "m", (PLAIN, SHARED, PRODUCT),
    options=(
        OptionRow("002_conv", "winograd", 1, ("i", "m"), 0.8, "1.25× (1.20× to 1.30×)"),
        OptionRow("003_conv", "winograd", 1, ("i", "m"), None, "default"),
    ),
    untimed="a reason",
)  # fmt: skip


TABLE = """\
dispatch                  before     after         runs  speed-up
001_pool ×4                80 ns     60 ns            1  default, 8 trials
002_conv by winograd      200 ns    160 ns partly    18  1.25× (1.20× to 1.30×)
  000_in                   40 ns     40 ns alone      9  default, 8 trials
  001_matmul              160 ns    120 ns            9  unconfirmed, 8 trials
003_conv by winograd      200 ns    160 ns partly    18  default
  000_in                   40 ns     40 ns alone      9  default, 8 trials
  001_matmul              160 ns    120 ns            9  unconfirmed, 8 trials
004_in                     40 ns     40 ns alone      9  2.00× (1.96× to 2.04×)
sum of the dispatches     760 ns    600 ns partly    19"""


def test_an_option_is_a_row_with_its_parts_below() -> None:
    assert table_lines(BY_OPTIONS, 90) == TABLE.splitlines()


def test_the_sum_is_that_of_the_rows_and_of_all_dispatches() -> None:
    found = entries(BY_OPTIONS)
    assert sum(each.count * (each.after_ns or 0.0) for each in found) == sum(
        row.count * (row.after_ns or 0.0) for row in BY_OPTIONS.dispatches
    )
    for each in found:
        parts = [part.after_ns or 0.0 for part in each.parts]
        assert not parts or sum(parts) == each.after_ns


def test_a_sum_is_unknown_where_a_part_of_it_is() -> None:
    unknown = replace(BY_OPTIONS, dispatches=(replace(PLAIN, before_ns=None), SHARED))
    assert table_lines(unknown, None)[-1].split()[4:6] == ["-", "360"]


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_no_line_is_wider_than_the_terminal_and_no_two_names_are_equal(columns: int) -> None:
    rows = [
        replace(ROW, name=name, names=(name,), workload=name)
        for name in (f"{number:03}_{NAME}_with_a_tail/{part}" for number in range(12) for part in "ab")
    ]
    lines = lines_of(report_of(*rows), columns)
    assert max(map(len, lines)) <= columns
    assert len({line.split()[0] for line in lines[1:25]}) == 24


def test_figures_are_never_cut() -> None:
    option = replace(BY_OPTIONS.options[0], ratio=None, gain="no change (0.92× to 1.33×)")
    made = table_lines(replace(BY_OPTIONS, options=(option,)), 80)
    (line,) = (each for each in made if each.endswith("  no change (0.92× to 1.33×)"))
    assert "200 ns    160 ns partly    18  no change" in line
    assert max(map(len, made)) <= 80


HOSTILE = "<script src='//x'>a & b</script>\x1b[31m"


def page_of(report: Report, *lost: Comparison) -> Outline:
    state = states_of([replace(job(owner="h:1:2.00"), state=JobRow.DONE, model=HOSTILE)])[0]
    return Outline(
        page(state, report, "a CPU", [Compared("002_conv", "schedule", each, "w") for each in lost])
    )


def test_the_page_has_the_figures_of_the_report_and_loads_nothing() -> None:
    report = replace(
        REPORT, models=(BY_OPTIONS,), outcomes={"ok": 3, "crashed": 2}, failures={"crashed": HOSTILE}
    )
    lost = Comparison("t" * 64, "s", latency(9.0), ratio=Ratio(1.1, (1.05, 1.2)), load=0.3)
    made = page_of(report, lost)
    assert (made.open, made.loaded, made.scripts) == ([], [], [])
    texts = [text.strip() for text in made.texts]
    assert HOSTILE.replace("\x1b", r"\x1b") in texts
    for entry in entries(BY_OPTIONS):
        assert nanoseconds(entry.after_ns) in texts
        assert entry.gain in texts
    assert {
        "1.100 (1.050 to 1.200)",
        "crashed",
        "Whole model: not timed: a reason",
        "002_conv by winograd",
    } <= {*texts}
    assert "9 of 9 dispatches tuned" not in texts
    assert tally(row.evidence.state for row in BY_OPTIONS.dispatches for _ in range(row.count)) in texts


def test_what_decisions_bring_is_compared_with_what_the_whole_model_gains() -> None:
    """Also the schedule of a part of an option that brings nothing itself."""
    part = replace(SHARED, before_ns=60.0, schedule="1.50× (1.40× to 1.60×)")
    gain = Gain(latency(1000.0), latency(900.0), Ratio(0.9, (0.88, 0.92)), 9)
    divided = replace(BY_OPTIONS, dispatches=(PLAIN, part, PRODUCT), gain=gain)
    made = page_of(replace(REPORT, models=(divided,)))
    texts = [text.strip() for text in made.texts]
    begin = texts.index("speed-up of its own")
    rows = [text for text in texts[begin:] if text][1:25]
    assert rows[:4] == ["002_conv by winograd", "40 ns", "5.0 %", "1.25× (1.20× to 1.30×)"]
    assert rows[rows.index("003_conv by winograd: 000_in") :][:2] == ["003_conv by winograd: 000_in", "20 ns"]
    (summed,) = (rows.index(each) for each in rows if each == "sum of these")
    assert rows[summed + 1] == "80 ns"
    assert rows[rows.index("whole model, timed at the end") :][:4] == [
        "whole model, timed at the end",
        "100 ns",
        "10.0 %",
        "1.11× (1.09× to 1.14×)",
    ]
    assert rows[rows.index("not explained by these") :][:3] == ["not explained by these", "20 ns", "2.0 %"]
    assert any(text.endswith("known to ± 20 ns.") for text in texts)


def test_each_part_of_the_page_that_is_empty_says_why() -> None:
    texts = page_of(replace(REPORT, models=(replace(BY_OPTIONS, dispatches=(), options=()),))).texts
    for reason in (
        "No dispatch was timed before the job ended.",
        "Nothing was confirmed faster than the default.",
        "Candidates were measured for every dispatch that has a choice.",
        "No candidate of this job was compared in the model and was slower.",
        "None of 20 candidates failed.",
        "Nothing was measured in the model by this job.",
    ):
        assert reason in texts


@pytest.mark.usefixtures("shared_pools")
def test_the_whole_model_is_timed_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, model = tmp_path / "t.db", "zoo:tiny_cnn"
    forecast = ["tune", model, "--dry-run", "--budget", "2m", "--threads", "1", "--db", str(path)]
    assert cli.run(forecast) == 0
    assert " of their roofline by the cost model; expect " in capsys.readouterr().out
    assert not path.exists()
    tune(model, budget=Budget(trials=12), database=path, threads=1, quiet=True, time_model=False)
    before = path.read_bytes()
    assert cli.run([*forecast, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["forecast"]["measured"]
    assert cli.run(["report", "--measure", "--json", "--db", str(path)]) == 0
    (again,) = json.loads(capsys.readouterr().out)["measured"]
    assert (again["model"], again["then"], again["later_jobs"]) == (model, None, 0)
    assert again["now"]["processes"] >= 1
    assert again["now"]["before"]["median_ns"] > 0
    assert cli.run(["report", model, "--measure", "--db", str(path)]) == 0
    out = capsys.readouterr().out
    assert f"{model}, by the job: not timed: that was not asked for" in out
    assert f"{model}, measured now: " in out
    assert path.read_bytes() == before  # nothing is stored


def test_a_model_that_was_an_object_cannot_be_timed_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.db"
    made_up_job(path, A, trials=5).run()
    assert cli.run(["report", "--measure", "--db", str(path)]) == 2
    assert "does not say where its model is: it was given as an object" in capsys.readouterr().err
