"""``autotune serve``: its pages and documents say what the commands say, whatever state the database is in."""

from __future__ import annotations

import http.client
import json
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from autotune.cli import main as cli
from autotune.cli.job_lines import chosen
from autotune.cli.report import page_of
from autotune.cli.serve import listen, server_of
from autotune.cli.web import app, listing
from autotune.database import Database, JobRow, schema
from autotune.tuning.jobs.owner import Owner
from autotune.tuning.report.units import nanoseconds
from tests.cli.job_states import SAID, STATES, add
from tests.cli.test_report import HOSTILE
from tests.outline import Outline
from tests.patience import PATIENCE_S, wait_until


@contextmanager
def served(database: str | Path) -> Iterator[str]:
    """Serve a database on a free port of the loopback's."""
    socket = listen("127.0.0.1", 0)
    server = server_of(str(database), "127.0.0.1")
    thread = threading.Thread(target=server.run, args=([socket],))
    thread.start()
    try:
        wait_until(lambda: server.started, "the server")
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def get(url: str, **headers: str) -> tuple[int, str]:
    """Return the status and the text of a page."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE_S)
    connection.request("GET", f"{parts.path}?{parts.query}", headers=headers)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def outline(url: str, status: int = 200) -> Outline:
    """Return the elements and texts of a page."""
    found, text = get(url)
    assert found == status, text
    made = Outline(text)
    assert made.open == []
    return made


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> object:
    """Return the document that a command prints."""
    assert cli.run([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


ROW = re.compile(r'class="state \w+">(\w+)</span>.*?href="/jobs/(\w+)"')


def test_the_list_has_each_job_as_what_it_is(job_states: str) -> None:
    with served(job_states) as url:
        found = [(name, state) for state, name in ROW.findall(get(f"{url}/")[1])]
        texts = outline(f"{url}/").texts
    assert found == list(STATES.items())[::-1]  # the newest first
    assert "1.25×" in texts
    assert "ended by SIGHUP; its command continues it" in texts
    assert "1 done, 1 stopped, 1 running, 1 hung, 1 killed, 1 lost; the newest first" in texts


def test_documents_are_those_of_the_commands(
    job_states: str, tuned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(job_states) as url:
        mine, others = json.loads(get(f"{url}/jobs.json")[1]), printed(capsys, "jobs", "--db", job_states)
    for found in (mine, others):
        for each in found["jobs"]:  # type: ignore[index]
            each["why"] = (each["why"] or "").partition("heard of")[0]
    assert mine == others
    with served(tuned) as url:
        job = json.loads(get(f"{url}/jobs.json")[1])["jobs"][0]["id"]
        assert json.loads(get(f"{url}/jobs/{job}.json")[1]) == printed(capsys, "report", "--db", str(tuned))


def test_the_page_of_a_job_has_all_of_its_report(tuned: Path) -> None:
    with Database(tuned, read_only=True) as database:
        state = chosen(database, None)
        report = page_of(database, state)
    with served(tuned) as url:
        page = f"{url}/jobs/{state.job.id}"
        texts = outline(page).texts
        assert get(f"{page}/report.html") == (200, report)
        loaded = {*outline(page).loaded}
    known = Outline(report).texts
    begin = known.index("Time by dispatch, before and after")
    assert {*known[begin:]} <= {*texts}
    assert next(text for text in known if text.startswith("Whole model: ")) in texts
    assert loaded <= {"link", "link href", "script", "script src", "a href", "form action"}


@pytest.mark.parametrize(
    ("name", "why"),
    [("killed", "the job ended before its search began"), ("foreign", "the job has not begun to search yet")],
)
def test_a_report_that_is_missing_says_why(job_states: str, name: str, why: str) -> None:
    with served(job_states) as url:
        texts = outline(f"{url}/jobs/{name}").texts
        assert any(text.startswith(f"No report: {why}") for text in texts)
        assert get(f"{url}/jobs/{name}/report.html")[0] == 404


def test_what_is_not_there_is_said(job_states: str) -> None:
    with served(job_states) as url:
        unknown = outline(f"{url}/jobs/killd", 404).texts
        assert any(re.match(r"no job 'killd' in .*; did you mean 'killed'\?", text) for text in unknown)
        status, text = get(f"{url}/jobs/killd.json")
        assert status == 404
        assert json.loads(text)["error"].startswith("no job 'killd' in ")
        assert "there is no such page." in outline(f"{url}/nothing", 404).texts
        assert outline(f"{url}/workloads/0123456789ab", 404).texts
        assert get(f"{url}/", Host="elsewhere.example")[0] == 400


def test_a_database_that_cannot_be_read_is_one_message(
    job_states: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_LOCKED_S", 0.05)
    with served(job_states) as url, sqlite3.connect(job_states, isolation_level=None) as other:
        other.execute("UPDATE meta SET value = '999' WHERE name = 'schema_version'")
        assert "version 999" in get(f"{url}/")[1]
        assert get(f"{url}/metrics")[0] == 503
        other.execute(f"UPDATE meta SET value = '{schema.VERSION}' WHERE name = 'schema_version'")
        assert get(f"{url}/")[0] == 200
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        assert "another process keeps it locked" in get(f"{url}/")[1]
        other.execute("ROLLBACK")


def test_a_password_is_not_shown() -> None:
    pytest.importorskip("psycopg", reason="the extra postgres is not installed")
    with served("postgresql://me:secret@127.0.0.1:1/nowhere") as url:
        status, text = get(f"{url}/")
    assert status == 503
    assert "cannot use the database" in text
    assert "me:***@127.0.0.1:1/nowhere" in text
    assert "secret" not in text


def test_names_of_others_are_text_and_nothing_else(job_states: str) -> None:
    with Database(job_states) as database:
        add(database, "hostile", "h'<i>:1:1.00", model=HOSTILE, status=json.dumps(SAID | {"note": HOSTILE}))
    shown = HOSTILE.replace("\x1b", r"\x1b")
    with served(job_states) as url:
        for path in ("/", "/jobs/hostile", f"/?find={quote(HOSTILE)}"):
            made = outline(url + path)
            assert any(shown in text for text in made.texts)
            assert made.loaded.count("script") == 1  # ours
        (line,) = [
            line
            for line in get(f"{url}/metrics")[1].splitlines()
            if line.startswith('autotune_job_trials{job="hostile"')
        ]
    assert line.endswith(r"<script src='//x'>a & b</script>\\x1b[31m" + '"} 0')


SAMPLE = re.compile(r'autotune_\w+\{(\w+="([^"\\]|\\.)*",?)+\} [\d.e+-]+')


def test_metrics_have_the_form_and_the_figures(job_states: str) -> None:
    with served(job_states) as url:
        lines = get(f"{url}/metrics")[1].splitlines()
    samples = [line for line in lines if not line.startswith("# ")]
    assert all(SAMPLE.fullmatch(line) for line in samples)
    for state in STATES.values():
        assert f'autotune_jobs{{state="{state}"}} 1' in samples
    assert 'autotune_runs{outcome="ok"} 1' in samples
    assert 'autotune_job_trials{job="finished1234",model="m"} 2' in samples
    assert 'autotune_job_speedup{job="finished1234",model="m"} 1.25' in samples
    assert any('job_info{job="foreign",model="m",state="running"' in line for line in samples)


def test_a_list_is_narrowed_and_divided(job_states: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "ROWS", 4)
    with served(job_states) as url:
        found = [
            {name for name in STATES if name[:8] in outline(f"{url}/{query}").texts} for query in QUERIES
        ]
        assert any("No job has 'nowhere'" in text for text in outline(f"{url}/?find=nowhere").texts)
    assert found == [
        {"hung", "lost", "foreign", "killed"},
        {"stopped", "finished1234"},
        {"foreign", "lost"},
        {"hung"},
        set(),
    ]


QUERIES = ("", "?page=2", "?find=elsewhere", "?find=QUITE+A+LONG", "?page=3")


def events(url: str, stop: threading.Event) -> Iterator[dict[str, dict[str, list[str]]]]:
    """Yield what a page's stream says."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE_S)
    connection.request("GET", parts.path, headers={"Accept": "text/event-stream"})
    answer = connection.getresponse()
    while not stop.is_set() and (line := answer.readline()):
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))
    connection.close()


def test_a_page_hears_of_what_has_changed(job_states: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "HEARTBEAT_S", 0.01)
    stop = threading.Event()
    with Database(job_states) as database, served(job_states) as url:
        heard = events(f"{url}/jobs/foreign", stop)
        assert {*next(heard)["parts"]} == {"state", "report", "workloads", "more"}
        row = chosen(database, "foreign").job
        database.update_job(replace(row, status=json.dumps(SAID | {"note": "something else"})))
        changed = next(found["parts"] for found in heard if "something else" in str(found))
        assert {*changed} == {"state"}
        with sqlite3.connect(job_states) as other:
            other.execute("UPDATE meta SET value = '999' WHERE name = 'schema_version'")
        assert next(found for found in heard if found["problem"])["parts"] == {}
        stop.set()


def test_a_workload_has_the_figures_of_a_query(tuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Database(tuned, read_only=True) as database:
        summary = max(database.summary(), key=lambda row: row.runs)
    (answer,) = printed(capsys, "query", summary.workload_key, "--db", str(tuned), "--threads", "1")[:1]  # type: ignore[index]
    with served(tuned) as url:
        assert summary.workload_key in get(f"{url}/workloads")[1]
        assert summary.workload_key not in get(f"{url}/workloads?find=nowhere")[1]
        texts = outline(f"{url}/workloads/{summary.workload_key[:12]}").texts
    assert {nanoseconds(answer["latency_ns"]), nanoseconds(answer["default_ns"]), str(answer["runs"])} <= {
        *texts
    }
    assert {"Importance of knobs", "Fastest runs", "The workload as text"} <= {*texts}
    assert any("Isolated latencies of" in text for text in texts) == (answer["ok"] > 1)
    assert any("split(" in text or "tile(" in text for text in texts)


def test_cost_models_are_those_of_the_command(tuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    versions = printed(capsys, "models", "list")["versions"]  # type: ignore[index, call-overload]
    with served(tuned) as url:
        texts = outline(f"{url}/models").texts
    for each in versions:
        assert any(each["version"] in text for text in texts)
        for judged, found in each["metrics"].items():
            assert judged in texts
            assert "{:.3f} ({:.3f} to {:.3f})".format(*found["pairwise"]) in texts


def test_a_port_in_use_is_said(job_states: str, capsys: pytest.CaptureFixture[str]) -> None:
    with listen("127.0.0.1", 0) as other:
        port = str(other.getsockname()[1])
        assert cli.run(["serve", "--db", job_states, "--port", port]) == 2
    said = capsys.readouterr().err
    assert f"cannot listen at port {port} of 127.0.0.1: Address already in use; give another --port" in said


def test_what_is_not_installed_is_named(
    job_states: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert cli.run(["serve", "--db", job_states]) == 2
    assert "pip install 'autotune-compiler[web]'" in capsys.readouterr().err


def test_it_outlives_jobs_and_ends_by_a_signal(job_states: str) -> None:
    command = [
        sys.executable,
        "-m",
        "autotune.cli.main",
        "serve",
        "--db",
        job_states,
        "--port",
        "0",
        "--json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        url = json.loads("".join(lines))["url"]
        stop = threading.Event()
        heard = events(f"{url}jobs/foreign", stop)
        next(heard)
        with Database(job_states) as database:
            row = chosen(database, "foreign").job
            database.update_job(replace(row, state=JobRow.DONE, owner=str(Owner.here())))
        assert json.loads(get(f"{url}jobs.json")[1])["jobs"][3]["state"] == "done"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
        assert process.stdout.read() == ""
        stop.set()
