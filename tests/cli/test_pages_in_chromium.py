"""Pages that commands write, as Chromium shows them: the graph of a model by keyboard and mouse, and charts."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from autotune.cli import main as cli
from autotune.database import JobRow, Ratio
from autotune.tuning.jobs.owner import states_of
from autotune.tuning.report.page import page
from autotune.tuning.report.result import Report
from results.bench.chromium import Browser
from tests.cli.conftest import SIZES, faults
from tests.database.examples import job
from tests.once import made_once
from tests.tuning.test_charts import MODEL, won

WHERE = "document.activeElement.dataset.at"
BOX = "document.getElementById('graph')"
SVG = f"{BOX}.querySelector('svg')"
SCALE = f"{SVG}.getAttribute('width') / {SVG}.viewBox.baseVal.width"
NODES = f"{BOX}.querySelectorAll('[data-at]')"


@pytest.fixture(scope="session")
def graph(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the page of a model whose graph has branches."""

    def write(folder: Path) -> None:
        command = ["explain", "zoo:squeezenet", "--html", str(folder / "graph.html")]
        assert cli.run(command) == 0

    return (made_once(tmp_path_factory, "graph", write) / "graph.html").as_uri()


@pytest.fixture
def charts(tmp_path: Path) -> str:
    """The address of the report of a job that has confirmed two gains."""
    compared = [
        won("000_a", Ratio(0.5), 110.0),
        won("001_b", Ratio(0.6), 130.0),
    ]
    state = states_of([replace(job(owner="h:1:2.00"), state=JobRow.DONE, created=100.0, elapsed_s=60.0)])[0]
    report = Report((MODEL,), "t", "tuning.db", "j", False, 20, 20, 60.0, 20.0, {"ok": 20}, {})
    path = tmp_path / "report.html"
    path.write_text(page(state, report, "t", compared), encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_pages_fit_and_everybody_can_use_them(
    browser: Browser, rules: str, graph: str, charts: str, width: int, dark: bool
) -> None:
    browser.requests.clear()
    browser.complaints.clear()
    for url in (graph, charts):
        browser.open(url, width, dark=dark)
        assert faults(browser, rules, width) == [], url
    assert browser.requests == [graph, charts]
    assert browser.complaints == []


def chosen(browser: Browser) -> int:
    """Return the dispatch that is chosen: it has the focus, can be seen, and its facts are shown."""
    at = int(browser.value(WHERE))
    assert browser.value(f"{BOX}.querySelector('[aria-current]').dataset.at") == str(at)
    name = browser.value("document.activeElement.getAttribute('aria-label')").partition(":")[0]
    assert browser.value("document.querySelector('#facts h2').textContent").startswith(f"{name}:")
    inside = "(n => b => n.left >= b.left && n.right <= b.right && n.top >= b.top && n.bottom <= b.bottom)"
    seen = f"{inside}(document.activeElement.getBoundingClientRect())({BOX}.getBoundingClientRect())"
    assert browser.value(seen), at
    return at


def test_the_graph_is_walked_by_keys(browser: Browser, graph: str) -> None:
    browser.open(graph)
    last = int(browser.value(f"{NODES}.length")) - 1
    for _ in range(4):  # the three buttons, then the graph
        browser.press("Tab")
    assert chosen(browser) == 0
    browser.press("ArrowRight")
    assert chosen(browser) == 1
    browser.press("ArrowLeft")
    browser.press("ArrowLeft")  # there is none before the first
    assert chosen(browser) == 0
    browser.press("End")
    assert chosen(browser) == last
    edges = f"[...{SVG}.querySelectorAll('path')].map(each => [each.dataset.from, each.dataset.to])"
    edges = {(before, after) for before, after in browser.value(edges)}
    for key, step in (("ArrowUp", -1), ("ArrowDown", 1)):
        walked = [chosen(browser)]
        while browser.press(key) or chosen(browser) != walked[-1]:
            walked.append(chosen(browser))
        assert walked[-1] == (0 if key == "ArrowUp" else last)
        assert {(str(min(pair)), str(max(pair))) for pair in pairwise(walked)} <= edges
        assert len(walked) > 5
        assert [b - a > 0 for a, b in pairwise(walked)] == [step > 0] * (len(walked) - 1)
    browser.press("Home")
    assert chosen(browser) == 0
    browser.press("Tab")
    assert browser.value("document.activeElement.id") == "facts"


def test_the_graph_zooms_by_keys_and_buttons(browser: Browser, graph: str) -> None:
    browser.open(graph)
    begin = browser.value(SCALE)
    for _ in range(4):
        browser.press("Tab")
    browser.press("+")
    assert browser.value(SCALE) == pytest.approx(1.25 * begin)
    browser.press("-")
    assert browser.value(SCALE) == pytest.approx(begin)
    browser.press("0")
    assert browser.value(f"{SVG}.clientHeight <= {BOX}.clientHeight + 1")
    assert browser.value(f"{SVG}.clientWidth <= {BOX}.clientWidth + 1")
    for _ in range(40):
        browser.press("+")
    assert browser.value(SCALE) == 4
    assert browser.value(WHERE) == "0"
    browser.value("document.querySelector('[data-key=\"0\"]').click()")
    assert browser.value(SCALE) < 1


def middle(browser: Browser, what: str) -> tuple[float, float]:
    """Return the middle of an element, in the window."""
    found = browser.value(
        f"(r => [r.left + r.width / 2, r.top + r.height / 2])({what}.getBoundingClientRect())"
    )
    return found[0], found[1]


def test_the_graph_zooms_and_moves_by_the_mouse(browser: Browser, graph: str) -> None:
    browser.open(graph)
    begin, second = browser.value(SCALE), f"{NODES}[1]"
    place = middle(browser, second)
    browser.wheel(place, -200, control=True)
    browser.until(f"{SCALE} > {1.01 * begin}")
    assert middle(browser, second) == pytest.approx(place, abs=2)  # what is pointed at stays
    browser.drag(place, place)
    assert chosen(browser) == 1
    before = middle(browser, second)
    browser.drag(before, (before[0], before[1] - 60))
    assert middle(browser, second) == pytest.approx((before[0], before[1] - 60), abs=2)
    assert browser.value(WHERE) == "1"
    browser.wheel(place, 300)
    browser.until(f"{NODES}[1].getBoundingClientRect().top < {before[1] - 61}")
    assert browser.value(SCALE) > begin


@pytest.mark.parametrize("width", [1400, 400])
def test_texts_of_charts_are_inside_and_apart(browser: Browser, charts: str, width: int) -> None:
    browser.open(charts, width)
    figures = "[...document.querySelectorAll('svg.figure')]"
    assert browser.value(f"{figures}.length") == 2
    inside = (
        f"{figures}.every(figure => (box => [...figure.querySelectorAll('text, circle, path')].every(each => "
        "(own => own.left >= box.left - 1 && own.right <= box.right + 1 && own.top >= box.top - 1 && "
        "own.bottom <= box.bottom + 1)(each.getBoundingClientRect())))(figure.getBoundingClientRect()))"
    )
    assert browser.value(inside)
    overlapping = (
        f"{figures}.flatMap(figure => [...figure.querySelectorAll('text')].map(each => each.getBoundingClientRect())"
        ".flatMap((a, i, all) => all.slice(i + 1).filter(b => a.left < b.right && b.left < a.right && "
        "a.top < b.bottom - 2 && b.top < a.bottom - 2))).length"
    )
    assert browser.value(overlapping) == 0
