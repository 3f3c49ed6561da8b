"""Charts of a job: the gain over the time follows from its comparisons, and dots are what dispatches take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.database import Comparison, Evidence, Ratio, State
from autotune.tuning.report.charts import Compared, figure, gains, in_notebook, over_time, rooflines
from autotune.tuning.report.gain import Gain
from autotune.tuning.report.plot import Plot, PlotAxis
from autotune.tuning.report.result import DispatchRow, ModelReport, OptionRow, Report
from tests.database.examples import latency
from tests.outline import Outline

HOSTILE = "<script>alert(1)</script>"
TUNED = Evidence(State.TUNED, 19, Ratio(0.5, (0.4, 0.6)))
SLOW = DispatchRow("000_a", "convolution", "a", 1, 3000.0, 1500.0, 20, TUNED, ("n",), floor_ns=1200.0)
FAST = DispatchRow("001_b", "pool", "b", 2, 500.0, 500.0, 1, Evidence(State.TRIED, 8), floor_ns=100.0)
MODEL = ModelReport("m", (SLOW, FAST), untimed="a reason")


def won(dispatch: str, ratio: Ratio | None, created: float) -> Compared:
    return Compared(dispatch, "schedule", Comparison("t", "s", latency(9.0), True, ratio, created=created))


def test_the_gain_over_the_time_is_that_of_the_sum_of_the_dispatches() -> None:
    compared = [
        won("001_b", Ratio(0.8, (0.7, 0.9)), 130.0),
        won("000_a", Ratio(0.5, (0.4, 0.6)), 110.0),
        won("000_a", None, 150.0),
        replace(won("000_a", Ratio(0.1, (0.1, 0.1)), 120.0), found=Comparison("t", "s", None)),
        won("elsewhere", Ratio(0.1, (0.1, 0.1)), 120.0),
    ]
    (first, once), (second, both), (third, back) = gains(MODEL, compared, 100.0)
    assert (first, second, third) == (10.0, 30.0, 50.0)
    assert once.median == pytest.approx(0.75 * 0.5 + 0.25)
    assert both.median == pytest.approx(0.75 * 0.5 + 0.25 * 0.8)
    assert back.median == pytest.approx(0.75 + 0.25 * 0.8)
    assert once.interval == pytest.approx((0.75 * 0.4 + 0.25, 0.75 * 0.6 + 0.25))


def test_a_default_that_stays_is_no_step() -> None:
    assert (
        gains(MODEL, [won("000_a", None, 110.0), won("001_b", Ratio(0.99, (0.9, 1.1)), 120.0)], 100.0) == []
    )
    assert over_time(MODEL, [], 100.0, 60.0) is None


def test_an_option_counts_as_a_whole() -> None:
    option = OptionRow("000_a", "winograd", 1, ("a",), 0.5, "2.00×")
    report = replace(MODEL, options=(option,))
    ((_, ratio),) = gains(report, [won("000_a", Ratio(0.5, (0.4, 0.6)), 110.0)], 100.0)
    assert ratio.median == pytest.approx(0.75 * 0.5 + 0.25)


def test_the_whole_model_is_a_dot_at_the_end() -> None:
    gain = Gain(latency(9.0), latency(6.0), Ratio(0.7, (0.6, 0.8)), 9)
    made = over_time(replace(MODEL, gain=gain), [won("000_a", Ratio(0.5, (0.4, 0.6)), 110.0)], 100.0, 60.0)
    assert made is not None
    ((dot,), ((_, line),)) = made.dots, made.lines
    assert (dot.x, dot.y) == (60.0, pytest.approx(1 / 0.7))
    assert line[0] == (0.0, 1.0)
    assert line[-1] == (60.0, pytest.approx(1 / 0.625))
    assert all(low <= high for _, low, high in made.band)


def test_each_dispatch_has_a_dot_before_and_after() -> None:
    made = rooflines(MODEL)
    assert made is not None
    assert [(dot.x, round(dot.y), dot.kind) for dot in made.dots] == [
        (3000.0, 40, "before"),
        (1500.0, 80, "after"),
        (1000.0, 20, "before"),
        (1000.0, 20, "after"),
    ]
    old = replace(MODEL, dispatches=tuple(replace(row, floor_ns=None) for row in MODEL.dispatches))
    assert rooflines(old) is None


def test_a_notebook_shows_charts_and_nothing_that_runs() -> None:
    model = replace(MODEL, model=HOSTILE, dispatches=(replace(SLOW, name=HOSTILE, names=(HOSTILE,)), FAST))
    report = Report((model,), "t", "tuning.db", "j", False, 20, 20, 1.0, 20.0, {"ok": 20}, {})
    for text in (
        figure(report).text,
        in_notebook(report).text,
        report._repr_html_(),
        report.figure()._repr_html_(),
    ):
        made = Outline(text)
        assert (made.open, made.loaded, made.scripts) == ([], [], [])
        assert HOSTILE in made.texts
        assert len([each for each in made.attributes if each["tag"] == "circle"]) == 4


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 7.5), (1e-9, 2e-9), (0.98, 1.07), (5.0, 5e6)])
def test_ticks_are_few_round_and_inside(low: float, high: float) -> None:
    ticks = PlotAxis("x").ticks(low, high)
    assert 2 <= len(ticks) <= 12
    assert all(low - 1e-12 <= tick <= high + 1e-12 for tick in ticks)


def test_a_plot_of_one_point_or_of_nothing_is_drawn() -> None:
    for lines in ((), [("after", [(1.0, 1.0)])]):
        assert (
            Outline(Plot(PlotAxis("x"), PlotAxis("y", log=True), "about", lines=lines).svg().text).open == []
        )
