"""The pages of ``autotune serve`` as Chromium shows them: wide and narrow, light and dark, by keyboard, and alive."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.cli.job_lines import chosen
from autotune.database import Database
from results.bench.chromium import Browser
from tests.cli.conftest import SIZES, faults
from tests.cli.job_states import SAID
from tests.cli.test_serve import served
from tests.patience import wait_until


def paths(database: str | Path) -> list[str]:
    """Return a page of each kind."""
    with Database(database, read_only=True) as store:
        job = chosen(store, None).job.id
        workload = max(store.summary(), key=lambda row: row.runs).workload_key
    return ["/", f"/jobs/{job}", "/workloads", f"/workloads/{workload}", "/models", "/jobs/nowhere"]


@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_pages_fit_and_everybody_can_use_them(
    browser: Browser, rules: str, tuned: Path, width: int, dark: bool
) -> None:
    with served(tuned) as url:
        for path in paths(tuned):
            browser.open(url + path, width, dark=dark)
            assert faults(browser, rules, width) == [], path
        browser.open("about:blank")  # ends the stream


def test_nothing_beyond_the_server_is_asked_for_and_nothing_complains(browser: Browser, tuned: Path) -> None:
    browser.requests.clear()
    browser.complaints.clear()
    with served(tuned) as url:
        for path in paths(tuned)[:-1]:
            browser.open(url + path)
            wait_until(lambda: browser.value("document.getElementById('problem').hidden"), path)
        browser.open("about:blank")
    asked = {each for each in browser.requests if not each.startswith((url, "data:"))}
    assert asked <= {"about:blank"}
    assert browser.complaints == []


def test_a_keyboard_is_enough(browser: Browser, tuned: Path) -> None:
    def focused() -> str:
        return str(browser.value("document.activeElement.textContent"))

    with served(tuned) as url:
        browser.open(f"{url}/")
        browser.press("Tab")
        assert focused() == "Skip to the content"
        assert browser.value("document.activeElement.getBoundingClientRect().left") >= 0  # it can be seen now
        browser.press("Enter")
        browser.press("Tab")
        assert browser.value("document.activeElement.id") == "find"
        for _ in range(3):  # the button, the table, which scrolls, and its first job
            browser.press("Tab")
        assert focused() == "zoo:tiny_cnn"
        browser.press("Enter")
        wait_until(lambda: "/jobs/" in browser.value("location.pathname"), "the page of the job")
        browser.open("about:blank")


def test_a_page_changes_while_it_is_looked_at(browser: Browser, job_states: str) -> None:
    with Database(job_states) as database, served(job_states) as url:
        browser.open(f"{url}/")
        link = "document.querySelector('a[href=\"/jobs/foreign\"]')"
        browser.value(f"{link}.focus()")
        row = chosen(database, "foreign").job
        database.update_job(replace(row, status=json.dumps(SAID | {"note": "something else"})))
        wait_until(
            lambda: "something else" in browser.value("document.getElementById('list').textContent"),
            "the change",
            step_s=0.05,
        )
        assert browser.value(f"document.activeElement === {link}")
        assert browser.value("performance.getEntriesByType('navigation').length") == 1
    wait_until(
        lambda: "does not answer" in browser.value("document.getElementById('problem').textContent"),
        "the note that the server is gone",
        step_s=0.05,
    )
    browser.open("about:blank")
