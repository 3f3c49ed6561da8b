"""The pages of ``autotune serve`` for a large tuning database: how long each takes to come."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import click
from sqlalchemy import insert, text
from sqlalchemy.engine import Connection

from autotune.bench import options
from autotune.bench.experiment import Column, Experiment, FrameRows, Record, Say, TableView
from autotune.bench.tables import duration, number
from autotune.cli.serve import listen, server_of
from autotune.database import Evidence, JobRow, Ratio, State, schema
from autotune.database.store import Database
from autotune.errors import MeasureError
from autotune.files import scratch_folder
from autotune.tuning.jobs.owner import owner
from autotune.tuning.report.result import DispatchRow, ModelReport, Report
from results.bench.chromium import Browser, binary
from results.bench.queries import filling, material
from results.bench.queries.times import quantile

_REAL = 5000
"""Runs that are made of real schedules; the others are copies with figures of their own."""
_DAY_S = 86_400.0
_CACHE_KB = 2_000_000
"""Indexes of a million runs: what does not fit is written to the disk again and again."""
_FOR_PROGRAMS = ("/jobs.json", "/metrics")
_GAIN = Ratio(0.8, (0.78, 0.82))
_RUNS = """
WITH RECURSIVE copies(number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM copies WHERE number < {copies})
INSERT INTO runs ({columns}) SELECT {values} FROM copies, runs WHERE runs.id <= {real}
"""
_COMPARISONS = """
WITH RECURSIVE copies(number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM copies WHERE number < {copies})
INSERT INTO comparisons ({columns}) SELECT {values} FROM copies, comparisons WHERE comparisons.id <= {real}
"""


def measure(
    say: Say, runs: int, jobs: int, rounds: int, database: Path | None = None
) -> Iterator[Sequence[Record]]:
    """Yield a record for each time that a page was asked for."""
    with scratch_folder("autotune-bench-") as folder:
        file = database or folder / "pages.db"
        if not file.exists():
            say(f"{runs} runs of {jobs} jobs")
            with Database(file) as store:
                _fill(store, runs, jobs, say)
        where = str(file)
        with Database(where, read_only=True) as store:
            names = [job.id for job in store.jobs() if job.owner != "bench"]
            workload = max(store.summary(), key=lambda row: row.runs).workload_key
        pages = _paths(names, workload)
        with _served(where) as listening:
            for name, path in pages.items():
                say(name)
                yield [_asked(name, path, count, listening) for count in range(rounds + 1)]
            yield from _painted(pages, listening, rounds, Path(folder), say)


@contextmanager
def _served(where: str) -> Iterator[socket.socket]:
    listening = listen("127.0.0.1", 0)
    server = server_of(where, "127.0.0.1")
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield listening
    finally:
        server.should_exit = True
        thread.join()


def _painted(
    pages: Mapping[str, str], listening: socket.socket, rounds: int, folder: Path, say: Say
) -> Iterator[Sequence[Record]]:
    """Yield how long a browser takes to the first paint of each page for people, if one is installed."""
    path = binary()
    if path is None:
        say("no Chromium is installed: first paints are left out")
        return
    browser, url = Browser(path, folder / "chromium"), f"http://127.0.0.1:{listening.getsockname()[1]}"
    try:
        for name, page in pages.items():
            if page not in _FOR_PROGRAMS:
                say(f"{name} in Chromium")
                yield [_paint(browser, name, url + page) for _ in range(rounds)]
        browser.open("about:blank")  # ends the stream of the last page
    finally:
        browser.close()


def _paint(browser: Browser, name: str, url: str) -> Record:
    browser.open(url)
    return {"page": name, "painted": browser.painted_s()}


def _paths(jobs: Sequence[str], workload: str) -> dict[str, str]:
    return {
        "list of jobs": "/",
        "one of the last": f"/?page={-(-len(jobs) // 100)}",
        "jobs of a word": "/?find=done",
        "page of a job": f"/jobs/{jobs[-1]}",
        "list of workloads": "/workloads",
        "page of the workload with the most runs": f"/workloads/{workload}",
        "cost models": "/models",
        "jobs as JSON": _FOR_PROGRAMS[0],
        "metrics": _FOR_PROGRAMS[1],
    }


def _asked(name: str, path: str, count: int, listening: socket.socket) -> Record:
    """Return how long a page took to come; the first time what it imports is new."""
    connection = HTTPConnection("127.0.0.1", listening.getsockname()[1])
    begin = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    found = answer.read()
    seconds = time.perf_counter() - begin
    connection.close()
    if answer.status != 200:
        raise MeasureError(f"{path} has status {answer.status}")
    return {"page": name, "round": count, "seconds": seconds, "bytes": len(found)}


def _fill(store: Database, runs: int, jobs: int, say: Say) -> None:
    """Fill an empty database."""
    (model,) = material.models(["squeezenet"])
    filled = filling.fill(store, [model], material.targets(), min(runs, _REAL), 0, say)
    target, names = filled.tuned[0].target.key, [f"{number:012x}" for number in range(jobs)]
    rows = [_job(name, number, target) for number, name in enumerate(names)]
    report = json.dumps(_report(model, names[0]).to_json())
    layers = [
        {"job": name, "workload_key": key, "names": json.dumps(found)}
        for name in names
        for key, found in model.layers.items()
        if key in {one.workload.key for one in filled.tuned}
    ]

    def write(connection: Connection) -> None:
        connection.exec_driver_sql(f"PRAGMA cache_size=-{_CACHE_KB}")
        connection.execute(insert(schema.jobs), [{**vars(row), "report": report} for row in rows])
        connection.execute(insert(schema.layers), layers)
        for statement in _copies(filled, runs, jobs):
            connection.execute(text(statement))

    store.session.write(write)


def _copies(filled: filling.Filled, runs: int, jobs: int) -> Iterator[str]:
    """Yield the statements that multiply what is there."""
    job = f"printf('%012x', abs(random()) % {jobs})"
    times = {
        name: f"{name} * (1 + abs(random() % 1000) / 1000.0)"
        for name in ("latency_min_ns", "latency_median_ns")
    }
    own = {
        **times,
        "trace_key": "printf('%064x', 10000 * number + runs.id)",
        "origin": "'search'",
        "job": job,
    }
    for pattern, table, real, changed in (
        (_RUNS, schema.runs, filled.runs, own),
        (
            _COMPARISONS,
            schema.comparisons,
            filled.comparisons,
            {"job": job, "created": "created + number", "won": "0"},
        ),
    ):
        columns = [column.name for column in table.c if column.name != "id"]
        values = [changed.get(name, f"{table.name}.{name}") for name in columns]
        copies = max(1, (runs - filled.runs) // filled.runs)
        yield pattern.format(columns=", ".join(columns), values=", ".join(values), copies=copies, real=real)


def _job(name: str, number: int, target: str) -> JobRow:
    """Return a job: most have ended, the last ones run in this process."""
    now, said = (
        time.time(),
        {"phase": "search", "note": "next: search conv", "budget": "8 h", "eta_s": 3600.0},
    )
    models = [{"model": "zoo:squeezenet", "default_ns": 2e6, "best_ns": 1e6, "confirmed": _GAIN.to_json()}]
    state = JobRow.RUNNING if number % 100 == 0 else JobRow.DONE
    done = {"outcomes": {"ok": 900, "crashed": 3}, "models": models, "trials": 903}
    status = json.dumps(said | done)
    begun = now - _DAY_S + number
    return JobRow(name, name, "zoo:squeezenet", target, "{}", state, owner(), 28_800.0, begun, now, status)


def _report(model: material.TunedModel, job: str) -> Report:
    tuned = Evidence(State.TUNED, 90, _GAIN)
    rows = [
        DispatchRow(
            names[0],
            "convolution",
            key,
            len(names),
            2e5,
            1.6e5,
            90,
            tuned,
            ("conv", "relu"),
            "search",
            tuple(names),
        )
        for key, names in model.layers.items()
    ]
    of_model = ModelReport("zoo:squeezenet", tuple(rows), untimed="made up")
    return Report(
        (of_model,), "here", "pages.db", job, False, 903, 903, 3600.0, 0.25, {"ok": 900, "crashed": 3}, {}
    )


def _share(share: float, column: str = "seconds", first: int = 1) -> Callable[[FrameRows], float | None]:
    """Return what takes a quantile of the times of a page, the first so many not counted; None without any."""
    return lambda rows: 1e9 * quantile(found[first:], share) if (found := rows.all(column)) else None


ABOUT = (
    "How long the pages of `autotune serve` take to come, for a database of a thousand jobs and a million runs: of a "
    "few real schedules, with figures that are made up. Each page is asked for by a client in the same process, which "
    "waits for all of it. The first time stands by itself: what it needs is imported and read from the disk then. The "
    "first paint is Chromium's own (first-contentful-paint, from the beginning of the request), a median; it is "
    "missing where no browser is installed, and of documents for programs."
)

EXPERIMENT = Experiment(
    title="Pages of a large tuning database",
    about=ABOUT,
    summary="Measure how long the pages of `autotune serve` take to come.",
    example="--runs 1000000 -o results/pages.md",
    options=(
        options.number("--runs", 1_000_000, "Runs in the database."),
        options.number("--jobs", 1000, "Jobs in it."),
        options.number("--rounds", 20, "Times that each page is asked for."),
        click.Option(
            ["--db", "database"],
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Fill this database and leave it, or measure it as it is if it is there; else a new one each time.",
        ),
    ),
    measure=measure,
    views=(
        TableView(
            "Times",
            ("page",),
            (
                Column("page", "page"),
                Column("first", lambda rows: 1e9 * rows.get("seconds"), duration),
                Column("median", _share(0.5), duration),
                Column("99th percentile", _share(0.99), duration),
                Column("size", "bytes", number(1, " kB", 1e3)),
                Column("first paint", _share(0.5, "painted", 0), duration),
            ),
        ),
    ),
)

__all__ = ["EXPERIMENT"]
