"""The displays of a job: a screen of any size, events worth a line in a log, a notebook's cell, a user's callback."""

from __future__ import annotations

import io
import sys
import threading
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, ConsoleDimensions

from autotune.database import Comparison, JobRow, Latency
from autotune.database.store import Database
from autotune.tuning.jobs.events import Calls, Several, StopTuning, TuningEvent
from autotune.tuning.report import noise, progress
from autotune.tuning.report.live import Live, Notebook, in_notebook
from autotune.tuning.report.progress import PlainLines, display
from autotune.tuning.report.screen import Screen, SiteRow
from autotune.tuning.report.status import Progress
from tests.patience import PATIENCE_S
from tests.tuning.synthetic import Synthetic
from tests.tuning.test_job import A, B, Model, job

SIZES = [(80, 24), (120, 40), (200, 50), (40, 15)]


def row(number: int) -> SiteRow:
    default = 1e6 / (number + 1)
    now = default / 1.25 if number % 3 == 0 else default
    name = f"features.{number}.expand3x3.convolution" + (" ×2" if number % 4 == 0 else "")
    gain = "1.25× (1.22× to 1.28×)" if number % 3 == 0 else ""
    sure = number % 6 == 0
    return SiteRow(name, number, default, now, now, gain, confirmed=sure, current=number == 2)


SCREEN = Screen(
    model="zoo:squeezenet",
    target="AMD EPYC, 2 threads",
    phase="search",
    note="features.2.expand3x3.convolution",
    budget="2m",
    share=0.43,
    elapsed_s=52.0,
    eta_s=68.0,
    trials=86,
    trials_per_second=3.25,
    gains=("confirmed 1.05× (1.03× to 1.07×) in 4 workloads, unconfirmed 4.08 ms → 3.49 ms",),
    ahead=(
        "forecast: expect 4.1 to 9.3 % (3.2 % so far) in 1m08s, most of the rest in 21s",
        "27 of 70 dispatches are above 90 % of their roofline",
        "noise (at first): spread 2.1 % (1.9), others 0.3 CPUs (0.0), stolen 0.4 % (0.0)",
        "then: search features.7.expand3x3.convolution, because it promises 0.1 % ± 0.1 for 1.7 s",
    ),
    failures=(("timeout", 2), ("wrong_result", 1)),
    rows=tuple(row(number) for number in range(70)),
)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_screen_fits_the_terminal(width: int, height: int, golden: Callable[[str], None]) -> None:
    console = Console(
        file=io.StringIO(),
        width=width,
        height=height,
        force_terminal=True,
        color_system=None,
        legacy_windows=False,
    )
    with console.capture() as capture:
        console.print(SCREEN.later(SCREEN.seen))
    lines = capture.get().rstrip("\n").split("\n")
    assert len(lines) <= height - 1
    assert all(len(line) <= width for line in lines)
    assert "left of 2m" in lines[2]
    golden("\n".join(line.rstrip() for line in [text.plain for text in SCREEN.lines(width, height - 1)]))


@pytest.mark.parametrize("height", range(1, 16))
@pytest.mark.parametrize("width", [1, 7, 20, 200])
def test_a_screen_is_never_larger_than_the_terminal(width: int, height: int) -> None:
    for screen in (SCREEN, replace(SCREEN, rows=(), failures=(), eta_s=None, gains=())):
        lines = screen.lines(width, height)
        assert len(lines) <= height
        assert all(line.cell_len <= width for line in lines)


def test_a_terminal_without_unicode_gets_ascii() -> None:
    lines = [text.plain for text in SCREEN.lines(60, 12, ascii_only=True)]
    assert lines[2].startswith("######")
    assert lines[-1] == "... 68 more"


def test_time_goes_on_between_trials() -> None:
    later = replace(SCREEN, seen=100.0).later(130.0)
    assert (later.elapsed_s, later.eta_s) == (82.0, 38.0)
    assert replace(SCREEN, seen=100.0).later(300.0).eta_s == 0.0


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_no_two_dispatches_look_the_same(width: int) -> None:
    """Long names that differ in the middle alone."""
    names = [
        f"bert.encoder.attention.{'very.' * 12}{n}.self.output.dense.matmul_add_reshape" for n in range(9)
    ]
    rows = tuple(replace(row(0), name=name) for name in names)
    lines = [line.plain for line in replace(SCREEN, rows=rows).lines(width, 40)]
    shown = [line for line in lines if line.startswith(("b", "…", "~"))]
    assert len({line[: width // 2] for line in shown}) == len(shown) == 9
    assert all(len(line) <= width for line in lines)


class Watched(Progress):
    """Keeps the screen of each moment."""

    def __init__(self) -> None:
        self.screens: list[Screen] = []

    def phase(self, status: Any) -> None:
        self.screens.append(Screen.of(status))

    def chosen(self, status: Any) -> None:
        self.screens.append(Screen.of(status))


def test_the_column_moves_with_what_is_measured_in_the_model(tmp_path: Path) -> None:
    watched = Watched()
    whole = Model(A, B, inside=A.latency)
    job(tmp_path / "t.db", A, B, trials=60, whole=whole, progress=watched).run()
    gains = [{line.name: line.gain for line in screen.rows}["a0"] for screen in watched.screens]
    assert gains[0] == ""
    assert len({*gains}) > 3  # each measurement of it moves it
    assert all(gain == "" or gain.endswith("×)") for gain in gains)
    assert any(line.confirmed for line in watched.screens[-1].rows)
    assert any("forecast: expect " in line for screen in watched.screens for line in screen.ahead)
    assert any(line.startswith("then: ") for screen in watched.screens for line in screen.ahead)


def test_a_screen_of_what_is_timed_alone_has_no_intervals(tmp_path: Path) -> None:
    watched = Watched()
    job(tmp_path / "t.db", A, trials=40, whole=None, progress=watched).run()
    gains = {line.gain for screen in watched.screens for line in screen.rows}
    assert any(gain.endswith("× alone") for gain in gains)
    assert not any("to" in gain for gain in gains)


def test_the_noise_now_stands_beside_that_of_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stolen = iter([0.0, 5.0, 12.0, 12.0, 30.0, 30.0]), iter([0.0, 0.6, 0.6, 4.2, 4.2])
    monkeypatch.setattr(noise, "time", types.SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(noise, "stolen_s", lambda: next(stolen))
    monkeypatch.setattr(noise, "usable_cores", lambda: 2)
    known = noise.Noise()
    assert str(known) == ""

    def compared(spread: float, load: float) -> list[Comparison]:
        return [Comparison("a", "k", Latency(9, 90.0, 100.0, spread), load=load)]

    known.take(compared(2.0, 0.1))  # too early to tell what is stolen
    assert str(known) == "spread 2.0 % (2.0), others 0.1 CPUs (0.1)"
    known.take([])
    known.take(compared(4.0, 0.5))
    assert str(known) == "spread 4.0 % (2.0), others 0.5 CPUs (0.1), stolen 10.0 % (2.5)"
    assert known.to_json()["now"] == {"spread": 0.04, "load": 0.5, "stolen": 0.1}


def test_what_takes_long_before_the_search_says_that_it_works() -> None:
    said: list[str] = []
    told = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        if len(said) == 3:
            told.set()

    with progress.signs_of_life(say, "choosing", every_s=0.001):
        assert told.wait(PATIENCE_S)
    count = len(said)
    assert said[:3] == ["choosing", "choosing, 0s so far", "choosing, 0s so far"]
    assert len(said) == count  # it is over


def test_the_time_left_includes_the_comparing_at_the_end(tmp_path: Path) -> None:
    seen: list[tuple[str, float | None, float, float]] = []

    class Watching(Progress):
        def chosen(self, status: Any) -> None:
            self.phase(status)

        def phase(self, status: Any) -> None:
            seen.append((status.phase, status.eta_s, status.after_s, status.trials_per_second))

    whole = Model(A, inside=A.latency)
    job(tmp_path / "t.db", A, trials=40, whole=whole, progress=Watching()).run()
    searching = [one for one in seen if one[0] == "search" and one[1] is not None]
    assert searching
    assert all((eta or 0.0) >= after > 0 for _, eta, after, _ in searching if after)
    assert seen[-1][0] == "whole model"
    assert (seen[-1][1] or 0.0) <= seen[-1][2]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_that_changes_its_size_is_drawn_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    sizes = iter([ConsoleDimensions(80, 24)] * 20 + [ConsoleDimensions(40, 15)] * 100_000)
    monkeypatch.setattr(Console, "size", property(lambda self: next(sizes)))
    out = Terminal()
    shown = display(out)
    assert isinstance(shown, Live)

    class Drawing(Several):
        """Draws at each trial, as the clock would."""

        def measured(self, status: Any, task: Any, run: Any) -> None:
            shown.measured(status, task, run)
            shown._draw(shown._console.size)

    job(tmp_path / "t.db", A, B, trials=30, progress=Drawing([shown])).run()
    text = out.getvalue()
    assert text.count("\x1b[2J") == 1
    assert "30 trials in " in text
    assert text.rstrip().endswith(")")


def test_lines_before_and_after_the_screen_break_between_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    out = io.StringIO()
    job(tmp_path / ("t" * 20 + ".db"), A, trials=10, progress=Live(out)).run()
    lines = out.getvalue().splitlines()
    assert lines[1] == "    threads"
    assert all(len(line) <= 60 or " " not in line.strip() for line in lines)


def test_a_log_has_a_line_for_what_is_worth_one(tmp_path: Path) -> None:
    out = io.StringIO()
    job(tmp_path / "t.db", A, Synthetic("c", failing=True), trials=40, progress=PlainLines(out)).run()
    lines = out.getvalue().splitlines()
    kinds = [line.split()[1] for line in lines if line.startswith("first ")]
    assert kinds
    assert len(kinds) == len(set(kinds))
    assert len(lines) < 25
    shown = [line for line in lines if line.startswith("compare after 40 trials")]
    assert len(shown) == len(set(shown)) >= 1


def test_a_log_of_a_long_quiet_job_shows_signs_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "QUIET_S", 0.0)
    out = io.StringIO()
    job(tmp_path / "t.db", A, trials=20, progress=PlainLines(out)).run()
    assert len([line for line in out.getvalue().splitlines() if "/20 trials, " in line]) == 20


def test_a_notebook_redraws_its_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class ZMQInteractiveShell:
        """As ipykernel calls it."""

    class Handle:
        def update(self, html: str) -> None:
            shown.append(html)

    ipython = types.ModuleType("IPython")
    ipython.get_ipython = ZMQInteractiveShell  # type: ignore[attr-defined]
    pictures = types.ModuleType("IPython.display")
    pictures.HTML = str  # type: ignore[attr-defined]
    pictures.display = lambda html, display_id: Handle()  # type: ignore[attr-defined]
    assert not in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", pictures)
    chosen = display(io.StringIO())
    assert isinstance(chosen, Notebook)
    job(tmp_path / "t.db", A, trials=10, progress=chosen).run()
    assert "<pre" in shown[0]
    assert "model, x86-64-v3, 2 threads" in shown[0]
    assert "10 trials in " in shown[-1]


def test_a_callback_hears_of_every_trial_and_phase(tmp_path: Path) -> None:
    events: list[TuningEvent] = []
    report = job(tmp_path / "t.db", A, trials=12, whole=None, progress=Calls(events.append)).run()
    assert [e.event for e in events] == ["started", *["measured"] * 12, "finished"]
    assert [e.trials for e in events[1:13]] == list(range(1, 13))
    assert all(e.dispatch == "a0" and (e.outcome == "ok") == bool(e.latency_ns) for e in events[1:13])
    best = float("inf")
    for event in events[1:13]:
        best = min(best, event.latency_ns or best)
        assert event.best_ns == best  # the trial counts when the callback hears of it
    assert events[-1].report == report
    assert events[-1].speedup is None  # nothing was compared


def test_what_is_confirmed_is_told_apart_from_single_readings(tmp_path: Path) -> None:
    out = io.StringIO()
    events: list[TuningEvent] = []
    heard = Several([PlainLines(out), Calls(events.append)])
    report = job(tmp_path / "t.db", A, trials=30, whole=Model(A, inside=A.latency), progress=heard).run()
    readings = [line for line in out.getvalue().splitlines() if "/30 trials, " in line]
    assert readings
    assert ", nothing confirmed, unconfirmed " in readings[0]
    assert next(event for event in events if event.event == "measured").speedup is None
    assert report.dispatches[0].evidence.ratio is not None
    assert events[-1].speedup == pytest.approx(report.dispatches[0].evidence.ratio.speedup)


def test_a_callback_may_stop_the_job(tmp_path: Path) -> None:
    def enough(event: TuningEvent) -> None:
        if event.trials >= 7:
            raise StopTuning

    report = job(tmp_path / "t.db", A, trials=30, progress=Calls(enough)).run()
    assert (report.stopped, report.trials) == (True, 7)
    again = job(tmp_path / "t.db", A, trials=30).run()
    assert (again.job, again.trials, again.stopped) == (report.job, 30, False)


def test_a_callback_that_fails_ends_the_job_and_says_so(tmp_path: Path) -> None:
    closed: list[bool] = []

    class Closing(Progress):
        def close(self) -> None:
            closed.append(True)

    def wrong(event: TuningEvent) -> None:
        if event.trials == 3:
            raise ZeroDivisionError("mine")

    path = tmp_path / "t.db"
    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        job(path, A, trials=30, progress=Several([Closing(), Calls(wrong)])).run()
    assert caught.value.__notes__ == [
        "raised by the callback of autotune.tune at the event 'measured': tuning has ended after 3 trials, which "
        f"{path} has, and the same call goes on with them"
    ]
    assert closed
    with Database(path) as database:
        (row,) = database.jobs()
        assert (row.state, sum(database.outcomes().values())) == (JobRow.STOPPED, 3)
