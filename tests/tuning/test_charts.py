"""Charts of a job: the gain over the time follows from its comparisons, and dots are what dispatches take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.database import Comparison, Evidence, Ratio, State
from autotune.database.inside import claim_of
from autotune.database.posterior import standings
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


def won(dispatch: str, ratio: Ratio | None, created: float, name: str = "t") -> Compared:
    latency_ns = latency(9.0 if ratio is None else 9.0 * ratio.median)
    found = Comparison(name, "s", latency_ns, True, ratio, created=created, inside="m")
    return Compared(dispatch, "schedule", found, dispatch.rpartition("_")[2])


def ranked(dispatch: str, workload: str, ratio: Ratio, created: float) -> list[Compared]:
    """An option that was faster than the default in one comparison."""
    rows = [
        Comparison("direct", "d", latency(9.0), created=created, inside="m"),
        Comparison("winograd", "w", latency(9.0 * ratio.median), True, ratio, created=created, inside="m"),
    ]
    return [Compared(dispatch, "option", row, workload) for row in rows]


def claimed(*compared: Compared) -> Ratio:
    found = claim_of([each.found for each in compared], "t")
    assert found is not None
    return found


def test_the_gain_over_the_time_is_that_of_the_sum_of_the_dispatches() -> None:
    first, second = won("000_a", Ratio(0.5), 110.0), won("001_b", Ratio(0.6), 130.0)
    compared = [
        second,
        first,
        won("000_a", None, 150.0, "default"),
        replace(first, found=Comparison("t", "s", None, created=120.0)),
        won("elsewhere", Ratio(0.1), 140.0),
    ]
    found = gains(MODEL, compared, 100.0)
    assert [at for at, _ in found] == [10.0, 20.0, 30.0, 50.0]
    one, two = claimed(first), claimed(second)
    medians = [0.75 * one.median + 0.25, 0.75 * one.median + 0.25 * two.median, 0.75 + 0.25 * two.median]
    assert [found[at][1].median for at in (0, 2, 3)] == pytest.approx(medians)
    assert found[0][1] == found[1][1]
    assert one.interval is not None
    assert found[0][1].interval == pytest.approx(tuple(0.75 * end + 0.25 for end in one.interval))


def test_comparisons_confirm_together_what_none_of_them_does() -> None:
    compared = [won("000_a", Ratio(0.86), 110.0 + at) for at in range(9)]
    found = gains(MODEL, compared, 100.0)
    assert found[-1][1].changed
    assert 0 < len(found) < len(compared)


def test_a_default_that_stays_is_no_step() -> None:
    assert gains(MODEL, [won("000_a", None, 110.0), won("001_b", Ratio(0.99), 120.0)], 100.0) == []
    assert over_time(MODEL, [], 100.0, 60.0) is None


def test_a_gain_of_long_jobs_is_estimated_at_some_times() -> None:
    compared = [won("000_a", Ratio(0.5), 110.0 + at) for at in range(500)]
    found = gains(MODEL, compared, 100.0)
    assert 30 < len(found) <= 60
    assert found[-1][0] == 509.0


INPUT = DispatchRow(
    "000_c/000_in", "pool", "in", 2, 600.0, 300.0, 9, TUNED, names=("000_c/000_in", "001_d/000_in")
)
PRODUCT = DispatchRow(
    "000_c/001_mul", "matmul", "mul", 2, 900.0, 600.0, 9, TUNED, names=("000_c/001_mul", "001_d/001_mul")
)
DIVIDED = ModelReport(
    "m", (INPUT, PRODUCT, SLOW), options=(OptionRow("000_c", "winograd", 2, ("in", "mul"), None, "default"),)
)
"""Twice the parts take 3000 ns, as the other dispatch does."""


def test_an_option_counts_as_a_whole() -> None:
    option = OptionRow("000_a", "winograd", 1, ("a",), 0.5, "2.00×")
    compared = ranked("000_a", "whole", Ratio(0.5), 110.0)
    ((_, ratio),) = gains(replace(MODEL, options=(option,)), compared, 100.0)
    standing = standings({"000_a": [each.found for each in compared]})["000_a"].order[0]
    assert standing.name == "winograd"
    assert ratio.median == pytest.approx(0.75 * standing.claim.median + 0.25)


def test_the_schedules_of_both_parts_of_an_option_count() -> None:
    """No comparison tells the option from the default, as in the table: what was gained is what its parts have."""
    first, second = won("000_in", Ratio(0.5), 110.0), won("elsewhere_mul", Ratio(0.6), 130.0)
    found = gains(DIVIDED, [second, first], 100.0)
    assert [at for at, _ in found] == [10.0, 30.0]
    one, two = claimed(first), claimed(second)
    assert found[0][1].median == pytest.approx(1 - 0.2 * (1 - one.median))
    assert found[1][1].median == pytest.approx(1 - 0.2 * (1 - one.median) - 0.3 * (1 - two.median))


def test_an_option_that_was_confirmed_has_the_gains_of_its_parts() -> None:
    """As in the table, where what the default takes follows from the comparison of both."""
    option = replace(DIVIDED.options[0], ratio=0.5, gain="2.00×")
    compared = [won("000_in", Ratio(0.5), 110.0), *ranked("000_c", "whole", Ratio(0.5), 130.0)]
    ((at, ratio),) = gains(replace(DIVIDED, options=(option,)), compared, 100.0)
    standing = standings({"000_c": [each.found for each in compared[1:]]})["000_c"].order[0]
    assert at == 30.0
    assert ratio.median == pytest.approx(1 - 3600 / 6600 * (1 - standing.claim.median))


def test_the_whole_model_is_a_dot_at_the_end() -> None:
    gain = Gain(latency(9.0), latency(6.0), Ratio(0.7, (0.6, 0.8)), 9)
    first = won("000_a", Ratio(0.5), 110.0)
    made = over_time(replace(MODEL, gain=gain), [first], 100.0, 60.0)
    assert made is not None
    ((dot,), ((_, line),)) = made.dots, made.lines
    assert (dot.x, dot.y) == (60.0, pytest.approx(1 / 0.7))
    assert line[0] == (0.0, 1.0)
    assert line[-1] == (60.0, pytest.approx(1 / (0.75 * claimed(first).median + 0.25)))
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
